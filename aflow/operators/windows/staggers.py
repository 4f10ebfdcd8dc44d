"""Staggers of one window step in one subtask: the shift of the windows of each key.

A subtask draws its stagger when it receives its first record, and stores it with the key groups that it owns. After a
restore each key keeps its stagger, whatever the parallelism. So an open window keeps its bounds. A
subtask that owns key groups of several former subtasks has several staggers.

In a backfill windows are not shifted: there is no clock, and no load to spread. A live job that continues from the
state of a backfill does not shift them either.
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
    """Shifts ``windows`` by the stagger of each key of a subtask."""

    def __init__(self, windows: TumblingWindows, context: OperatorContext) -> None:
        self._windows = windows
        self._context = context
        #: The stagger of the key groups that are not in ``_others``; None until the first record or a restore.
        self._own: int | None = None
        #: The staggers of restored key groups that differ from ``_own``.
        self._others: dict[int, int] = {}
        #: The shifted windows by stagger.
        self._by_stagger: dict[int, TumblingWindows] = {}

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
            self._own = self._draw()
        return self._shifted_by(self._own)

    def of(self, key: Hashable) -> TumblingWindows:
        """Return the windows of ``key``."""
        if not self._others:
            return self.own()
        stagger = self._others.get(key_group(key, self._context.key_group_count))
        return self.own() if stagger is None else self._shifted_by(stagger)

    def stored(self) -> Mapping[str, tuple[bytes, ...]]:
        """Return the staggers as operator state."""
        if self._own is None:
            return {}
        groups = self._context.key_groups
        entries = [[self._own, groups.start, groups.stop]]
        entries += [[stagger, group, group + 1] for group, stagger in self._others.items()]
        return {_STAGGERS: tuple(map(PLAIN.encode, entries))}

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Continue with the staggers of the key groups of this subtask. Raises ``RestoreError``."""
        entries = [self._decoded(data) for data in snapshot.operator.get(_STAGGERS, ())]
        # An entry of one key group overrides that of the whole range: sort the longest range first.
        entries.sort(key=lambda entry: entry[1] - entry[2])
        known = {
            group: stagger
            for stagger, start, stop in entries
            for group in range(start, stop)
            if group in self._context.key_groups
        }
        if known:
            ((self._own, _),) = Counter(known.values()).most_common(1)
            self._others = {
                group: stagger for group, stagger in known.items() if stagger != self._own
            }

    def _draw(self) -> int:
        context, windows = self._context, self._windows
        if not context.clocked:
            return 0
        return windows.stagger.shift(windows.size, context.clock.now(), context.random())

    def _shifted_by(self, stagger: int) -> TumblingWindows:
        windows = self._by_stagger.get(stagger)
        if windows is None:
            windows = self._by_stagger[stagger] = self._windows.shifted(stagger)
        return windows

    def _decoded(self, data: bytes) -> tuple[int, int, int]:
        try:
            stagger, start, stop = cast("tuple[int, int, int]", PLAIN.decode(data))
        except (CodecError, TypeError, ValueError) as exc:
            raise RestoreError(
                f"step {self._context.name!r} cannot read the stagger of its windows: {exc}"
            ) from exc
        return stagger, start, stop


def stored_staggers(staggers: Staggers | None) -> Mapping[str, tuple[bytes, ...]]:
    """Return the staggers of a step as operator state; empty for a step without."""
    return {} if staggers is None else staggers.stored()


def staggers_of(windows: WindowAssigner[object], context: OperatorContext) -> Staggers | None:
    """Return the staggers of a step with ``windows``; None if they have none."""
    if type(windows) is TumblingWindows and windows.stagger is not WindowStagger.ALIGNED:
        return Staggers(windows, context)
    return None
