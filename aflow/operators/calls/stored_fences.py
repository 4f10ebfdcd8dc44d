"""Snapshots of the watermarks between the calls of a step: operator state, one part for each subtask.

Theory. A watermark that waits for calls was received before the barrier, so the source does not send it again before
its next record. The snapshot therefore contains it, with its place among the records:

- With the same parallelism, each subtask puts its own watermarks where they were.
- After a rescale the records of several former subtasks may share a queue. A watermark holds for all of them only if
  each former subtask had received it: the smallest of their latest watermarks follows all restored records. As in the
  valve, idle subtasks do not count unless all are idle, and then the largest of their watermarks counts. If a former
  subtask stored no watermark, it had received none, and none is restored.

The end of time is not stored: it is received again at the end of the input. Idleness and activity are not stored:
they belong to channels, which are new after a restore.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aflow.errors import RestoreError
from aflow.machines.calls.call import Call, calls_of
from aflow.machines.calls.queues import Fence
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.elements import Watermark
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import OperatorContext
from aflow.operators.calls.stored import CALLS, StoredCalls, owned_places
from aflow.operators.calls.stored_results import RESULTS, RestoredResults, StoredResults
from aflow.state.snapshot import OperatorSnapshot

#: The name of the watermarks in the operator state of a snapshot.
FENCES: Final = "@fences"


@dataclass(frozen=True, slots=True)
class StoredFences:
    """The watermarks of one subtask."""

    subtask: int
    parallelism: int
    received: Timestamp | None
    """The latest one that it had received (epoch ms); None once its input had ended."""
    idle: bool
    """True if its input was idle."""
    waiting: Sequence[tuple[int, Timestamp]]
    """The watermarks that it had not emitted (epoch ms), in order, each with the number of stored records before it."""

    @classmethod
    def of(
        cls,
        fences: Sequence[tuple[int, Fence]],
        context: OperatorContext,
        *,
        received: Timestamp,
        idle: bool,
    ) -> StoredFences | None:
        """Return the watermarks of a subtask; None without event time."""
        if received == MIN_TIMESTAMP:
            return None
        waiting = [
            (preceding, fence.timestamp)
            for preceding, fence in fences
            if isinstance(fence, Watermark) and fence.timestamp != MAX_TIMESTAMP
        ]
        latest = None if received == MAX_TIMESTAMP else received
        return cls(context.subtask, context.parallelism, latest, idle, waiting)

    def encoded(self) -> bytes:
        return PLAIN.encode(
            (self.subtask, self.parallelism, self.received, self.idle, list(self.waiting))
        )

    @classmethod
    def decoded(cls, data: bytes) -> StoredFences:
        """Raises ``CodecError``."""
        return cls(*cast("tuple[int, int, int | None, bool, list[Any]]", PLAIN.decode(data)))


@dataclass(frozen=True, slots=True)
class CapturedCalls:
    """The calls of one subtask, as they were at a barrier."""

    stored: StoredCalls
    subtask: int
    calls: Sequence[Call]
    fences: StoredFences | None
    results: StoredResults | None

    def gather(self) -> Iterator[None]:
        return iter(())

    def encoded(self) -> OperatorSnapshot:
        operator: dict[str, tuple[bytes, ...]] = {}
        if parts := self.stored.encoded(self.subtask, self.calls):
            operator[CALLS] = parts
        if self.fences is not None:
            operator[FENCES] = (self.fences.encoded(),)
        if self.results is not None:
            operator[RESULTS] = (self.results.encoded(),)
        return OperatorSnapshot(operator=operator)


def restored_queue(
    snapshot: OperatorSnapshot,
    stored: StoredCalls,
    results: RestoredResults,
    context: OperatorContext,
) -> Iterator[list[Call] | Watermark]:
    """Yield the calls and watermarks that belong to the subtask of ``context``, in order. Raises ``RestoreError``.

    Calls whose results were stored have them.
    """
    parts = _read(snapshot, stored.step)
    own = parts.get(context.subtask)
    if own is None or own.parallelism != context.parallelism:
        for _, _, calls in _owned_calls(snapshot, stored, results, context):
            yield [call for _, call in calls]
        if (common := _common(parts)) is not None:
            yield Watermark(common)
        return
    waiting = deque(own.waiting)
    for subtask, stop, calls in _owned_calls(snapshot, stored, results, context):
        if subtask != context.subtask:
            yield [call for _, call in calls]
            continue
        left = deque(calls)
        while waiting and waiting[0][0] < stop:
            before, timestamp = waiting.popleft()
            yield from _before(left, before)
            yield Watermark(timestamp)
        yield from _before(left, stop)
    for _, timestamp in waiting:
        yield Watermark(timestamp)


def _owned_calls(
    snapshot: OperatorSnapshot,
    stored: StoredCalls,
    results: RestoredResults,
    context: OperatorContext,
) -> Iterator[tuple[int, int, list[tuple[int, Call]]]]:
    """Yield for each stored batch the former subtask, the number of its records so far, and the own calls.

    Each call has its place among the records of the former subtask.
    """
    preceding: dict[int, int] = {}
    for subtask, batch in stored.stored_batches(snapshot):
        start = preceding.get(subtask, 0)
        stop = preceding[subtask] = start + len(batch)
        calls = calls_of(batch, batch.keys)
        own = [(start + at, calls[at]) for at in owned_places(subtask, batch, context)]
        for place, call in own:
            results.give(subtask, place, call)
        yield subtask, stop, own


def _before(calls: deque[tuple[int, Call]], place: int) -> Iterator[list[Call]]:
    """Remove and yield the calls before ``place``, if there are some."""
    some: list[Call] = []
    while calls and calls[0][0] < place:
        some.append(calls.popleft()[1])
    if some:
        yield some


def _read(snapshot: OperatorSnapshot, step: str) -> dict[int, StoredFences]:
    try:
        parts = [StoredFences.decoded(part) for part in snapshot.operator.get(FENCES, ())]
    except (CodecError, TypeError) as exc:
        raise RestoreError(
            f"step {step!r} cannot read the watermarks that waited for its calls: {exc}"
        ) from exc
    return {part.subtask: part for part in parts}


def _common(parts: dict[int, StoredFences]) -> Timestamp | None:
    """Return the watermark that follows the records of all former subtasks, if one of theirs was not emitted."""
    former = list(parts.values())
    if not any(part.waiting for part in former) or len(former) < former[0].parallelism:
        return None
    holding = [part.received for part in former if part.received is not None and not part.idle]
    if holding:
        return min(holding)
    return max((part.received for part in former if part.received is not None), default=None)
