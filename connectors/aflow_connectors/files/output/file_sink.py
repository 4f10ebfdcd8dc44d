"""Base of the sinks that write files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from aflow.connect import Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.arguments import checked_path
from aflow_connectors.files.output.names import Parts, PartTarget
from aflow_connectors.files.output.output_file import FileOutput, SinkOutput
from aflow_connectors.files.output.pieces import FolderRecovery, PieceOutput
from aflow_connectors.owners import new_owner
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")


class FileSink(Sink[T]):
    """Writes files, one per checkpoint if there are checkpoints; opens the outputs and recovers them.

    Files of others in the same folder are never removed or changed: a manifest proves which files belong to the sink.
    """

    delivery = Delivery.TRANSACTIONAL

    #: Suffix of the files in a folder.
    suffix: ClassVar[str]

    def __init__(self, path: str | Path, *, overwrite: bool) -> None:
        self.path = checked_path(type(self).__name__, path)
        if not self.path.name:
            raise FlowDefinitionError(
                f"{type(self).__name__}: {str(path)!r} names no file and no folder"
            )
        self.overwrite = overwrite
        #: Owner of the output, by the name of the sink in its flow.
        self._owners: dict[str, str] = {}

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """See ``Sink.recover``. Raises ``SinkError`` for output of an earlier run, unless it may be overwritten."""
        recovery = FolderRecovery(self.path, self._parts(), sink=name, overwrite=self.overwrite)
        self._owners[name] = await WorkerThread().complete(partial(recovery.recover, committables))

    async def writer(self, context: WriterContext) -> Writer[T]:
        return self.writer_into(*await self._open(context))

    @abstractmethod
    def writer_into(self, output: SinkOutput, blocking: WorkerThread) -> Writer[T]:
        """Return a writer of an open output, whose blocking calls ``blocking`` runs."""

    async def _open(self, context: WriterContext) -> tuple[SinkOutput, WorkerThread]:
        """Return the open output of a writer. Raises ``SinkError``; then, and on cancellation, nothing remains."""
        output, blocking = self._output(context), WorkerThread()
        try:
            await blocking.run(output.open)
        except BaseException:
            await blocking.finish(output.discard)
            raise
        return output, blocking

    def _output(self, context: WriterContext) -> SinkOutput:
        name, owner = context.name, self._owner(context.name)
        if context.checkpoints:
            return PieceOutput(self._parts(), sink=name, subtask=context.subtask, owner=owner)
        target = PartTarget.of(self.path, context, suffix=self.suffix)
        return FileOutput(target, sink=name, overwrite=self.overwrite, owner=owner)

    def _owner(self, name: str) -> str:
        return self._owners.setdefault(name, new_owner())

    def _parts(self) -> Parts:
        return Parts.of(self.path, suffix=self.suffix)
