"""``StreamQuery``: a running stream, seen from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Final

from anyio import CancelScope, to_thread

from aflow.backfill.savepoint import savepoint_folder
from aflow.backfill.stream_metrics import JobStatus, ObservedStream
from aflow.backfill.stream_progress import StreamProgress
from aflow.errors import FlowDefinitionError
from aflow_connectors.spark.stream.savepoint_request import StreamSavepointRequest
from aflow_connectors.worker_thread import WorkerThread

if TYPE_CHECKING:
    from aflow_connectors.spark.stream.supervisor import Supervisor


class StreamQuery(ObservedStream):
    """A stream on Spark. A query runs once.

    ``await query.wait()`` starts it and waits for its end. ``async with query:`` starts it, and stops it at the end of
    the block; an exception there stops it at once. ``aflow.web`` has its health and metrics: ``aflow.web.app(query)``.
    """

    def __init__(self, flow: str, prepare: Callable[[], Supervisor]) -> None:
        self._flow: Final = flow
        self._prepare: Final = prepare
        self._supervisor: Supervisor | None = None
        self._ended: asyncio.Future[None] | None = None
        self._is_started = False
        #: Set if the caller of ``start`` was cancelled meanwhile.
        self._is_abandoned = False
        #: Set when the query is asked to end after the epoch in progress.
        self._is_stopping = False
        #: The status at the end, if the caller has decided it.
        self._outcome: JobStatus | None = None

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self._flow

    @property
    def status(self) -> JobStatus:
        """The present phase, as of a job."""
        if self._outcome is not None:
            return self._outcome
        if self._supervisor is None or self._ended is None:
            return JobStatus.STARTING if self._is_started else JobStatus.CREATED
        if self._supervisor.has_failed:
            return JobStatus.FAILED
        if self._ended.done():
            return JobStatus.FINISHED
        return JobStatus.DRAINING if self._is_stopping else JobStatus.RUNNING

    def observed(self) -> StreamProgress | None:
        """Return the progress; None before the start."""
        return None if self._supervisor is None else self._supervisor.progress()

    async def start(self) -> None:
        """Check the state folder and the sinks, restore the last committed epoch, and start the Spark query.

        Raises as ``stream``; a query that was started cannot be started again.
        """
        if self._is_started:
            raise FlowDefinitionError(
                f"the query of flow {self._flow!r} was started before: stream() makes another one"
            )
        self._is_started = True
        loop = asyncio.get_running_loop()
        ended = self._ended = loop.create_future()

        def on_end() -> None:
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))

        begun, done = Event(), Event()
        try:
            await to_thread.run_sync(self._begin, on_end, begun, done, abandon_on_cancel=True)
        except BaseException as exc:
            # A thread that has not begun checks that first. Another one ends what it has begun, and only then may
            # another query use the folders.
            self._is_abandoned = True
            cancelled = isinstance(exc, asyncio.CancelledError)
            self._outcome = JobStatus.CANCELLED if cancelled else JobStatus.FAILED
            if cancelled and begun.is_set():
                with CancelScope(shield=True):
                    await to_thread.run_sync(done.wait, abandon_on_cancel=True)
            raise

    def _begin(self, on_end: Callable[[], None], begun: Event, done: Event) -> None:
        """Prepare and start the stream, in a worker thread."""
        begun.set()
        try:
            if self._is_abandoned:
                return
            supervisor = self._prepare()
            if not self._is_abandoned:
                supervisor.start(on_end)
                self._supervisor = supervisor
            if self._is_abandoned:
                supervisor.end(at_once=True)
        finally:
            done.set()

    async def wait(self) -> StreamProgress:
        """Wait until the stream ends, and return its last progress. Starts it if that was not done.

        A stream ends when it is stopped or, with ``until``, when its savepoint is written. Raises ``ConnectorError`` if
        Spark or a step fails, and ``SinkError`` and ``CheckpointError`` for output and state that cannot be written.
        The next query over the same state folder continues from the last committed epoch. Cancelling the call stops
        the stream at once: the epoch in progress is not committed.
        """
        if not self._is_started:
            await self.start()
        supervisor, ended = self._running()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            await self._end_at_once()
            raise
        await self._end_at_once()  # releases what an ended query holds
        return supervisor.result()

    def progress(self) -> StreamProgress:
        """Return the progress up to the last committed epoch. Raises ``FlowDefinitionError`` before the start."""
        return self._running()[0].progress()

    async def savepoint(self, path: str | PathLike[str]) -> Path:
        """Write a savepoint while the stream runs, and return its folder, ``path``, which must be new.

        A live job, a backfill or another stream starts from it, as from the one at the end of a stream. It is of the
        moment T after the newest record that was processed when the call was made: it has all records before T, and
        what starts from it skips these. It is written when the watermark has arrived at T, so records from T on must
        arrive. Until then the stream holds back records from T on, and then processes them.

        Raises ``CheckpointError`` if something exists at ``path``, or the stream has processed no record yet, or ends
        before, and ``FlowDefinitionError`` for a query that is not started, an invalid path, and for a flow with a sink
        upstream of ``event_time``. If the savepoint cannot be written, the stream continues. Cancelling the call
        withdraws the request.
        """
        supervisor, _ = self._running()
        folder = savepoint_folder(path)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def resolve(failure: Exception | None) -> None:
            if ended.done():
                return
            if failure is None:
                ended.set_result(None)
            else:
                ended.set_exception(failure)

        def on_end(failure: Exception | None) -> None:
            loop.call_soon_threadsafe(resolve, failure)

        request = StreamSavepointRequest(folder, on_end)
        try:
            await to_thread.run_sync(supervisor.begin_savepoint, request)
            await ended
        except asyncio.CancelledError:
            request.is_withdrawn = True
            raise
        return folder

    async def stop(self) -> None:
        """End the stream after the epoch in progress. Returns when Spark has ended it; no-op if it has ended.

        Cancelling the call stops the stream at once. Raises as ``wait``, if the stream has failed.
        """
        supervisor, _ = self._running()
        self._is_stopping = True
        try:
            await to_thread.run_sync(lambda: supervisor.end(at_once=False), abandon_on_cancel=True)
        except asyncio.CancelledError:
            await self._end_at_once()
            raise
        supervisor.result()

    async def __aenter__(self) -> StreamQuery:
        if not self._is_started:
            await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            await self.stop()
        else:
            await self._end_at_once()

    async def _end_at_once(self) -> None:
        supervisor, ended = self._supervisor, self._ended
        if supervisor is not None and ended is not None:
            if not ended.done() and not supervisor.has_failed:
                self._outcome = JobStatus.CANCELLED
            await WorkerThread().complete(partial(supervisor.end, at_once=True))

    def _running(self) -> tuple[Supervisor, asyncio.Future[None]]:
        if self._supervisor is None or self._ended is None:
            state = (
                "has not started yet, or its start has failed"
                if self._is_started
                else "is not started: 'await query.start()' or 'async with query:'"
            )
            raise FlowDefinitionError(f"the query of flow {self._flow!r} {state}")
        return self._supervisor, self._ended
