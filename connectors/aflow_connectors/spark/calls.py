"""Spark's calls, which block for as long as a job takes, off the event loop; whoever stops waiting stops the job.

Spark knows by a *tag* what belongs to a call. Tags belong to threads, so a call sets and removes its tag in the thread
that makes it, and what it starts there carries the tag: operations on Spark Connect, jobs on a classic session. There
it is a tag of the SparkContext, because those of a classic session can be interrupted from their own thread only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from anyio import CancelScope, CapacityLimiter, move_on_after, to_thread

from aflow.errors import ConnectorError
from aflow_connectors.spark.environment import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

#: How long a cancelled call waits for Spark to let go.
PATIENCE: Final = timedelta(seconds=10)

#: Seconds between two interruptions: a call that is between two jobs would start the next.
_BETWEEN: Final = 0.1

#: Packages whose errors are Spark's; those of py4j too if Java is gone. pyarrow wraps what a stream of Spark's raises.
_SPARKS: Final = ("pyspark", "py4j", "grpc", "pyarrow")
#: Lines that say nothing, and what stands in front of those that do.
_NOTHING: Final = re.compile(
    r"An error occurred while calling|An exception was thrown from|Exception thrown in awaitResult:$"
    r"|at [\w.$/]+\(|\.\.\. \d+ more$"
)
_PREFACE: Final = re.compile(
    r"^(?:Unknown error: |: |Caused by: |\([\w.$]+\) |(?:[\w$]+\.)+[\w$]+(?:Exception|Error): "
    r"|Exception thrown in awaitResult: |Job aborted due to stage failure: "
    r"|Task \d+ in stage [\d.]+ failed \d+ times, most recent failure: "
    r"|Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)]*\): )+"
)
_TRACEBACK: Final = "Traceback (most recent call last):"
#: The line in a Python function's error below which are the frames of what it came of.
CAUSED_BY: Final = "caused by"
#: Ours say by themselves what they are.
_OUR_ERROR: Final = re.compile(r"^aflow(?:\.\w+)+: ")
#: Where the frames end.
_END: Final = re.compile(r"^(?: SQLSTATE|\s+at |JVM stacktrace|Driver stacktrace)", re.MULTILINE)


async def call(
    session: SparkSession,
    work: Callable[[], T],
    doing: str,
    *,
    error: type[ConnectorError] = ConnectorError,
    patience: timedelta = PATIENCE,
) -> T:
    """The result of ``work``, which runs in a worker thread and makes calls on ``session``. See ``Calls.run``."""
    return await Calls(session, error=error, patience=patience).run(work, doing)


class Calls:
    """Calls on one session that belong together and are stopped together; one at a time."""

    def __init__(
        self,
        session: SparkSession,
        *,
        error: type[ConnectorError] = ConnectorError,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._session = session
        self._error = error
        self._patience = patience.total_seconds()
        self._tag = f"aflow-{uuid4().hex}"
        #: Set before Spark is told to stop, so that no call begins behind that.
        self._stopped = False
        # Waiting for Spark must not use up the threads of the host.
        self._limiter = CapacityLimiter(1)

    async def run(self, work: Callable[[], T], doing: str) -> T:
        """The result of ``work``, which runs in a worker thread and makes calls on the session.

        If the task that waits is cancelled, so is what Spark does for these calls; the thread is waited for, though no
        longer than ``patience``. An error of Spark's comes as the ``ConnectorError`` (or the kind of it) that was
        given, which says in one line that ``doing`` failed and why, with Spark's own as the cause, and the frames of
        users' code as a note; others come as they are. After a call that was cancelled there can be no other.
        """
        begun, done = Event(), Event()
        try:
            return await to_thread.run_sync(
                self._tagged,
                work,
                doing,
                begun,
                done,
                abandon_on_cancel=True,
                limiter=self._limiter,
            )
        except asyncio.CancelledError:
            self._stopped = True
            # A thread that has not begun yet sees that it need not.
            if begun.is_set():
                await self._interrupt(done)
            raise

    async def stop(self) -> None:
        """Cancel what Spark still does for earlier calls, such as an iterator that was not read to its end."""
        self._stopped = True
        await self._interrupt(None)

    def _tagged(self, work: Callable[[], T], doing: str, begun: Event, done: Event) -> T:
        begun.set()
        try:
            if self._stopped:
                raise self._error(f"{doing}: it was cancelled")
            _add_tag(self._session, self._tag)
            try:
                return work()
            finally:
                _remove_tag(self._session, self._tag)
        except Exception as exc:
            if not is_of_spark(exc):
                raise
            error = self._error(f"{doing} failed: {telling_line(exc)}")
            if frames := users_frames(exc):
                error.add_note(frames)
            raise error from exc
        finally:
            done.set()

    async def _interrupt(self, done: Event | None) -> None:
        """Interrupt what carries the tag, until ``done``; once, if there is nothing to wait for."""
        with CancelScope(shield=True), move_on_after(self._patience):
            await to_thread.run_sync(
                self._interrupt_until,
                done,
                monotonic() + self._patience,
                abandon_on_cancel=True,
                limiter=CapacityLimiter(1),
            )

    def _interrupt_until(self, done: Event | None, deadline: float) -> None:
        while done is None or not done.is_set():
            try:
                _interrupt_tag(self._session, self._tag)
            except Exception as exc:
                # A session that has ended has nothing to interrupt.
                if not is_of_spark(exc):
                    raise
            if done is None or done.wait(_BETWEEN) or monotonic() > deadline:
                return


def is_of_spark(exc: Exception) -> bool:
    """Whether an error comes from Spark, or from what connects us with it."""
    return isinstance(exc, (ConnectionError, EOFError)) or any(
        kind.__module__.partition(".")[0] in _SPARKS for kind in type(exc).__mro__
    )


def telling_line(exc: BaseException) -> str:
    """The line of an error of Spark's that says what is wrong; of a Python function's, its own exception."""
    text = str(exc).partition(f"\n{CAUSED_BY}\n")[0]
    if _TRACEBACK in text:
        return _raised(text.rpartition(_TRACEBACK)[2]) or first_line(exc)
    for line in text.splitlines():
        said = _PREFACE.sub("", line.strip())
        if said and not _NOTHING.match(said):
            return said
    return first_line(exc)


def _raised(traceback: str) -> str:
    """``ValueError: …`` from the lines behind the head of a traceback."""
    frames = [line for line in traceback.splitlines() if line.strip()]
    said = next((line.strip() for line in frames if not line.startswith((" ", "\t"))), "")
    return _OUR_ERROR.sub("", said)


def users_frames(exc: BaseException) -> str:
    """Where in users' code it was that a Python function failed, as a traceback shows it; empty if nobody has told."""
    _, found, frames = str(exc).partition(f"\n{CAUSED_BY}\n")
    return f"{CAUSED_BY}\n{_END.split(frames, maxsplit=1)[0].rstrip()}" if found else ""


def is_connect(session: SparkSession) -> bool:
    """Whether a session speaks to a server of Spark Connect; a classic one has the JVM at hand."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def _add_tag(session: SparkSession, tag: str) -> None:
    if is_connect(session):
        session.addTag(tag)
    else:
        session.sparkContext.addJobTag(tag)


def _remove_tag(session: SparkSession, tag: str) -> None:
    if is_connect(session):
        session.removeTag(tag)
    else:
        session.sparkContext.removeJobTag(tag)


def _interrupt_tag(session: SparkSession, tag: str) -> None:
    if is_connect(session):
        session.interruptTag(tag)
    else:
        session.sparkContext.cancelJobsWithTag(tag)
