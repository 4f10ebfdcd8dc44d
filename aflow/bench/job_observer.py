"""The events of a job under load: checkpoints, and code that blocked the event loop."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from aflow.bench.result import BlockedCode, CheckpointFigures
from aflow.runtime.calls.reports import STARVED, LoopBlocked
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome
from aflow.runtime.recovery import JobEvent, JobRestarted


class JobObserver:
    """Collects events from the start of the measured part on, and passes all of them to the host."""

    def __init__(
        self, tell: Callable[[JobEvent], None] | None, on_restart: Callable[[], None]
    ) -> None:
        """``on_restart`` is called between the attempts of the job."""
        self._tell = tell
        self._on_restart = on_restart
        self._checkpoints: list[CheckpointInfo] = []
        self._blocked: dict[tuple[str | None, str], tuple[int, float]] = {}
        self._failed = 0
        #: False: events do not count.
        self.counted = False

    def on_event(self, event: JobEvent) -> None:
        """Handle an event of the job."""
        if isinstance(event, JobRestarted):
            self._on_restart()
        if self.counted:
            match event:
                case CheckpointInfo(outcome=Outcome.COMPLETED):
                    self._checkpoints.append(event)
                case CheckpointInfo(outcome=Outcome.FAILED):
                    self._failed += 1
                case LoopBlocked():
                    self._on_blocked(event)
                case _:
                    pass
        if self._tell is not None:
            self._tell(event)

    def _on_blocked(self, event: LoopBlocked) -> None:
        where = STARVED if event.starved else "" if event.where is None else str(event.where)
        times, longest = self._blocked.get((event.step, where), (0, 0.0))
        self._blocked[event.step, where] = times + 1, max(longest, event.seconds)

    def checkpoints(self) -> CheckpointFigures:
        """Return the figures of the checkpoints so far."""
        durations = [one.duration_ms for one in self._checkpoints if one.duration_ms is not None]
        pauses = [part.sync_ms for one in self._checkpoints for part in one.subtasks]
        return CheckpointFigures(
            completed=len(self._checkpoints),
            failed=self._failed,
            duration_p50_ms=statistics.median(durations) if durations else 0.0,
            duration_max_ms=max(durations, default=0.0),
            pause_max_ms=max(pauses, default=0.0),
            bytes_last=self._checkpoints[-1].bytes if self._checkpoints else 0,
        )

    def blocked(self) -> list[BlockedCode]:
        """Return the code that blocked the event loop, the longest first."""
        found = [
            BlockedCode(step=step, where=where, times=times, longest_ms=longest * 1000)
            for (step, where), (times, longest) in self._blocked.items()
        ]
        return sorted(found, key=lambda one: -one.longest_ms)
