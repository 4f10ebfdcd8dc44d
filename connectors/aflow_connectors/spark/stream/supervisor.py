"""A running stream on the driver: Spark's query, and epochs without new data.

Theory. Spark calls ``foreachBatch`` in a thread of its own, for one batch after the other, and only if there are new
rows. The watermark of an epoch follows from the records of earlier epochs, so windows and timers that are due after a
batch would wait for the next one. If Spark waits for data and time can advance, the thread of this class runs an epoch
without rows, as Spark itself runs a batch without data for its own stateful operators. One lock serialises epochs.

The stream fails or is stopped between two epochs, or in an epoch that is not committed. Both are as a crash: the next
query over the same state folder continues from the last committed epoch. The folders are released when no epoch runs
any more, since another query may own them from then on. If an epoch cannot be ended, they are kept until it ends.
"""

from __future__ import annotations

import atexit
import json
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from aflow.backfill.stream_progress import StreamProgress
from aflow.errors import CheckpointError, ConnectorError, described
from aflow_connectors.spark.calls import connector_error, is_spark_error
from aflow_connectors.spark.stream.batch_report import batch_report
from aflow_connectors.spark.stream.epochs import Epochs
from aflow_connectors.spark.stream.savepoint_request import StreamSavepointRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log: Final = logging.getLogger("aflow.spark")

#: Bounds of the interval (s) at which the state of Spark's query is read.
_SHORTEST_POLL: Final = 0.02
_LONGEST_POLL: Final = 0.25
#: Interval (s) at which the jobs of an epoch are cancelled until it ends: between two jobs there is nothing to cancel.
_BETWEEN_CANCELS: Final = 0.1
#: Time (s) that ending at once takes at most; a function that does not return is left behind then.
_STOP_TIMEOUT: Final = 60.0


class Supervisor:
    """Spark's query and the epochs of one stream. Methods block."""

    def __init__(self, epochs: Epochs, frame: DataFrame, every: timedelta) -> None:
        self._epochs = epochs
        self._frame = frame
        self._session = frame.sparkSession
        self._every = every.total_seconds()
        self._tag = f"aflow-{uuid4().hex}"
        #: Held while an epoch runs.
        self._lock = Lock()
        #: Set when no further epoch is to begin.
        self._is_stopped = False
        #: Set when the epoch in progress is to be cancelled.
        self._is_cancelled = False
        #: Set if an epoch could not be ended: it releases the folders itself.
        self._is_left_behind = False
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._thread: Thread | None = None
        #: Connection by which Spark calls this program; its thread would wait for calls as long as the session lives.
        self._connection: Any = None
        #: Time of the end of the last epoch, of the clock ``monotonic``.
        self._last_epoch = 0.0
        #: The last batch whose report was read: at first that of the query before.
        self._reported = epochs.batch

    def start(self, on_end: Callable[[], None]) -> None:
        """Start Spark's query; ``on_end`` is called in another thread when the stream has ended."""
        if self._epochs.is_finished:
            self._epochs.end()
            on_end()
            return
        try:
            milliseconds = round(self._every * 1000)
            writer = self._frame.writeStream.foreachBatch(self._on_batch).outputMode("append")
            writer = writer.option("checkpointLocation", self._epochs.checkpoint)
            writer = writer.queryName(f"{self._epochs.flow} {self._tag}")
            self._query = writer.trigger(processingTime=f"{milliseconds} milliseconds").start()
        except BaseException as exc:
            self._epochs.end()
            if isinstance(exc, Exception) and is_spark_error(exc):
                raise connector_error(exc, f"starting the stream of {self._name}") from exc
            raise
        self._last_epoch = monotonic()
        # A daemon: a program that fails after the start must not wait for the stream for ever.
        self._thread = Thread(
            target=self._watch, args=(self._query, on_end), name=self._name, daemon=True
        )
        self._thread.start()
        atexit.register(self._end_at_exit)

    def end(self, *, at_once: bool) -> None:
        """End the query: after the epoch in progress, or ``at_once``: then that epoch is not committed.

        Another call may end ``at_once`` meanwhile. If the epoch does not end within a minute then, because a function
        does not return, the method returns and a warning is logged.
        """
        self._is_stopped = True
        thread = self._thread
        if thread is None:
            self._epochs.end()
            return
        if at_once:
            self._cancel()
        deadline = monotonic() + _STOP_TIMEOUT
        while thread.is_alive():
            thread.join(_BETWEEN_CANCELS)
            if at_once and thread.is_alive():
                self._cancel_jobs()
                if monotonic() > deadline:
                    _log.warning(
                        "%s: the epoch in progress has not ended within %d s of its cancellation; the state folder "
                        "stays in use until it ends",
                        self._name,
                        _STOP_TIMEOUT,
                    )
                    return

    def begin_savepoint(self, request: StreamSavepointRequest) -> None:
        """Ask the stream for a savepoint, after the epoch in progress.

        Raises as ``Epochs.begin_savepoint``, and ``CheckpointError`` if the stream has ended.
        """
        with self._lock:
            if not self._may_run():
                raise CheckpointError(
                    f"the stream of {self._name} has ended, so it writes no savepoint to {request.path}: start another "
                    f"query over the same state folder"
                )
            self._epochs.begin_savepoint(request)

    def result(self) -> StreamProgress:
        """Return the progress. Raises the error with which the stream has failed."""
        if self._failure is not None:
            raise self._failure
        return self.progress()

    @property
    def has_failed(self) -> bool:
        """True if an epoch or Spark's query has failed."""
        return self._failure is not None

    def progress(self) -> StreamProgress:
        """Return the progress up to the last committed epoch; in any thread."""
        return self._epochs.progress()

    @property
    def _name(self) -> str:
        return f"flow {self._epochs.flow!r}"

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        """Run the epoch of a batch, in a thread of Spark's."""
        self._connection = _connection_of_thread(self._session)
        with self._lock:
            # Raised and not returned: Spark must not count the batch as done.
            if not self._may_run():
                raise RuntimeError(f"the stream of {self._name} is being stopped")
            self._run(lambda: self._epochs.run_batch(rows, batch), f"batch {batch}")
        if self._failure is not None:
            # Short: ``wait`` raises the error itself.
            raise RuntimeError(f"the stream of {self._name} has failed: {described(self._failure)}")

    def _advance_time(self, query: StreamingQuery) -> None:
        """Run an epoch without rows if time can advance and Spark waits for data."""
        if self._lock.locked():
            return  # an epoch runs, and Spark need not be asked
        if monotonic() - self._last_epoch < self._every or not self._epochs.can_advance():
            return
        status: dict[str, Any] = dict(query.status)
        # Only after Spark has asked the sources: a batch that it repeats after a crash comes before.
        has_asked = str(status.get("message")).startswith("Waiting")
        if not has_asked or status.get("isDataAvailable") or status.get("isTriggerActive"):
            return
        # No waiting: a batch has begun meanwhile.
        if not self._lock.acquire(blocking=False):
            return
        context = self._session.sparkContext
        context.addJobTag(self._tag)
        try:
            if self._may_run() and self._epochs.can_advance():
                self._run(self._epochs.run_without_rows, "an epoch without new rows")
        finally:
            self._lock.release()
            context.removeJobTag(self._tag)

    def _read_report(self, query: StreamingQuery) -> None:
        """Record Spark's report on the last batch that it has completed, if there is a new one."""
        if self._epochs.batch == self._reported:
            return
        last = query.lastProgress
        if last is not None and last.batchId != self._reported:
            self._epochs.on_batch(batch_report(json.loads(last.json)))
            self._reported = last.batchId

    def _may_run(self) -> bool:
        return not self._is_stopped and self._failure is None and not self._epochs.is_finished

    def _run(self, epoch: Callable[[], None], doing: str) -> None:
        """Run an epoch, under the lock; its failure is that of the stream."""
        try:
            epoch()
        except Exception as exc:
            failure: Exception = exc
            if is_spark_error(exc):
                failure = connector_error(exc, f"{doing} of the stream of {self._name}")
                failure.__cause__ = exc
            if not self._is_cancelled:
                self._failure = failure
            else:
                _log.info("%s was stopped in %s: %s", self._name, doing, described(failure))
                raise RuntimeError(f"the stream of {self._name} was stopped") from None
        finally:
            self._last_epoch = monotonic()
            if self._is_left_behind:
                self._epochs.end()

    def _watch(self, query: StreamingQuery, on_end: Callable[[], None]) -> None:
        """Wait for the end of the stream, and advance time."""
        interval = max(_SHORTEST_POLL, min(_LONGEST_POLL, self._every))
        try:
            while self._may_run():
                if query.awaitTermination(interval):  # type: ignore[arg-type]
                    if self._may_run():
                        self._failure = ConnectorError(
                            f"Spark's query of {self._name} was stopped from outside; the next stream over the same "
                            f"state folder continues"
                        )
                    break
                self._read_report(query)
                self._advance_time(query)
        except Exception as exc:
            if self._may_run():
                self._failure = exc
                if is_spark_error(exc):
                    self._failure = connector_error(exc, f"the stream of {self._name}")
                    self._failure.__cause__ = exc
        finally:
            try:
                self._await_epoch()
                with suppress(Exception):  # a session that has ended tells nothing
                    self._read_report(query)
                self._stop(query)
                self._release()
            finally:
                atexit.unregister(self._end_at_exit)
                with suppress(RuntimeError):  # the event loop is closed
                    on_end()

    def _await_epoch(self) -> None:
        """Wait until the epoch in progress has ended, or is to be cancelled. No other begins."""
        self._is_stopped = True
        while not self._is_cancelled:
            if self._lock.acquire(timeout=_BETWEEN_CANCELS):
                self._lock.release()
                return

    def _stop(self, query: StreamingQuery) -> None:
        """Stop Spark's query. A session that has ended has nothing to stop."""
        try:
            query.stop()
        except Exception as exc:
            level = logging.INFO if is_spark_error(exc) else logging.WARNING
            _log.log(level, "%s: stopping Spark's query: %s", self._name, described(exc))

    def _release(self) -> None:
        """Release the folders, if no epoch runs: Spark may have failed to stop one."""
        if self._lock.acquire(timeout=_STOP_TIMEOUT if self._is_cancelled else _BETWEEN_CANCELS):
            try:
                self._epochs.end()
                _end_thread(self._connection)
            finally:
                self._lock.release()
            return
        self._cancel()
        self._is_left_behind = True
        # It may have ended before it could see that.
        if self._lock.acquire(blocking=False):
            self._epochs.end()
            self._lock.release()

    def _cancel(self) -> None:
        """Let the epoch in progress end without its commit."""
        self._is_cancelled = True
        self._epochs.cancel()

    def _cancel_jobs(self) -> None:
        try:
            self._session.sparkContext.cancelJobsWithTag(self._tag)
            if self._query is not None:
                self._session.sparkContext.cancelJobGroup(str(self._query.runId))
        except Exception as exc:
            if not is_spark_error(exc):
                raise

    def _end_at_exit(self) -> None:
        """End the stream before the interpreter ends, and Spark with it."""
        self.end(at_once=True)


def _connection_of_thread(session: SparkSession) -> Any:
    """Return the connection of py4j by which Spark calls the running function; None for one without such threads."""
    untyped: Any = session.sparkContext
    with suppress(AttributeError):
        return untyped._gateway._gateway_client.get_thread_connection()
    return None


def _end_thread(connection: Any) -> None:
    """End the thread that waits for further calls by ``connection``."""
    # Its ``close`` would wait for the thread, which reads.
    with suppress(AttributeError, OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)
