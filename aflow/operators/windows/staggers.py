"""Staggers of one window step in one subtask: the shift of the windows of each key.

A subtask draws its stagger when it receives its first record, and stores it with the key groups that it owns. After a
restore each key keeps its stagger, whatever the parallelism. So an open window is continued, never split in two. A
subtask that owns key groups of several former subtasks has several staggers.

Over history windows are aligned: there is neither a clock nor a load to spread. A live job that continues from the
state of a backfill keeps them aligned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Final, cast

from aflow.errors import RestoreError
from aflow.machines.windows.assigners import TumblingWindows, WindowAssigner
from aflow.machines.windows.stagger import WindowStagger
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.key_groups import key_group
from aflow.operators.base import OperatorContext
from aflow.state.snapshot import OperatorSnapshot

#: Operator state: staggers with the key groups that have them, as [stagger, first, end (exclusive)].
_STAGGERS: Final = "@staggers"


class Staggers:
    """The windows of each key of a subtask: ``windows``, shifted by a stagger."""

    def __init__(self, windows: TumblingWindows, context: OperatorContext) -> None:
        self._windows = windows
        self._context = context
        #: The stagger of all key groups but those in ``_others``; None until the first record or a restore.
        self._own: int | None = None
        #: The staggers of key groups that were restored with a different one.
        self._others: dict[int, int] = {}
        #: Windows by their stagger.
        self._staggered: dict[int, TumblingWindows] = {}

    @property
    def mixed(self) -> bool:
        """True if keys of this subtask have different staggers."""
        return bool(self._others)

    @property
    def size(self) -> int:
        """The size of all windows (ms)."""
        return self._windows.size

    def own(self) -> TumblingWindows:
        """Return the windows of all keys without a different stagger. The first call draws the stagger."""
        if self._own is None:
            self._own = self._drawn()
        return self._staggered_by(self._own)

    def of(self, key: Hashable) -> TumblingWindows:
        """Return the windows of ``key``."""
        if not self._others:
            return self.own()
        by = self._others.get(key_group(key, self._context.key_group_count))
        return self.own() if by is None else self._staggered_by(by)

    def stored(self) -> Mapping[str, tuple[bytes, ...]]:
        """Return the staggers as operator state."""
        if self._own is None:
            return {}
        groups = self._context.key_groups
        entries = [[self._own, groups.start, groups.stop]]
        entries += [[by, group, group + 1] for group, by in self._others.items()]
        return {_STAGGERS: tuple(map(PLAIN.encode, entries))}

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Continue with the staggers of the key groups of this subtask. Raises ``RestoreError``."""
        entries = [self._decoded(data) for data in snapshot.operator.get(_STAGGERS, ())]
        # A subtask stored its own stagger for its whole range, and exceptions group by group.
        entries.sort(key=lambda entry: entry[1] - entry[2])
        known = {
            group: by
            for by, start, stop in entries
            for group in range(start, stop)
            if group in self._context.key_groups
        }
        if known:
            ((self._own, _),) = Counter(known.values()).most_common(1)
            self._others = {group: by for group, by in known.items() if by != self._own}

    def _drawn(self) -> int:
        context, windows = self._context, self._windows
        if not context.clocked:
            return 0
        return windows.stagger.shift(windows.size, context.clock.now(), context.random())

    def _staggered_by(self, by: int) -> TumblingWindows:
        windows = self._staggered.get(by)
        if windows is None:
            windows = self._staggered[by] = self._windows.shifted(by)
        return windows

    def _decoded(self, data: bytes) -> tuple[int, int, int]:
        try:
            by, start, stop = cast("tuple[int, int, int]", PLAIN.decode(data))
        except (CodecError, TypeError, ValueError) as exc:
            raise RestoreError(
                f"step {self._context.name!r} cannot read the stagger of its windows: {exc}"
            ) from exc
        return by, start, stop


def stored_staggers(staggers: Staggers | None) -> Mapping[str, tuple[bytes, ...]]:
    """Return the staggers of a step as operator state; empty for a step without."""
    return {} if staggers is None else staggers.stored()


def staggers_of(windows: WindowAssigner[object], context: OperatorContext) -> Staggers | None:
    """Return the staggers of a step with ``windows``; None if they have none."""
    if type(windows) is TumblingWindows and windows.stagger is not WindowStagger.ALIGNED:
        return Staggers(windows, context)
    return None
