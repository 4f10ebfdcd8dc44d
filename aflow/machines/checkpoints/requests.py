"""Which of the checkpoints that are wanted begins next.

Theory. A checkpoint is wanted because somebody asked for it or because the clock says so (*scheduled*). What cannot
begin at once waits in a queue, in this order: savepoints and the final checkpoint before periodic ones, what was asked
for before what is scheduled, then as they came.

- Nothing begins while the tasks do not run yet.
- A savepoint or final checkpoint is held back by nothing else.
- A periodic one waits while as many checkpoints as may be are under way, or more than that are being removed.
- A scheduled periodic one that would begin too soon after the end of the last checkpoint is dropped, not queued:
  ``DuringPause`` says when to want it again. One that was asked for is not bound by the pause.
- When the queue is full, the last in its order has to go.

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
    """The number of the request; None: nobody asked, it is scheduled."""

    @property
    def scheduled(self) -> bool:
        """True if it is the clock that wants it."""
        return self.request is None

    @property
    def waits(self) -> bool:
        """True if it begins only when there is room for it."""
        return self.kind is CheckpointKind.PERIODIC


@dataclass(frozen=True, slots=True)
class DuringPause:
    """A scheduled checkpoint was dropped; from ``until`` on it may be wanted again."""

    dropped: WantedCheckpoint
    until: Timestamp


@dataclass(frozen=True, slots=True)
class Load:
    """What is going on while it is decided."""

    running: bool
    """The tasks run."""
    pending: int = 0
    """Checkpoints under way, of any kind."""
    removals: int = 0
    """Checkpoints that are being removed from storage."""


class RequestDecider:
    """The queue of what is wanted, at most ``max_queued`` long, and the decision what leaves it."""

    __slots__ = ("_max_concurrent", "_max_queued", "_min_pause", "_pause_until", "_queue")

    def __init__(self, max_concurrent: int, min_pause: int, *, max_queued: int = 1000) -> None:
        self._max_concurrent = max_concurrent
        self._min_pause = min_pause
        self._max_queued = max_queued
        #: In the order in which they are to begin.
        self._queue: list[WantedCheckpoint] = []
        #: No scheduled one begins before.
        self._pause_until: Timestamp = MIN_TIMESTAMP

    @property
    def queued(self) -> tuple[WantedCheckpoint, ...]:
        """What waits, next one first."""
        return tuple(self._queue)

    def add(self, wanted: WantedCheckpoint) -> WantedCheckpoint | None:
        """Queue it; what is returned had to go because the queue is full (it may be ``wanted`` itself)."""
        self._queue.append(wanted)
        self._queue.sort(key=_rank)  # Stable: equals stay as they came.
        return self._queue.pop() if len(self._queue) > self._max_queued else None

    def choose(self, now: Timestamp, load: Load) -> WantedCheckpoint | DuringPause | None:
        """Take what may begin now out of the queue; to be asked again until it is None."""
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
        """A checkpoint has ended, however it did: the pause begins."""
        self._pause_until = now + self._min_pause

    def drop_scheduled(self) -> None:
        """Forget what nobody asked for."""
        self._queue = [wanted for wanted in self._queue if not wanted.scheduled]

    def clear(self) -> tuple[WantedCheckpoint, ...]:
        """Forget all; it is returned, next one first."""
        queue, self._queue = self._queue, []
        return tuple(queue)

    def _full(self, load: Load) -> bool:
        return load.pending >= self._max_concurrent or load.removals > self._max_concurrent


def _rank(wanted: WantedCheckpoint) -> tuple[bool, bool]:
    return wanted.waits, wanted.scheduled
