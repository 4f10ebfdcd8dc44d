"""Sinks that write objects, with the encoders of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from aflow.connect import Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.files.csv_sink import CsvSink
from aflow_connectors.files.jsonl_sink import JsonLinesSink
from aflow_connectors.files.output.file_sink import FileSink
from aflow_connectors.files.output.names import Parts
from aflow_connectors.files.parquet_sink import ROW_GROUP, ParquetSink
from aflow_connectors.owners import new_owner
from aflow_connectors.s3.bucket import Bucket, split_url
from aflow_connectors.s3.output import (
    ObjectFolder,
    ObjectNames,
    ObjectPieces,
    PreparedObject,
    WholeObject,
)
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")


class ObjectSink(Sink[T]):
    """Writes objects, one per checkpoint and subtask with records; see ``output``."""

    delivery = Delivery.TRANSACTIONAL

    def __init__(
        self,
        url: str,
        files: FileSink[T],
        *,
        overwrite: bool,
        client: Mapping[str, object] | None,
        store: object | None,
    ) -> None:
        owner = type(self).__name__
        root, path = split_url(owner, url)
        parts = Parts.of(Path(path), suffix=files.suffix)
        if not path.strip("/"):
            raise FlowDefinitionError(f"{owner}: {url!r} names no folder in the bucket")
        self.url: Final = url
        self.overwrite: Final = overwrite
        self._files: Final = files
        self._names: Final = ObjectNames(parts)
        folder = "" if str(parts.folder) == "." else str(parts.folder)
        self._bucket: Final = Bucket(owner, f"{root}/{folder}", client=client, store=store)
        #: Owner of the output, by the name of the sink in its flow.
        self._owners: Final[dict[str, str]] = {}
        #: Number of the run (see ``restores``), by the name of the sink; none for 0.
        self._runs: Final[dict[str, int]] = {}
        #: Subtasks of a job without checkpoints whose objects have appeared, by the name of the sink.
        self._finished: Final[dict[str, set[int]]] = {}

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """See ``Sink.recover``. Raises ``SinkError`` for output of an earlier run, unless it may be overwritten."""
        folder = self._folder(name)
        prepared = [PreparedObject.of(one, folder) for one in committables]
        if prepared:
            self._owners[name] = max(prepared, key=lambda one: one.checkpoint).owner
            self._runs[name] = await WorkerThread().complete(partial(folder.recover, prepared))
        else:
            self._runs.pop(name, None)
            self._owners[name] = new_owner()
            await WorkerThread().complete(partial(folder.begin, overwrite=self.overwrite))

    async def writer(self, context: WriterContext) -> Writer[T]:
        folder, blocking = self._folder(context.name), WorkerThread()
        if not context.checkpoints and context.name not in self._owners:
            # The writers of a job without checkpoints share an owner; the first one looks for earlier output.
            self._owners[context.name] = new_owner()
            try:
                await blocking.complete(partial(folder.begin, overwrite=self.overwrite))
            except BaseException:
                del self._owners[context.name]
                raise
        owner = self._owners.setdefault(context.name, new_owner())
        self._finished.setdefault(context.name, set()).discard(context.subtask)
        output = (
            ObjectPieces(
                folder,
                owner=owner,
                subtask=context.subtask,
                run=self._runs.get(context.name, 0),
            )
            if context.checkpoints
            else WholeObject(
                folder,
                owner=owner,
                subtask=context.subtask,
                on_finished=partial(self._output_finished, context),
            )
        )
        await blocking.run(output.open)
        return self._files.writer_into(output, blocking)

    def _output_finished(self, context: WriterContext) -> None:
        """Forget the owner once all objects of the run have appeared: a later run must not replace them."""
        finished = self._finished.setdefault(context.name, set())
        finished.add(context.subtask)
        if finished.issuperset(range(context.parallelism)):
            self._finished.pop(context.name, None)
            self._owners.pop(context.name, None)

    def _folder(self, name: str) -> ObjectFolder:
        return ObjectFolder(self._bucket, self._names, sink=name)


class JsonLinesObjectSink(ObjectSink[T]):
    """Write objects of one JSON value per line, exactly once with checkpoints.

    ``url`` is a folder, ``s3://bucket/out``, or has a name with a suffix, ``s3://bucket/out/late.jsonl.gz``: then the
    names begin with ``late`` and objects are compressed as it says. Names are ``part-OWNER-SUBTASK-CHECKPOINT.jsonl``,
    where OWNER is an id of the job and the runs restored from it. An object appears when its checkpoint is complete;
    without checkpoints one appears for each subtask at the end. Output of an earlier run is an error, or is removed
    with ``overwrite=True``.

    ``client`` are settings of obstore for this URL, and ``store`` is a store of obstore for the bucket to use instead.
    Records and errors are as for ``JsonLinesSink``.
    """

    def __init__(
        self,
        url: str,
        *,
        overwrite: bool = False,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None:
        files = JsonLinesSink[T]("objects")
        super().__init__(url, files, overwrite=overwrite, client=client, store=store)


class CsvObjectSink(ObjectSink[T]):
    """Write CSV objects with a header, exactly once with checkpoints.

    ``url``, ``overwrite``, ``client`` and ``store`` are as for ``JsonLinesObjectSink``, all others as for ``CsvSink``.
    """

    def __init__(
        self,
        url: str,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        overwrite: bool = False,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None:
        files = CsvSink[T]("objects", columns=columns, delimiter=delimiter)
        super().__init__(url, files, overwrite=overwrite, client=client, store=store)


class ParquetObjectSink(ObjectSink[T]):
    """Write Parquet objects, exactly once with checkpoints; needs pyarrow.

    ``url``, ``overwrite``, ``client`` and ``store`` are as for ``JsonLinesObjectSink``, all others as for
    ``ParquetSink``.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: object | None = None,
        row_group: int = ROW_GROUP,
        overwrite: bool = False,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None:
        files = ParquetSink[T]("objects", schema=schema, row_group=row_group)
        super().__init__(url, files, overwrite=overwrite, client=client, store=store)
