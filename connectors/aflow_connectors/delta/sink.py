"""``DeltaSink``: rows of a Delta table, exactly once."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from aflow.connect import Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.delta.output import AllRows, CheckpointedRows, OwnedTable
from aflow_connectors.delta.prepared_file import PreparedFile
from aflow_connectors.delta.table import TableLocation
from aflow_connectors.files.optional import pyarrow
from aflow_connectors.files.parquet_sink import ROW_GROUP, ParquetTable, ParquetWriter
from aflow_connectors.owners import new_owner
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")


class DeltaSink(Sink[T]):
    """Append rows to the Delta table at ``url``, a path or a URL. It needs ``pip install "aflow-streams[lake]"``.

    With checkpoints each record is a row exactly once: each checkpoint and subtask with records is one commit, with an
    application transaction. Rows appear when the checkpoint is complete; without checkpoints at the end. Records are
    dicts, dataclasses, ``msgspec.Struct`` or NamedTuples with exactly the columns of the table. A missing table is
    created with ``schema``, a ``pyarrow.Schema``.

    ``client`` are the ``storage_options`` of deltalake. Up to ``row_group`` records are buffered in memory (65,536 by
    default). Raises ``SinkError`` with the URL and the reason, also for tables that are partitioned or have
    constraints, generated columns or column mapping, and ``ConnectorError`` if the package is missing.
    """

    delivery = Delivery.TRANSACTIONAL

    def __init__(
        self,
        url: str | Path,
        *,
        schema: object | None = None,
        row_group: int = ROW_GROUP,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self._location: Final = TableLocation("DeltaSink", url, client)
        if row_group < 1:
            raise FlowDefinitionError(f"DeltaSink: row_group must be at least 1, not {row_group}")
        if schema is not None and not isinstance(schema, pyarrow("DeltaSink").Schema):
            raise FlowDefinitionError(f"DeltaSink: schema must be a pyarrow.Schema, not {schema!r}")
        self.schema: Final = schema
        self.row_group: Final = row_group
        #: Owner of the rows, by the name of the sink in its flow.
        self._owners: Final[dict[str, str]] = {}
        #: Part of the ids of transactions.
        self._run: str = secrets.token_hex(4)
        #: The version of the table at which the run began.
        self._since = 0

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """See ``Sink.recover``. Rows of other runs and writers are kept."""
        table = OwnedTable(self._location, sink=name)
        prepared = [PreparedFile.of(one, sink=name) for one in committables]
        self._run = secrets.token_hex(4)
        await WorkerThread().run(partial(table.begin, self.schema))
        if prepared:
            self._owners[name] = max(prepared, key=lambda one: one.checkpoint).owner
            await WorkerThread().complete(partial(table.recover, prepared))
        else:
            self._owners[name] = new_owner()
        self._since = await WorkerThread().run(table.version)

    async def writer(self, context: WriterContext) -> Writer[T]:
        table, blocking = OwnedTable(self._location, sink=context.name), WorkerThread()
        schema: Any = await blocking.run(partial(table.begin, self.schema))
        kind = CheckpointedRows if context.checkpoints else AllRows
        owner = (
            self._owners.setdefault(context.name, new_owner())
            if context.checkpoints
            else new_owner()
        )
        output = kind(table, owner=owner, run=self._run, subtask=context.subtask, since=self._since)
        return ParquetWriter(ParquetTable(output, schema), output, blocking, self.row_group)
