"""A running stream on the driver: Spark's query, and epochs without new data.

Theory. Spark calls ``foreachBatch`` in a thread of its own, for one batch after the other, and only if there are new
rows. The watermark of an epoch follows from the records of earlier epochs, so what the last batch has made due would
wait for the next one. If Spark waits for data and time can advance, this thread runs an epoch without rows, as Spark
itself runs a batch without data for its own stateful operators. One lock serialises epochs.

The stream fails or is stopped between two epochs, or in an epoch that is not committed. Both are as a crash: the next
query over the same state folder continues from the last committed epoch.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from aflow.errors import CheckpointError, ConnectorError, described
from aflow_connectors.spark.calls import connector_error, is_spark_error
from aflow_connectors.spark.stream.epochs import Epochs
from aflow_connectors.spark.stream.progress import StreamProgress
from aflow_connectors.spark.stream.savepoint_request import StreamSavepointRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log: Final = logging.getLogger("aflow.spark")

#: Longest time in seconds between two looks at Spark's query.
_LOOK: Final = 0.25
#: Seconds to wait for the thread at the end.
_PATIENCE: Final = 60


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
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._thread: Thread | None = None
        #: Connection by which Spark calls this program; its thread would wait for calls as long as the session lives.
        self._connection: Any = None
        #: Time of the end of the last epoch, of the clock ``monotonic``.
        self._last_epoch = 0.0

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
        self._thread = Thread(target=self._watch, args=(self._query, on_end), name=self._name)
        self._thread.start()

    def end(self, *, at_once: bool) -> None:
        """End the query: after the epoch in progress, or ``at_once``, with an epoch that is not committed."""
        self._is_stopped = True
        if self._query is None or self._thread is None:
            self._epochs.end()
            return
        if not at_once:
            with self._lock:
                pass  # the epoch in progress has ended, and no other begins
        self._stop(self._query, at_once=at_once)
        self._thread.join(_PATIENCE)

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

    def progress(self) -> StreamProgress:
        """Return the progress up to the last committed epoch."""
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
        if monotonic() - self._last_epoch < self._every or not self._epochs.can_advance():
            return
        status: dict[str, Any] = dict(query.status)
        # Only after Spark has looked: a batch that it repeats after a crash comes before.
        looked = str(status.get("message")).startswith("Waiting")
        if not looked or status.get("isDataAvailable") or status.get("isTriggerActive"):
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
            if not self._is_stopped:
                self._failure = failure
            else:
                _log.info("%s was stopped in %s: %s", self._name, doing, described(failure))
                raise RuntimeError(f"the stream of {self._name} was stopped") from None
        finally:
            self._last_epoch = monotonic()

    def _watch(self, query: StreamingQuery, on_end: Callable[[], None]) -> None:
        """Wait for the end of the stream, and advance time."""
        try:
            while self._may_run():
                if query.awaitTermination(min(_LOOK, self._every)):  # type: ignore[arg-type]
                    if self._may_run():
                        self._failure = ConnectorError(
                            f"Spark's query of {self._name} was stopped from outside; the next stream over the same "
                            f"state folder continues"
                        )
                    break
                self._advance_time(query)
        except Exception as exc:
            if self._may_run():
                if is_spark_error(exc):
                    self._failure = connector_error(exc, f"the stream of {self._name}")
                    self._failure.__cause__ = exc
                else:
                    self._failure = exc
        finally:
            try:
                self._stop(query, at_once=True)
                self._epochs.end()
                _end_thread(self._connection)
            finally:
                on_end()

    def _stop(self, query: StreamingQuery, *, at_once: bool) -> None:
        """Stop Spark's query. A session that has ended has nothing to stop."""
        self._is_stopped = True
        try:
            query.stop()
            if at_once:
                self._session.sparkContext.cancelJobsWithTag(self._tag)
        except Exception as exc:
            if not is_spark_error(exc):
                with suppress(Exception):
                    _log.warning("%s: %s", self._name, described(exc))


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
