"""Blocking Spark calls off the event loop; cancelling the waiting task interrupts the Spark job.

Spark identifies the work of a call by a *tag*. Tags belong to threads: a call sets and removes its tag in its own
thread, and the work that it starts inherits the tag. Spark Connect tags operations. On a classic session the tag is one
of the SparkContext, because a session's own tags can be interrupted only from the thread that set them.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from anyio import CancelScope, CapacityLimiter, move_on_after, to_thread

from aflow.errors import ConnectorError
from aflow.model.distribution import with_extras
from aflow_connectors.spark.environment import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

#: Time that a cancelled call waits for Spark to release its thread.
PATIENCE: Final = timedelta(seconds=10)

#: Seconds between two interrupts: a call that is between two jobs would start the next one.
_BETWEEN: Final = 0.1

#: Packages that raise Spark's errors: py4j too if the JVM has exited, and pyarrow for errors of Spark's streams.
_SPARK_PACKAGES: Final = ("pyspark", "py4j", "grpc", "pyarrow")
#: Lines without information, and prefixes of lines with information.
_NOTHING: Final = re.compile(
    r"An error occurred while calling|An exception was thrown from|Exception thrown in awaitResult:$"
    r"|at [\w.$/]+\(|\.\.\. \d+ more$|Error from python worker:$"
    r"|(?:[\w$]+\.)+[\w$]+(?:Exception|Error):$"
)
_PREFACE: Final = re.compile(
    r"^(?:Unknown error: |: |Caused by: |\([\w.$]+\) |(?:[\w$]+\.)+[\w$]+(?:Exception|Error): "
    r"|Exception thrown in awaitResult: |Job aborted due to stage failure: "
    r"|Task \d+ in stage [\d.]+ failed \d+ times, most recent failure: "
    r"|Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)]*\): )+"
)
_TRACEBACK: Final = "Traceback (most recent call last):"
#: In the error of a Python function, the line before the frames of its cause.
CAUSED_BY: Final = "caused by"
#: Prefix of aflow's errors, whose messages are self-contained.
_OUR_ERROR: Final = re.compile(r"^aflow(?:\.\w+)+: ")
#: Errors of workers whose Python is missing, or lacks what Spark and aflow need.
_WORKER_PYTHON: Final = re.compile(
    r"No module named '?(?:aflow\w*|msgspec|numpy|pandas|pyarrow|pyspark)\b|Cannot run program"
    r"|PYTHON_VERSION_MISMATCH|PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION"
)
#: In the error of ``executor_function``, which has its own cure.
_CURED: Final = "cannot import aflow"
#: Start of the text after the frames.
_END: Final = re.compile(r"^(?: SQLSTATE|\s+at |JVM stacktrace|Driver stacktrace)", re.MULTILINE)


async def call(
    session: SparkSession,
    work: Callable[[], T],
    doing: str,
    *,
    error: type[ConnectorError] = ConnectorError,
    patience: timedelta = PATIENCE,
) -> T:
    """Return the result of ``work``, which runs in a worker thread and makes calls on ``session``. See ``Calls``."""
    return await Calls(session, error=error, patience=patience).run(work, doing)


class Calls:
    """Related calls on one session, cancelled together; one runs at a time."""

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
        #: Set before Spark is interrupted, so that no call starts after that.
        self._stopped = False
        # Waiting for Spark must not use up the worker threads of the application.
        self._limiter = CapacityLimiter(1)

    async def run(self, work: Callable[[], T], doing: str) -> T:
        """Return the result of ``work``, which runs in a worker thread and makes calls on the session.

        If the waiting task is cancelled, the Spark work of these calls is cancelled too, and the thread is awaited for
        at most ``patience``. A Spark error is raised as the given kind of ``ConnectorError``: one line that names
        ``doing`` and the reason, with Spark's error as the cause and the frames of user code as a note. Other errors
        are raised unchanged. A cancelled ``Calls`` accepts no further call.
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
            # A thread that has not started yet checks ``_stopped`` first.
            if begun.is_set():
                await self._interrupt(done)
            raise

    async def stop(self) -> None:
        """Cancel remaining Spark work of earlier calls, such as an iterator that was not read to its end."""
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
            if not is_spark_error(exc):
                raise
            raise connector_error(exc, doing, self._error) from exc
        finally:
            done.set()

    async def _interrupt(self, done: Event | None) -> None:
        """Interrupt the tagged work until ``done`` is set; once if there is no ``done``."""
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
                if not is_spark_error(exc):
                    raise
            if done is None or done.wait(_BETWEEN) or monotonic() > deadline:
                return


def is_spark_error(exc: Exception) -> bool:
    """Return True if an error was raised by Spark or by the connection to it."""
    return isinstance(exc, (ConnectionError, EOFError)) or any(
        kind.__module__.partition(".")[0] in _SPARK_PACKAGES for kind in type(exc).__mro__
    )


def connector_error(
    exc: Exception, doing: str, error: type[ConnectorError] = ConnectorError
) -> ConnectorError:
    """Return a Spark error as an ``error``: one line that names ``doing``, with the frames of user code as a note."""
    summary = error_summary(exc)
    made = error(f"{doing} failed: {summary}{_cure(summary)}")
    if frames := user_frames(exc):
        made.add_note(frames)
    return made


def _cure(summary: str) -> str:
    """Return the end of a message that names the cure, for a worker without a usable Python; empty for others."""
    if _CURED in summary or not _WORKER_PYTHON.search(summary):
        return ""
    return (
        f"; the Python of Spark's workers, PYSPARK_PYTHON, needs the version of the driver "
        f"({sys.version_info.major}.{sys.version_info.minor}) and {with_extras('spark')}"
    )


def error_summary(exc: BaseException) -> str:
    """Return the line of a Spark error that names the problem; for a Python function, its exception."""
    text = str(exc).partition(f"\n{CAUSED_BY}\n")[0]
    if _TRACEBACK in text:
        return _raised(text.rpartition(_TRACEBACK)[2]) or first_line(exc)
    for line in text.splitlines():
        said = _PREFACE.sub("", line.strip())
        if said and not _NOTHING.match(said):
            return said
    return first_line(exc)


def _raised(traceback: str) -> str:
    """Return ``ValueError: …`` from the lines after the header of a traceback."""
    frames = [line for line in traceback.splitlines() if line.strip()]
    said = next((line.strip() for line in frames if not line.startswith((" ", "\t"))), "")
    return _OUR_ERROR.sub("", said)


def user_frames(exc: BaseException) -> str:
    """Return the frames of user code in which a Python function failed, as a traceback; empty if unknown."""
    _, found, frames = str(exc).partition(f"\n{CAUSED_BY}\n")
    return f"{CAUSED_BY}\n{_END.split(frames, maxsplit=1)[0].rstrip()}" if found else ""


def is_connect(session: SparkSession) -> bool:
    """Return True for a session of Spark Connect; a classic one has its JVM in reach."""
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
