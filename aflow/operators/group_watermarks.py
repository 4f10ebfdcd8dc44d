"""Watermarks of key groups that are ahead of their new subtask after a restore.

Subtasks may have different watermarks when a checkpoint is taken: a barrier overtakes records, or an input is idle. A
restored subtask starts with the smallest watermark of all former ones, since records that the others have processed may
still be in flight. A key group of a former subtask with a greater watermark keeps that one until the new subtask
reaches it: its windows have fired, and a record that was late for it is still late.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, cast

from aflow.model.codecs import PLAIN
from aflow.model.key_groups import KeyGroupRange, key_group
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.base import OperatorContext
from aflow.state.snapshot import OperatorSnapshot

#: Operator state: watermarks and their key groups, as [watermark, first, end (exclusive)].
_WATERMARK: Final = "@watermark"


class GroupWatermarks:
    """Watermarks by key group, of those groups that are ahead of the subtask; immutable."""

    __slots__ = ("_ahead", "_group_count")

    def __init__(self, group_count: int, ahead: Mapping[int, Timestamp]) -> None:
        self._group_count = group_count
        #: Each watermark is greater than that of the subtask.
        self._ahead = ahead

    def __bool__(self) -> bool:
        """Return True if a group is ahead."""
        return bool(self._ahead)

    def of(self, key: Hashable, watermark: Timestamp) -> Timestamp:
        """Return the watermark for ``key`` in a subtask whose own one is ``watermark``."""
        if not self._ahead:
            return watermark
        return self._ahead.get(key_group(key, self._group_count), watermark)

    def behind(
        self, pairs: Iterator[tuple[Hashable, Any]], watermark: Timestamp, last: Timestamp
    ) -> Iterator[tuple[Hashable, Any]]:
        """Yield the pairs whose keys have not reached ``last`` in a subtask whose watermark was ``watermark``."""
        return ((key, held) for key, held in pairs if self.of(key, watermark) < last)

    def after(self, watermark: Timestamp) -> GroupWatermarks:
        """Return the groups that are still ahead once the subtask has reached ``watermark``."""
        if not self._ahead:
            return self
        ahead = {group: at for group, at in self._ahead.items() if at > watermark}
        return GroupWatermarks(self._group_count, ahead)

    def stored(
        self, watermark: Timestamp, groups: KeyGroupRange, *, outlived: bool = False
    ) -> Mapping[str, tuple[bytes, ...]]:
        """Return operator state with ``watermark`` for ``groups``, and the greater one of each group that is ahead.

        The end of time is omitted unless state has ``outlived`` it: it is emitted at the end of the input, when all
        windows have fired. So new input is not late in a job that continues later.
        """
        entries = [(watermark, groups.start, groups.stop)]
        entries += [(at, group, group + 1) for group, at in self._ahead.items()]
        kept = [list(entry) for entry in entries if outlived or entry[0] != MAX_TIMESTAMP]
        return {_WATERMARK: tuple(map(PLAIN.encode, kept))} if kept else {}


def no_group_ahead(context: OperatorContext) -> GroupWatermarks:
    """Return the group watermarks of a subtask that was not restored."""
    return GroupWatermarks(context.key_group_count, {})


def restored_watermarks(
    snapshot: OperatorSnapshot, before: Timestamp, context: OperatorContext
) -> tuple[Timestamp, GroupWatermarks]:
    """Return the smallest watermark of the former subtasks, and those of the key groups that are ahead of it.

    The watermark is ``before`` if the snapshot has none. Raises ``CodecError`` for bytes that are no watermark.
    """
    former = _former(snapshot)
    watermark = min((at for at, _, _ in former), default=before)
    ahead = {
        group: at
        for at, start, stop in sorted(former)  # the greater one of two watermarks of a group counts
        if at > watermark
        for group in range(start, stop)
        if group in context.key_groups
    }
    return watermark, GroupWatermarks(context.key_group_count, ahead)


def stored_watermark(snapshot: OperatorSnapshot) -> Timestamp | None:
    """Return the smallest watermark of the former subtasks; None if none is stored. Raises ``CodecError``."""
    return min((at for at, _, _ in _former(snapshot)), default=None)


def _former(snapshot: OperatorSnapshot) -> list[tuple[int, int, int]]:
    stored = [PLAIN.decode(data) for data in snapshot.operator.get(_WATERMARK, ())]
    # An older snapshot has a watermark without key groups.
    return [
        (one, 0, 0)
        if isinstance(one, int)
        else cast("tuple[int, int, int]", tuple(cast("list[int]", one)))
        for one in stored
    ]
