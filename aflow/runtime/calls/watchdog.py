"""Finds what blocks the event loop, and says so while it does.

A heartbeat on the loop, twice within the limit, and a thread that looks when the beat does not come: the theory is in
``overdue``. The thread reads the stack of the loop's thread and writes to the log. It touches nothing else: no state of
a task, no function of the user's. Nothing is done for a record, so records cost what they cost without it; see
docs/decisions/017.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from aflow.runtime.calls.overdue import BlockedReport, Heartbeat, Overdue, StackSample, verdict
from aflow.runtime.calls.reports import Reports
from aflow.runtime.calls.stacks import depth_of, glance

#: Beats within the limit.
_BEATS: Final = 2

#: Seconds that the loop waits for the end of the thread, which may be blocked in a log handler of the user.
_JOIN: Final = 0.2


@contextmanager
def watching(limit: timedelta | None, reports: Reports, steps: Collection[str]) -> Generator[None]:
    """Watch the running loop while the block is open, unless ``limit`` is None or the loop's time is not real.

    ``steps`` are those of the job: what those of other jobs do, these report themselves.
    """
    loop = asyncio.get_running_loop()
    if limit is None or not _is_real(loop):
        yield
        return
    watchdog = Watchdog(loop, limit.total_seconds(), reports, steps)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()


class Watchdog:
    """Watches one loop for one job. ``start`` and ``stop`` belong to the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit: float,
        reports: Reports,
        steps: Collection[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``limit`` in seconds; ``clock`` is steady, and the machine's: processing time does not matter here."""
        self._loop = loop
        self._limit = limit
        self._reports = reports
        self._steps = frozenset(steps)
        self._clock = clock
        #: A thread that wants the interpreter's lock gets it after this interval, if no other thread wants it.
        self._slack = limit / 2 + 4 * sys.getswitchinterval()
        self._handle: asyncio.Handle | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aflow watchdog", daemon=True)
        #: Written by the loop, read by the thread.
        self._beat: Heartbeat | None = None
        #: Written by the thread, read by the loop. Each is replaced as a whole, so neither can be half-written.
        self._finding: BlockedReport | None = None

    def start(self) -> None:
        """Begin to beat, and to look."""
        self._handle = self._loop.call_soon(self._on_beat)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. What blocks until now is reported."""
        if self._handle is not None:
            self._handle.cancel()
        self._judge()
        self._stopped.set()
        self._thread.join(_JOIN)

    # ----------------------------------------------------------------------------------------- on the loop

    def _on_beat(self) -> None:
        self._judge()
        interval = self._limit / _BEATS
        self._beat = Heartbeat(
            number=0 if self._beat is None else self._beat.number + 1,
            due=self._clock() + interval,
            cpu=time.thread_time(),
            thread=threading.get_ident(),
            depth=depth_of(sys._getframe(1)),  # pyright: ignore[reportPrivateUsage] — documented
        )
        self._handle = self._loop.call_later(interval, self._on_beat)

    def _judge(self) -> None:
        """Report what kept this beat from coming in time."""
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
        if event is not None and self._is_ours(event.step):
            self._reports.loop_was_blocked(event)

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
                self._look(beat, overdue, now)
            wait = self._limit / 2 if overdue.decided else max(0.0, overdue.finding.next - now)

    def _look(self, beat: Heartbeat, overdue: Overdue, now: float) -> None:
        seen = self._glance(beat)
        if self._beat is not beat:
            return  # it came while we looked, and what we saw was something else
        blocked = overdue.look(now, seen)
        self._finding = overdue.finding
        if blocked and seen.where is not None and self._is_ours(seen.step):
            self._reports.blocking(seen.step, seen.where, now - overdue.finding.since)

    def _glance(self, beat: Heartbeat) -> StackSample:
        frame = sys._current_frames().get(beat.thread)  # pyright: ignore[reportPrivateUsage] — documented
        if frame is None or not self._loop.is_running():
            return StackSample(None, excused=True)
        return glance(frame, beat.depth)

    def _is_ours(self, step: str | None) -> bool:
        return step is None or step in self._steps


def _is_real(loop: asyncio.AbstractEventLoop) -> bool:
    """False for a loop that makes its own time: its beats do not say how long anything takes."""
    mine = type(loop).time
    return not isinstance(loop, asyncio.BaseEventLoop) or mine is asyncio.BaseEventLoop.time
