"""The queue of wanted checkpoints, and the decision which one begins next.

Theory. A checkpoint is wanted by a request or by the clock (*scheduled*). One that cannot begin at once is queued, in
this order: savepoints and the final checkpoint before periodic ones, requested ones before scheduled ones, then by
arrival.

- No checkpoint begins before the tasks run.
- A savepoint or final checkpoint waits for nothing else.
- A periodic one waits while ``max_concurrent`` checkpoints are pending, or while more than that are being removed.
- A scheduled periodic one within ``min_pause`` after the end of the last checkpoint is dropped, not queued:
  ``DuringPause`` has the time at which to want it again. Requested ones ignore the pause.
- When the queue is full, the last one in its order is dropped.

After Flink's ``CheckpointRequestDecider``. Times are in ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from aflow.model.elements import CheckpointKind
from aflow.model.time import MIN_TIMESTAMP, Timestamp


@dataclass(frozen=True, slots=True)
class WantedCheckpoint:
    """A checkpoint that has not begun."""

    kind: CheckpointKind
    request: int | None = None
    """The number of the request; None for a scheduled checkpoint."""

    @property
    def scheduled(self) -> bool:
        """True if the clock wants it."""
        return self.request is None

    @property
    def waits(self) -> bool:
        """True if it waits for other checkpoints to end."""
        return self.kind is CheckpointKind.PERIODIC


@dataclass(frozen=True, slots=True)
class DuringPause:
    """A scheduled checkpoint was dropped; it may be wanted again at ``until``."""

    dropped: WantedCheckpoint
    until: Timestamp


@dataclass(frozen=True, slots=True)
class Load:
    """State of the job at a decision."""

    running: bool
    """The tasks run."""
    pending: int = 0
    """Pending checkpoints of any kind."""
    removals: int = 0
    """Checkpoints that are being removed from storage."""


class RequestDecider:
    """Queues at most ``max_queued`` wanted checkpoints, and chooses the next one."""

    __slots__ = ("_max_concurrent", "_max_queued", "_min_pause", "_pause_until", "_queue")

    def __init__(self, max_concurrent: int, min_pause: int, *, max_queued: int = 1000) -> None:
        self._max_concurrent = max_concurrent
        self._min_pause = min_pause
        self._max_queued = max_queued
        #: In the order in which they are to begin.
        self._queue: list[WantedCheckpoint] = []
        #: No scheduled checkpoint begins before this time.
        self._pause_until: Timestamp = MIN_TIMESTAMP

    @property
    def queued(self) -> tuple[WantedCheckpoint, ...]:
        """Queued checkpoints, the next one first."""
        return tuple(self._queue)

    def add(self, wanted: WantedCheckpoint) -> WantedCheckpoint | None:
        """Queue ``wanted``. Return the one that is dropped if the queue is full; it may be ``wanted`` itself."""
        self._queue.append(wanted)
        self._queue.sort(key=_rank)  # Stable: equals keep their order of arrival.
        return self._queue.pop() if len(self._queue) > self._max_queued else None

    def choose(self, now: Timestamp, load: Load) -> WantedCheckpoint | DuringPause | None:
        """Remove and return a checkpoint that may begin now. Call again until it returns None."""
        if not self._queue or not load.running:
            return None
        first = self._queue[0]
        if first.waits and self._full(load):
            return None
        del self._queue[0]
        if first.waits and first.scheduled and now < self._pause_until:
            return DuringPause(first, self._pause_until)
        return first

    def ended(self, now: Timestamp) -> None:
        """Begin the pause: a checkpoint has completed or aborted."""
        self._pause_until = now + self._min_pause

    def drop_scheduled(self) -> None:
        """Drop the scheduled checkpoints."""
        self._queue = [wanted for wanted in self._queue if not wanted.scheduled]

    def clear(self) -> tuple[WantedCheckpoint, ...]:
        """Drop all, and return them, the next one first."""
        queue, self._queue = self._queue, []
        return tuple(queue)

    def _full(self, load: Load) -> bool:
        return load.pending >= self._max_concurrent or load.removals > self._max_concurrent


def _rank(wanted: WantedCheckpoint) -> tuple[bool, bool]:
    return wanted.waits, wanted.scheduled
