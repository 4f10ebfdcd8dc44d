"""Reports about functions that block the event loop, and about calls that were abandoned.

``Reports`` passes each report to the log, to ``on_event`` of the host, and to the counters of ``job.metrics()``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from aflow.model.record_trace import RecordTracer
from aflow.model.time import Timestamp
from aflow.runtime import log_events

#: The cause of a ``LoopBlocked`` without code.
STARVED: Final = "the process did not get a processor, since other programs used the machine"

#: The number of blockages that are kept for the host.
_KEPT: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLocation:
    """A place in the code of a user."""

    function: str
    """Its qualified name, with the module."""
    file: str
    line: int
    code: str = ""
    """The text of that line, if its file can be read."""
    calls: str = ""
    """The library function that was called there, if it is written in Python; the text of the line shows others."""

    def __str__(self) -> str:
        code = f": {self.code}" if self.code else ""
        calls = f" (in {self.calls})" if self.calls else ""
        return f"{self.function} ({self.file}:{self.line}{code}){calls}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked:
    """A function blocked the event loop, and with it other calls, web servers and timers.

    Reported when it is over. While it lasts, only the log shows it.
    """

    seconds: float
    """The shortest possible duration."""
    step: str | None = None
    """The step of the function; None for code outside of steps, such as that of the host."""
    where: CodeLocation | None = None
    """The function of the user and its current line; None if it held the interpreter's lock all the time."""
    resource: str | None = None
    """The resource of the step that was being opened or closed; None for other functions."""
    starved: bool = False
    """True if no function is the cause: the thread of the loop was ready to run and got no processor, for at least half
    of the time in which a function seemed to block it. Known on Linux only."""

    def __str__(self) -> str:
        if self.starved:
            return f"the event loop did not run for {self.seconds:.3f} s: {STARVED}"
        return f"{told(self.step, self.where, self.resource)} blocked the event loop for {self.seconds:.3f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAbandoned:
    """A call, or the closing of a resource, did not end in time; the job does not wait for it any more."""

    step: str
    what: str
    """The call or resource, and its fault."""
    seconds: float
    """The grace time."""

    def __str__(self) -> str:
        return f"step {self.step!r}: {self.what}; given up after {self.seconds:.3f} s"


CallReport: TypeAlias = LoopBlocked | CallAbandoned
"""A report about functions or calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockage:
    """A blockage of the event loop that is over."""

    ended_at: Timestamp
    """Epoch ms."""
    report: LoopBlocked


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedMetrics:
    """Blockages of the event loop that lasted longer than ``Options.watchdog``."""

    times: int = 0
    longest_ms: float = 0.0
    latest: tuple[Blockage, ...] = ()
    """The latest 20, oldest first."""


class Reports:
    """The reports of one job. All methods but ``blocking`` belong to the event loop."""

    def __init__(
        self, job: str, tell: Callable[[CallReport], None], now: Callable[[], Timestamp]
    ) -> None:
        """``now`` returns processing time (epoch ms)."""
        self._job = job
        self._tell = tell
        self._now = now
        self._times = 0
        self._longest_ms = 0.0
        self._latest = deque[Blockage](maxlen=_KEPT)
        #: Calls and resources that were given up.
        self.left_behind = 0
        #: Traces calls; None in a job without tracing.
        self.tracer: RecordTracer | None = None

    @property
    def blocked(self) -> BlockedMetrics:
        """The blockages so far."""
        return BlockedMetrics(
            times=self._times, longest_ms=self._longest_ms, latest=tuple(self._latest)
        )

    def give_up(self, step: str, what: str, seconds: float) -> None:
        """Report a call, or the closing of a resource, that was abandoned."""
        self.left_behind += 1
        event = CallAbandoned(step=step, what=what, seconds=seconds)
        log_events.CALL_ABANDONED.log(
            "job %r: %s", self._job, event, job=self._job, step=step, what=what, seconds=seconds
        )
        self._tell(event)

    def blocking(
        self, step: str | None, where: CodeLocation, seconds: float, *, resource: str | None = None
    ) -> None:
        """Log that the loop is blocked now. Called in any thread, so it calls no function of the user."""
        log_events.LOOP_BLOCKING.log(
            "job %r: %s has been blocking the event loop for %.3f s, and everything on it waits; await something, "
            "or move what blocks into a thread (asyncio.to_thread)",
            self._job,
            told(step, where, resource),
            seconds,
            job=self._job,
            step=step,
            resource=resource,
            where=str(where),
            seconds=seconds,
        )

    def loop_was_blocked(self, event: LoopBlocked) -> None:
        """Report a blockage that is over."""
        self._times += 1
        self._longest_ms = max(self._longest_ms, event.seconds * 1000)
        self._latest.append(Blockage(ended_at=self._now(), report=event))
        log_events.LOOP_BLOCKED.log(
            "job %r: %s",
            self._job,
            event,
            job=self._job,
            step=event.step,
            resource=event.resource,
            where="" if event.where is None else str(event.where),
            seconds=event.seconds,
        )
        self._tell(event)


def told(step: str | None, where: CodeLocation | None, resource: str | None = None) -> str:
    """Return the step, its resource and the function, for a message."""
    place = "something that never let go of the interpreter's lock" if where is None else str(where)
    if step is None:
        return place
    return f"step {step!r}, {place if resource is None else f'resource {resource!r}, {place}'}"
