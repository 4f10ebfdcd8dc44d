"""``StreamQuery``: a running stream, seen from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from anyio import CancelScope, to_thread

from aflow.backfill.savepoint import savepoint_folder
from aflow.errors import FlowDefinitionError
from aflow_connectors.spark.stream.progress import StreamProgress
from aflow_connectors.spark.stream.savepoint_request import StreamSavepointRequest

if TYPE_CHECKING:
    from aflow_connectors.spark.stream.supervisor import Supervisor


class StreamQuery:
    """A stream on Spark: ``wait`` starts it and waits for its end, as ``async with`` and ``wait`` do.

    ``async with query:`` starts it and stops it at the end of the block. A query runs once.
    """

    def __init__(self, flow: str, prepare: Callable[[], Supervisor]) -> None:
        self._flow: Final = flow
        self._prepare: Final = prepare
        self._supervisor: Supervisor | None = None
        self._ended: asyncio.Future[None] | None = None
        self._is_started = False
        #: Set if the caller of ``start`` was cancelled meanwhile.
        self._is_abandoned = False

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

        try:
            await to_thread.run_sync(self._begin, on_end)
        except BaseException:
            self._is_abandoned = True  # a thread that still begins ends what it has begun
            raise

    def _begin(self, on_end: Callable[[], None]) -> None:
        """Prepare and start the stream, in a worker thread."""
        supervisor = self._prepare()
        if not self._is_abandoned:
            supervisor.start(on_end)
            self._supervisor = supervisor
        if self._is_abandoned:
            supervisor.end(at_once=True)

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
            await self._end(at_once=True)
            raise
        await self._end(at_once=True)  # releases what an ended query holds
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

        Raises as ``wait``, if the stream has failed.
        """
        supervisor, _ = self._running()
        await self._end(at_once=False)
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
        await self._end(at_once=exc is not None)
        if exc is None:
            self._running()[0].result()

    async def _end(self, *, at_once: bool) -> None:
        supervisor = self._supervisor
        if supervisor is not None:
            with CancelScope(shield=True):
                await to_thread.run_sync(lambda: supervisor.end(at_once=at_once))

    def _running(self) -> tuple[Supervisor, asyncio.Future[None]]:
        if self._supervisor is None or self._ended is None:
            raise FlowDefinitionError(
                f"the query of flow {self._flow!r} is not started: 'await query.start()' or 'async with query:'"
            )
        return self._supervisor, self._ended
