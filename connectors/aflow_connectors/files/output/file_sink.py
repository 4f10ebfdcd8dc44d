"""What the sinks share that write files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from aflow.connect import Committable, Delivery, Sink, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.arguments import checked_path
from aflow_connectors.files.output.names import Parts, PartTarget
from aflow_connectors.files.output.output_file import FileOutput, SinkOutput
from aflow_connectors.files.output.pieces import FolderRecovery, PieceOutput
from aflow_connectors.owners import new_owner
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")


class FileSink(Sink[T]):
    """Writes files; with checkpoints one for each of them. Opens the outputs, and recovers.

    Files of others in the same folder are never removed or changed: a manifest proves which files are the sink's own.
    """

    delivery = Delivery.TRANSACTIONAL

    #: Of the files in a folder.
    suffix: ClassVar[str]

    def __init__(self, path: str | Path, *, overwrite: bool) -> None:
        self.path = checked_path(type(self).__name__, path)
        if not self.path.name:
            raise FlowDefinitionError(
                f"{type(self).__name__}: {str(path)!r} names no file and no folder"
            )
        self.overwrite = overwrite
        #: By the name of the sink in its flow, the owner of what its writers write.
        self._owners: dict[str, str] = {}

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """As ``Sink.recover``. Raises ``SinkError`` for output of an earlier run, unless it may be overwritten."""
        recovery = FolderRecovery(self.path, self._parts(), sink=name, overwrite=self.overwrite)
        self._owners[name] = await WorkerThread().run(partial(recovery.recover, committables))

    async def _open(self, context: WriterContext) -> tuple[SinkOutput, WorkerThread]:
        """Where one writer writes. Raises ``SinkError``; then, and when cancelled, nothing is left behind."""
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
