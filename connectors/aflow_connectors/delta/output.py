"""Exactly-once rows in a Delta table: data files that a commit with an application transaction adds.

Theory. ``prepare`` writes the rows since the preceding checkpoint into a Parquet file in the folder of the table. No
version of the table names it, so no reader sees it. ``commit`` adds the file to the table in one commit of its log. The
commit has an application transaction: the id of the writer, and the number of the checkpoint. If the table has that
transaction already, nothing is done; if another process commits it meanwhile, the log refuses the second one. So a
commit takes effect once, however often it is repeated.

The name of a data file has the owner (the lineage of runs), subtask and checkpoint. After a restore, files of later
checkpoints that the restored one does not name are removed by a commit, a *withdrawal*: their rows will be written
again. Each run has ids of its own, since the numbers of removed checkpoints may be used again. Data files that no
version names are removed by VACUUM, as those of any other writer of Delta tables. All commits are marked in the log
(``OwnerLog``), so a restore finds those whose files were rewritten meanwhile, and withdrawals of its own rows.

All methods block: they are for worker threads.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, cast

from aflow.connect import Committable, SinkError
from aflow.errors import AflowError, RestoreError
from aflow_connectors.delta.owner_log import LOG_KEY, LogEntry, OwnerLog
from aflow_connectors.delta.prepared_file import FILE_NAME, PreparedFile
from aflow_connectors.delta.table import TableLocation, deltalake
from aflow_connectors.files.optional import pyarrow, pyarrow_parquet
from aflow_connectors.files.output.output_file import SinkOutput

_BLOCK: Final = 1 << 20
#: Attempts of a commit while other writers commit, too; deltalake repeats harmless conflicts itself.
_ATTEMPTS: Final = 10
#: Features of a table that rows written as plain data files satisfy.
_FEATURES: Final = frozenset(
    {"appendOnly", "changeDataFeed", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)


class OwnedTable:
    """The rows of a sink in a table."""

    def __init__(self, location: TableLocation, *, sink: str) -> None:
        self.location: Final = location
        self.sink: Final = sink

    @contextmanager
    def errors(self, what: str = "write to") -> Generator[None]:
        """Convert any error of the client into a ``SinkError``."""
        try:
            yield
        except AflowError:
            raise
        # deltalake and pyarrow raise errors of many classes.
        except Exception as exc:
            raise SinkError(
                f"sink {self.sink!r}: cannot {what} {self.location.url}: {self.location.reason(exc)}"
            ) from None

    def begin(self, schema: Any) -> Any:
        """Return the schema of the table, which is created with ``schema`` if it is missing. Raises ``SinkError``."""
        with self.errors():
            if not self.location.exists():
                if schema is None:
                    raise SinkError(
                        f"sink {self.sink!r}: there is no Delta table at {self.location.url}: create it, or give "
                        f"schema="
                    )
                self.location.create(schema)
            table = self.location.opened()
            refused = _unsupported(table)
            if refused:
                raise SinkError(
                    f"sink {self.sink!r}: {self.location.url} {refused}, which this sink does not support"
                )
            return _arrow_schema(table)

    def version(self) -> int:
        """Return the newest version of the table. Raises ``SinkError``."""
        with self.errors():
            return int(self.location.opened().version())

    def recover(self, prepared: Sequence[PreparedFile]) -> None:
        """Commit the rows of a restored checkpoint, and remove later rows of its owner.

        Raises ``SinkError``, and ``RestoreError`` if rows of the checkpoint were removed, or later ones cannot be.
        """
        restored = max(one.checkpoint for one in prepared)
        with self.errors():
            self._check_not_withdrawn(
                restored, OwnerLog.of(self.location.opened(), prepared), prepared
            )
        for one in sorted(prepared, key=lambda one: one.checkpoint):
            self.commit(one)
        owners = {one.owner for one in prepared}
        kept = {one.path for one in prepared}
        with self.errors():
            for _ in range(_ATTEMPTS):
                if self._withdrawn(restored, owners, kept, prepared):
                    return
        raise SinkError(
            f"sink {self.sink!r}: cannot remove the rows after checkpoint {restored} from {self.location.url}: other "
            f"writers changed the table {_ATTEMPTS} times meanwhile"
        )

    def _withdrawn(
        self,
        restored: int,
        owners: set[str],
        kept: set[str],
        prepared: Sequence[PreparedFile],
    ) -> bool:
        """Remove the files of later checkpoints; return False if the table was changed meanwhile."""
        lake = deltalake(self.location.owner)
        table = self.location.opened()
        log = OwnerLog.of(table, prepared)
        self._check_not_withdrawn(restored, log, prepared)
        files = {action["path"] for action in _files_of(table)}
        later = [
            lake.transaction.RemoveAction(
                action["path"], True, _now(), action["size_bytes"], partition_values={}
            )
            for action in _files_of(table)
            if action["path"] not in kept and _is_later(action["path"], owners, restored)
        ]
        pending: list[Any] = []
        for app in {one.app for one in prepared}:
            newest = table.transaction_version(app) or 0
            withdrawn = table.transaction_version(f"{app}-withdrawn") or 0
            if newest > max(restored, withdrawn):
                pending.append(lake.Transaction(f"{app}-withdrawn", newest))
        # A log that was shortened does not show each commit; transactions stay.
        if log.rewritten(restored, files) or (pending and not later and not log.is_complete):
            raise RestoreError(
                f"sink {self.sink!r}: rows that were written to {self.location.url} after checkpoint {restored} cannot "
                f"be removed: their files were rewritten (OPTIMIZE) or removed. Restore the table to an older version "
                f"together with the job, or continue from a newer checkpoint"
            )
        if later and table.metadata().configuration.get("delta.appendOnly") == "true":
            raise RestoreError(
                f"sink {self.sink!r}: rows that were written to {self.location.url} after checkpoint {restored} cannot "
                f"be removed: the table has delta.appendOnly. Set it to 'false' for the restore, or continue from a "
                f"newer checkpoint"
            )
        owner = prepared[0].owner
        return not later or self._commit(
            table, later, pending, LogEntry(owner, restored, "withdrawal")
        )

    def _check_not_withdrawn(
        self, restored: int, log: OwnerLog, prepared: Sequence[PreparedFile]
    ) -> None:
        down_to = log.withdrawn_down_to
        if down_to is not None and restored > down_to:
            raise RestoreError(
                f"sink {self.sink!r}: checkpoint {restored} cannot be restored: a restore of checkpoint {down_to} has "
                f"removed the rows after it from {self.location.url}. Continue from a checkpoint of the job that was "
                f"restored then, or from checkpoint {down_to} or an older one"
            )
        if log.branches(restored, prepared):
            raise RestoreError(
                f"sink {self.sink!r}: checkpoint {restored} cannot be restored: a job that was restored from an older "
                f"checkpoint has written rows to {self.location.url} since. Continue from a checkpoint of that job, or "
                f"from the older one"
            )

    def commit(self, prepared: PreparedFile) -> None:
        """Add the rows to the table, unless that was done.

        Raises ``SinkError``, and ``RestoreError`` if the file was removed.
        """
        if not prepared.path:
            return
        lake = deltalake(self.location.owner)
        with self.errors():
            add = lake.transaction.AddAction(
                prepared.path,
                prepared.size,
                {},
                _now(),
                True,
                json.dumps({"numRecords": prepared.rows}),
            )
            for _ in range(_ATTEMPTS):
                table = self.location.opened()
                if (table.transaction_version(prepared.app) or 0) >= prepared.checkpoint:
                    return
                self._check_there(prepared)
                entry = LogEntry(
                    prepared.owner, prepared.checkpoint, "rows", prepared.path, prepared.app
                )
                done = lake.Transaction(prepared.app, prepared.checkpoint)
                if self._commit(table, [add], [done], entry):
                    return
        raise SinkError(
            f"sink {self.sink!r}: cannot commit to {self.location.url}: other writers changed the table {_ATTEMPTS} "
            f"times meanwhile"
        )

    def _commit(
        self, table: Any, actions: list[Any], transactions: list[Any], entry: LogEntry
    ) -> bool:
        """Commit to the log; return False if another writer's commit is in conflict."""
        lake = deltalake(self.location.owner)
        properties = lake.CommitProperties(
            app_transactions=transactions, custom_metadata={LOG_KEY: json.dumps(asdict(entry))}
        )
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), commit_properties=properties
            )
        except lake.exceptions.CommitFailedError:
            return False
        return True

    def _check_there(self, prepared: PreparedFile) -> None:
        found = self.location.files().get_file_info(prepared.path)
        if found.size != prepared.size:
            raise RestoreError(
                f"sink {self.sink!r}: {prepared.path} of {self.location.url}, output of checkpoint "
                f"{prepared.checkpoint}, is not there as it was written: VACUUM or another program removed it"
            )


def _arrow_schema(table: Any) -> Any:
    return pyarrow("DeltaSink").schema(table.schema())


def _files_of(table: Any) -> list[dict[str, Any]]:
    arrow = pyarrow("DeltaSink")
    return cast("list[dict[str, Any]]", arrow.table(table.get_add_actions()).to_pylist())


def _is_later(path: str, owners: set[str], restored: int) -> bool:
    found = FILE_NAME.fullmatch(path)
    return found is not None and found["owner"] in owners and int(found["checkpoint"]) > restored


def _unsupported(table: Any) -> str:
    """Return the property of a table that plain data files would break; '' if there is none."""
    metadata = table.metadata()
    if metadata.partition_columns:
        return f"is partitioned by {', '.join(metadata.partition_columns)}"
    constraints = [name for name in metadata.configuration if name.startswith("delta.constraints.")]
    if constraints:
        return f"has the constraint {constraints[0].removeprefix('delta.constraints.')!r}"
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        return "maps its columns to other names"
    features = set(table.protocol().writer_features or ()) - _FEATURES
    fields = json.loads(table.schema().to_json())["fields"]
    special = [
        name
        for field in fields
        for name in field["metadata"]
        if name.startswith(("delta.generation", "delta.invariants", "delta.identity"))
    ]
    if special:
        return f"has a column with {special[0]}"
    # Some features say only that a table may use what was checked above.
    features -= {"invariants", "checkConstraints", "generatedColumns", "columnMapping"}
    return f"has the feature {sorted(features)[0]}" if features else ""


def _now() -> int:
    return int(time.time() * 1000)


class TableOutput(SinkOutput):
    """Output of one writer. Rows are spooled to a nameless temporary file of the local disk, and then uploaded."""

    def __init__(
        self, table: OwnedTable, *, owner: str, run: str, subtask: int, since: int = 0
    ) -> None:
        super().__init__(Path("table"), sink=table.sink, shown=table.location.url)
        self._table = table
        self._owner = owner
        self._app = f"aflow-{owner}-{run}-{subtask}"
        self._subtask = subtask
        self._since = since
        self._raw: IO[bytes] | None = None
        self._closed = False

    @property
    def file(self) -> IO[bytes]:
        """Return the file to write into, created if there is none. Raises ``SinkError`` if the writer is closed."""
        if self._closed:
            raise self.error(f"{self.shown} is closed, nothing can be added to it")
        if self._raw is None:
            with self.errors():
                self._raw = cast("IO[bytes]", TemporaryFile())  # noqa: SIM115 # closed by ``_stored`` or ``discard``
        return self._raw

    def open(self) -> None:
        """Do nothing: the sink has looked at the table."""

    def _stored(self, checkpoint: int) -> PreparedFile:
        """Upload the rows as a data file that no version names."""
        raw, self._raw = self._raw, None
        if raw is None:
            return PreparedFile(checkpoint, self._owner, self._app, since=self._since)
        with raw, self._table.errors():
            parquet = pyarrow_parquet("DeltaSink")
            rows = int(parquet.ParquetFile(raw).metadata.num_rows)
            size = raw.seek(0, 2)
            raw.seek(0)
            path = f"part-{self._owner}-{self._subtask:05d}-{checkpoint:06d}-{secrets.token_hex(4)}.parquet"
            files = self._table.location.files()
            # The stream of deltalake takes bytes only; a buffered one passes smaller blocks on as bytes.
            with files.open_output_stream(path, buffer_size=2 * _BLOCK) as stream:
                shutil.copyfileobj(raw, stream, _BLOCK)
        return PreparedFile(checkpoint, self._owner, self._app, path, size, rows, self._since)

    def discard(self) -> None:
        """Remove rows that are not prepared."""
        self._closed = True
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()


class CheckpointedRows(TableOutput):
    """Output with a data file for each checkpoint."""

    in_pieces = True

    def __init__(
        self, table: OwnedTable, *, owner: str, run: str, subtask: int, since: int = 0
    ) -> None:
        super().__init__(table, owner=owner, run=run, subtask=subtask, since=since)
        #: Data files that wait for their commit.
        self._pending: set[str] = set()

    def prepare(self, checkpoint: int) -> Committable:
        prepared = self._stored(checkpoint)
        if prepared.path:
            self._pending.add(prepared.path)
        return asdict(prepared)

    def commit(self, committable: Committable) -> None:
        prepared = PreparedFile.of(committable, sink=self.sink)
        self._table.commit(prepared)
        self._pending.discard(prepared.path)

    def finish(self) -> None:
        """Raise ``SinkError`` if rows are not covered by a checkpoint; nothing else remains to be done."""
        if self._raw is not None or self._pending:
            raise self.error(
                f"the input of {self.shown} has ended, but no checkpoint covers the last rows"
            )


class AllRows(TableOutput):
    """Output of a job without checkpoints: one commit at the end."""

    in_pieces = True

    def prepare(self, checkpoint: int) -> Committable:
        raise self.without_checkpoints()

    def commit(self, committable: Committable) -> None:
        raise self.without_checkpoints()

    def finish(self) -> None:
        if not self._closed:
            self._table.commit(self._stored(1))
            self._closed = True
