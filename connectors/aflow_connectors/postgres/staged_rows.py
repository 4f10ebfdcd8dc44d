"""Rows that wait for their checkpoint, in the database itself.

An *owner* is a lineage of runs: a job, and the jobs restored from its checkpoints. A *run* is one of them, from one
call of ``recover`` to the next. An *epoch* has the rows of a writer between two checkpoints, in numbered *chunks*.

Tables, in the schema of the target:

- ``_aflow_owners``: the current run of each owner. ``recover`` starts a new one, so a former run that still lives
  cannot commit any more (a fencing token).
- ``_aflow_staged``: chunks, as of ``chunk_of``, until they are committed.
- ``_aflow_commits``: the last committed checkpoint of each writer.

Invariant: rows of an epoch, the number of their checkpoint, and the removal of their chunks are one transaction. So
after a crash at any moment, rows are either staged or in the target, and a repeated commit has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from aflow.connect import Committable
from aflow.errors import RestoreError
from aflow_connectors.commit_errors import foreign_committable
from aflow_connectors.owners import is_owner
from aflow_connectors.postgres.chunks import payload_of
from aflow_connectors.postgres.client import ServerSession
from aflow_connectors.postgres.table import TableColumns, WriteMethod, quoted

#: Largest bigint.
_LARGEST: Final = 2**63 - 1

#: Concurrent CREATE TABLE IF NOT EXISTS fail: this lock is for those of all sinks.
_CREATION_LOCK: Final = 0x61666C6F77

#: Ends sessions of this role that a further condition chooses.
_END_OTHERS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE usename = current_user AND pid <> pg_backend_pid()"
)
#: The transaction of an epoch waits no longer for rows that others have locked.
_LOCK_TIMEOUT: Final = "2s"


class Fenced(Exception):
    """Raised if another job continues the owner, or its rows are unknown here."""


class TableIsAhead(Exception):
    """Raised if the table has the rows of later checkpoints."""


class WrongCount(Exception):
    """Raised if the staged rows are not those that were prepared."""


class PreparedEpoch(msgspec.Struct, frozen=True):
    """Rows that ``writer`` has staged between checkpoint ``epoch`` and ``checkpoint``."""

    owner: str
    run: str
    writer: int
    epoch: int
    checkpoint: int
    rows: int
    chunks: int
    place: str
    """The database and the table in which they were staged, for messages."""

    def stored(self) -> Committable:
        return msgspec.structs.asdict(self)

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> PreparedEpoch:
        """Return the decoded committable. Raises ``RestoreError`` unless such a sink prepared it."""
        try:
            found = msgspec.convert(committable, cls)
            numbers = (found.writer, found.epoch, found.checkpoint, found.rows, found.chunks)
            if (
                all(0 <= one <= _LARGEST for one in numbers)
                and is_owner(found.owner)
                and is_owner(found.run)
            ):
                return found
        except msgspec.ValidationError:
            pass  # of another kind: refused below
        raise foreign_committable(sink, committable)


@dataclass(frozen=True, slots=True)
class Staging:
    """Staged rows of one run of ``owner``, for one table."""

    sink: str
    table: TableColumns
    method: WriteMethod
    owner: str
    run: str

    def _name(self, table: str) -> str:
        return f"{quoted(self.table.schema)}.{table}"

    async def create(self, session: ServerSession) -> None:
        """Create the tables if they do not exist."""
        if await self._is_created(session):
            return
        async with session.transaction():
            await session.execute(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
            for statement in (
                f"""CREATE TABLE IF NOT EXISTS {self._name("_aflow_owners")} (
                    owner text PRIMARY KEY, sink text NOT NULL, "table" text NOT NULL, run text NOT NULL)""",
                f"""CREATE TABLE IF NOT EXISTS {self._name("_aflow_commits")} (
                    owner text, writer integer, checkpoint bigint NOT NULL, PRIMARY KEY (owner, writer))""",
                f"""CREATE TABLE IF NOT EXISTS {self._name("_aflow_staged")} (
                    owner text, run text, writer integer, epoch bigint, number integer, payload bytea NOT NULL,
                    PRIMARY KEY (owner, run, writer, epoch, number))""",
                # Compression would take more time than the disk.
                f"ALTER TABLE {self._name('_aflow_staged')} ALTER payload SET STORAGE EXTERNAL",
            ):
                await session.execute(statement)

    async def _is_created(self, session: ServerSession) -> bool:
        """Return True if the tables exist. Then the role needs no right to create or to change them."""
        names = [self._name(one) for one in ("_aflow_owners", "_aflow_commits", "_aflow_staged")]
        ((is_created,),) = await session.fetch(
            """SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL AND EXISTS (
                SELECT 1 FROM pg_attribute
                WHERE attrelid = to_regclass($3) AND attname = 'payload' AND attstorage = 'e')""",
            *names,
        )
        return bool(is_created)

    async def stage(
        self, session: ServerSession, writer: int, epoch: int, number: int, payload: bytes
    ) -> None:
        """Stage a chunk, durably; idempotent. Raises ``Fenced``."""
        tag = await session.execute(
            f"""INSERT INTO {self._name("_aflow_staged")}
                SELECT $1, $2, $3, $4, $5, $6 FROM {self._name("_aflow_owners")} WHERE owner = $1 AND run = $2
                ON CONFLICT (owner, run, writer, epoch, number) DO UPDATE SET payload = excluded.payload""",
            *(self.owner, self.run, writer, epoch, number, payload),
        )
        if tag == "INSERT 0 0":
            raise Fenced(self._fenced())

    async def open_transaction(self, session: ServerSession, writer: int, epoch: int) -> None:
        """Begin a transaction of this run, which waits only shortly for locks, and ends if another run begins."""
        await self.method.prepare(session)
        await session.execute(
            f"BEGIN; SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'; "
            f"SET LOCAL application_name = 'aflow {self.owner}/{self.run}/{writer}/{epoch}'"
        )

    async def end_transaction_of(self, session: ServerSession, prepared: PreparedEpoch) -> None:
        """End the open transaction of ``prepared``, whose connection is lost for this writer only, with its locks."""
        name = f"aflow {self.owner}/{prepared.run}/{prepared.writer}/{prepared.epoch}"
        await session.execute(f"{_END_OTHERS} AND application_name = $1", name)

    async def mark(self, session: ServerSession, prepared: PreparedEpoch) -> None:
        """In a transaction: record the checkpoint and remove the chunks.

        Raises ``Fenced``, also if the checkpoint was recorded before: then by another job.
        """
        ((mine, marked),) = await session.fetch(
            f"""WITH mine AS (
                    SELECT 1 FROM {self._name("_aflow_owners")} WHERE owner = $1 AND run = $2 FOR SHARE
                ), marked AS (
                    INSERT INTO {self._name("_aflow_commits")} AS c SELECT $1, $3, $4 FROM mine
                    ON CONFLICT (owner, writer) DO UPDATE SET checkpoint = excluded.checkpoint
                        WHERE c.checkpoint < excluded.checkpoint
                    RETURNING 1
                ), removed AS (
                    DELETE FROM {self._name("_aflow_staged")}
                    WHERE owner = $1 AND run = $5 AND writer = $3 AND epoch = $6 AND EXISTS (SELECT 1 FROM mine)
                )
                SELECT (SELECT count(*) FROM mine), (SELECT count(*) FROM marked)""",
            *(self.owner, self.run, prepared.writer, prepared.checkpoint),
            *(prepared.run, prepared.epoch),
        )
        if not (mine and marked):
            raise Fenced(self._fenced())

    async def has_committed(self, session: ServerSession, prepared: PreparedEpoch) -> bool:
        """Return True if the rows are in the table, and this run is still the current one of the owner."""
        found = await session.fetch(
            f"""SELECT 1 FROM {self._name("_aflow_owners")} JOIN {self._name("_aflow_commits")} USING (owner)
                WHERE owner = $1 AND run = $2 AND writer = $3 AND checkpoint >= $4""",
            *(self.owner, self.run, prepared.writer, prepared.checkpoint),
        )
        return bool(found)

    async def write(
        self, session: ServerSession, prepared: PreparedEpoch, kept: Sequence[bytes] | None = None
    ) -> None:
        """In a transaction: write the rows into the table, unless that was done before.

        ``kept``: the chunks, if they are in memory. Raises ``Fenced``, ``WrongCount``, and ``RowRejected`` or
        ``Rejected`` for rows that the table rejects.
        """
        done = await session.fetch(
            f"SELECT 1 FROM {self._name('_aflow_commits')} WHERE owner = $1 AND writer = $2 AND checkpoint >= $3",
            *(self.owner, prepared.writer, prepared.checkpoint),
        )
        if done:
            return
        count = 0
        for number in range(prepared.chunks):
            chunk = await self._chunk(session, prepared, number) if kept is None else kept[number]
            count += await self.method.load(session, payload_of(chunk)) if chunk else 0
        await self.method.finish(session)
        await self.mark(session, prepared)
        if count != prepared.rows:
            raise WrongCount(
                f"{prepared.rows:,} rows were prepared for checkpoint {prepared.checkpoint} of table "
                f"{self.table.name!r}, and {count:,} are staged for owner {self.owner!r} in _aflow_staged: were rows "
                f"removed there?"
            )

    async def _chunk(self, session: ServerSession, prepared: PreparedEpoch, number: int) -> bytes:
        """Return a staged chunk; one at a time, since an epoch may exceed the memory."""
        found = await session.fetch(
            f"SELECT payload FROM {self._name('_aflow_staged')} "
            "WHERE owner = $1 AND run = $2 AND writer = $3 AND epoch = $4 AND number = $5",
            *(prepared.owner, prepared.run, prepared.writer, prepared.epoch, number),
        )
        return found[0][0] if found else b""

    async def begin(self, session: ServerSession, prepared: Sequence[PreparedEpoch]) -> None:
        """Begin this run: commit ``prepared``, of the same owner, and remove all other rows that it has staged.

        A transaction: a crash leaves the former run. Raises as ``write`` does, and ``RestoreError`` if the checkpoint
        is of another database or table, and ``TableIsAhead`` if later checkpoints were committed.
        """
        await self.method.prepare(session)
        # A former run that is frozen, or whose host is gone, would hold its locks for ever.
        await session.execute(
            f"{_END_OTHERS} AND starts_with(application_name, $1)", f"aflow {self.owner}/"
        )
        async with session.transaction():
            known = await session.fetch(
                f"""SELECT "table" FROM {self._name("_aflow_owners")} WHERE owner = $1 FOR UPDATE""",
                self.owner,
            )
            if prepared:
                self._refuse_other_target(prepared, [table for (table,) in known])
            await self._refuse_to_repeat(session, prepared)
            await session.execute(
                f"""INSERT INTO {self._name("_aflow_owners")} VALUES ($1, $2, $3, $4)
                    ON CONFLICT (owner) DO UPDATE SET run = excluded.run""",
                *(self.owner, self.sink, self.table.name, self.run),
            )
            for one in sorted(prepared, key=lambda one: one.checkpoint):
                if one.rows:
                    await self.write(session, one)
            await session.execute(
                f"DELETE FROM {self._name('_aflow_staged')} WHERE owner = $1", self.owner
            )

    def _refuse_other_target(
        self, prepared: Sequence[PreparedEpoch], tables: Sequence[str]
    ) -> None:
        """Raise ``RestoreError`` unless ``tables``, those of the owner in this schema, are the table of the sink."""
        if list(tables) == [self.table.name]:
            return
        last = max(prepared, key=lambda one: (one.checkpoint, one.rows))
        holds = f"rows for table {tables[0]!r}" if tables else "nothing"
        raise RestoreError(
            f"sink {self.sink!r}: checkpoint {last.checkpoint} is of {last.place} ({last.rows:,} rows were staged "
            f"there), and the schema of table {self.table.full_name} holds {holds} of this job. Was the "
            f"address or the table of the sink changed? Give it the former ones, or a copy of the former database; "
            f"a job that starts fresh (restore='fresh') may write into any"
        )

    async def _refuse_to_repeat(
        self, session: ServerSession, prepared: Sequence[PreparedEpoch]
    ) -> None:
        """Raise ``TableIsAhead`` if the table has rows of later checkpoints, which cannot be removed."""
        newest = max((one.checkpoint for one in prepared), default=0)
        ((last,),) = await session.fetch(
            f"SELECT max(checkpoint) FROM {self._name('_aflow_commits')} WHERE owner = $1",
            self.owner,
        )
        if last is not None and last > newest:
            raise TableIsAhead(
                f"the job resumes from checkpoint {newest}, but table {self.table.name!r} has the rows up to "
                f"checkpoint {last} already, which would be duplicated: remove from it what is to be written again and "
                f"then UPDATE {self._name('_aflow_commits')} SET checkpoint = {newest} WHERE owner = '{self.owner}' "
                f"AND checkpoint > {newest}, or bring back the database of then"
            )

    def _fenced(self) -> str:
        return (
            f"table {self.table.name!r}: another job has continued from a checkpoint of this one, so this one may not "
            f"write any more: end it (owner {self.owner!r} in _aflow_owners)"
        )
