"""Report the function that blocks the event loop, while it does.

A heartbeat runs on the loop twice within the limit. A thread samples the stack of the loop's thread while a heartbeat
is overdue; ``overdue`` has the theory. The thread reads the stack and writes to the log, and nothing else: no state of
a task, no function of the user. Records cost nothing; see docs/decisions/017.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from aflow.runtime.calls.overdue import BlockedReport, Heartbeat, Overdue, StackSample, verdict
from aflow.runtime.calls.processor_wait import ProcessorWait
from aflow.runtime.calls.reports import Reports
from aflow.runtime.calls.stacks import depth_of, sample

#: Beats within the limit.
_BEATS: Final = 2

#: Seconds that the loop waits for the end of the thread, which may be blocked in a log handler of the user.
_JOIN: Final = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """A job that is told what blocks its loop."""

    reports: Reports
    steps: frozenset[str]

    def concerns(self, step: str | None) -> bool:
        """Return True unless another job has the step: that one reports it."""
        return step is None or step in self.steps


#: The watchdogs by their loop and limit (s). With one for each job, many threads would sample the same blockage.
_watchdogs: Final = dict[tuple[asyncio.AbstractEventLoop, float], "Watchdog"]()


@contextmanager
def watching(limit: timedelta | None, reports: Reports, steps: Collection[str]) -> Generator[None]:
    """Watch the running loop while the block is open, unless ``limit`` is None or the loop's time is not real.

    ``steps`` are those of the job: other jobs report their own. Jobs with the same limit share one watchdog.
    """
    loop = asyncio.get_running_loop()
    if limit is None or not _is_real(loop):
        yield
        return
    which = loop, limit.total_seconds()
    watchdog = _watchdogs.get(which)
    if watchdog is None:
        watchdog = _watchdogs[which] = Watchdog(*which)
    listener = _Listener(reports, frozenset(steps))
    watchdog.add(listener)
    try:
        yield
    finally:
        if not watchdog.remove(listener):
            del _watchdogs[which]


class Watchdog:
    """Watch one loop for its jobs. ``add`` and ``remove`` belong to the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``limit`` in seconds; ``clock`` is a steady clock of the machine (s), not processing time."""
        self._loop = loop
        self._limit = limit
        #: Replaced as a whole, since the thread reads it.
        self._listeners: tuple[_Listener, ...] = ()
        self._clock = clock
        #: A thread that wants the interpreter's lock gets it after this interval, if no other thread wants it.
        self._slack = limit / 2 + 4 * sys.getswitchinterval()
        self._handle: asyncio.Handle | None = None
        #: Of the loop's thread.
        self._processor_wait = ProcessorWait()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aflow watchdog", daemon=True)
        #: Number of the next heartbeat.
        self._number = 0
        #: Written by the loop, read by the thread.
        self._beat: Heartbeat | None = None
        #: Written by the thread, read by the loop. This and ``_beat`` are replaced as a whole, never modified.
        self._finding: BlockedReport | None = None

    def add(self, listener: _Listener) -> None:
        """Report to ``listener``, too, what blocks the loop from now on. The first one starts the thread."""
        self._judge(self._listeners)
        # The time before the job is none of its concern.
        self._beat = None
        if self._handle is not None:
            self._handle.cancel()
        self._listeners = (*self._listeners, listener)
        self._handle = self._loop.call_soon(self._on_beat)
        if len(self._listeners) == 1:
            self._thread.start()

    def remove(self, listener: _Listener) -> bool:
        """Report to ``listener`` a blockage that lasts until now, and nothing later; return False if it was the last.

        Then the thread has stopped.
        """
        self._judge([listener])
        self._listeners = tuple(one for one in self._listeners if one is not listener)
        if self._listeners:
            return True
        if self._handle is not None:
            self._handle.cancel()
        self._stopped.set()
        self._thread.join(_JOIN)
        self._processor_wait.close()
        return False

    # ----------------------------------------------------------------------------------------- on the loop

    def _on_beat(self) -> None:
        self._judge(self._listeners)
        interval = self._limit / _BEATS
        self._beat = Heartbeat(
            number=self._number,
            due=self._clock() + interval,
            cpu=time.thread_time(),
            thread=threading.get_ident(),
            depth=depth_of(sys._getframe(1)),  # pyright: ignore[reportPrivateUsage] — documented
            waited=self._processor_wait.seconds(),
        )
        self._number += 1
        self._handle = self._loop.call_later(interval, self._on_beat)

    def _judge(self, listeners: Iterable[_Listener]) -> None:
        """Report the blockage that delayed this heartbeat."""
        if self._beat is None:
            return
        event = verdict(
            self._beat,
            self._finding,
            self._clock(),
            time.thread_time(),
            limit=self._limit,
            slack=self._slack,
        )
        if event is not None:
            for one in listeners:
                if one.concerns(event.step):
                    one.reports.loop_was_blocked(event)

    # --------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        overdue: Overdue | None = None
        wait = self._limit / 2
        while not self._stopped.wait(wait) and not self._loop.is_closed():
            beat = self._beat
            if beat is None:
                continue
            if overdue is None or overdue.finding.number != beat.number:
                overdue = Overdue(beat, self._limit, self._slack)
            now = self._clock()
            if now >= overdue.finding.next and not overdue.decided:
                self._take_sample(beat, overdue, now)
            wait = self._limit / 2 if overdue.decided else max(0.0, overdue.finding.next - now)

    def _take_sample(self, beat: Heartbeat, overdue: Overdue, now: float) -> None:
        taken = self._stack_sample(beat)
        if self._beat is not beat:
            return  # the heartbeat ran during the sample, which may show a later callback
        blocked = overdue.add(now, taken)
        self._finding = overdue.finding
        if not blocked or taken.where is None:
            return
        seconds = now - overdue.finding.since
        for one in self._listeners:
            if one.concerns(taken.step):
                one.reports.blocking(taken.step, taken.where, seconds, resource=taken.resource)

    def _stack_sample(self, beat: Heartbeat) -> StackSample:
        frame = sys._current_frames().get(beat.thread)  # pyright: ignore[reportPrivateUsage] — documented
        if frame is None or not self._loop.is_running():
            return StackSample(None, excused=True)
        return replace(sample(frame, beat.depth), waited=self._processor_wait.seconds())


def _is_real(loop: asyncio.AbstractEventLoop) -> bool:
    """Return False for a loop with virtual time, whose heartbeats measure nothing."""
    mine = type(loop).time
    return not isinstance(loop, asyncio.BaseEventLoop) or mine is asyncio.BaseEventLoop.time
