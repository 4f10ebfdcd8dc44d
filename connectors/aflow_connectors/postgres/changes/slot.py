"""The slot and the publication of a source: looked up, checked, and created when a job starts fresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aflow.connect import SourceError
from aflow_connectors.postgres.changes.messages import lsn_of, lsn_text
from aflow_connectors.postgres.changes.position import ChangePosition
from aflow_connectors.postgres.changes.session import ReplicationSession, literal, texts_literal
from aflow_connectors.postgres.client import Rejected
from aflow_connectors.postgres.table import quoted

_NO_PRIVILEGE: Final = "42501"
_NO_FREE_SLOT: Final = "53400"
_EXISTS: Final = "42710"

#: Statements in a message.
_MOST_LISTED: Final = 20

#: The collation of a column, if it is not that of the database.
_COLLATION: Final = (
    "(SELECT format(' COLLATE %I.%I', n.nspname, l.collname) FROM pg_collation l "
    "JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = a.attcollation AND l.collname <> 'default')"
)

#: The server's version since which publications have lists of columns and conditions.
_LISTS_COLUMNS: Final = 150_000
#: The server's version since which the list of columns has generated ones only if they are published.
_LISTS_GENERATED: Final = 180_000


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of the source. ``given`` is its name there; ``condition`` (SQL) the rows that are published."""

    given: str
    schema: str
    name: str
    columns: tuple[str, ...]
    condition: str | None
    key: tuple[str, ...]
    """Columns of the index of the replica identity, or of the primary key if that is full; empty if there is none.

    In the order of the index."""
    key_types: tuple[str, ...]
    """Their types and collations, for casts."""
    oid: int
    """The table itself: it keeps its oid when it is renamed."""

    @property
    def full_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a user has chosen."""

    place: str
    """The server and the slot, for messages."""
    slot: str
    publication: str
    owns_publication: bool
    """True if the publication is created when it is missing."""
    tables: tuple[str, ...]
    require_before: bool = False
    """True: tables without ``REPLICA IDENTITY FULL`` are refused."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Answers of the server that do not change during a connection."""

    system: str
    """The identifier of the server."""
    flushed: int
    """The end of its log, when it was asked."""
    sender_timeout: float
    """Seconds without a status after which it ends a stream; 0: never."""
    domains: dict[int, int]
    """The type of each domain, by oids."""


async def server_facts(session: ReplicationSession, names: Names) -> ServerFacts:
    """Ask the server. Raises ``SourceError`` if it does not log what changes need."""
    system, _, flushed, _ = (await session.query("IDENTIFY_SYSTEM")).texts()[0]
    ((level,),) = (await session.query("SHOW wal_level")).texts()
    if level != "logical":
        raise SourceError(
            f"{names.place}: the server has wal_level = {level}, and changes need 'logical': set it (ALTER SYSTEM SET "
            f"wal_level = 'logical') and restart the server"
        )
    timeout = "SELECT setting::float8 / 1000 FROM pg_settings WHERE name = 'wal_sender_timeout'"
    ((seconds,),) = (await session.query(timeout)).texts()
    domains = await session.query("SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'")
    direct = {int(oid): int(base) for oid, base in domains.texts()}
    based = dict(direct)
    for oid, base in direct.items():
        while base in direct:  # a domain over a domain
            base = direct[base]
        based[oid] = base
    return ServerFacts(system, lsn_of(flushed), float(seconds), based)


async def published_tables(session: ReplicationSession, names: Names) -> list[PublishedTable]:
    """Return the tables. Raises ``SourceError`` if one does not exist or is not published."""
    found = [await _found(session, names, one) for one in names.tables]
    return [await _published(session, names, given, *table) for given, table in found]


async def slot_exists(session: ReplicationSession, names: Names) -> bool:
    """Return True if there is a slot of that name."""
    sql = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = {literal(names.slot)}"
    return bool((await session.query(sql)).rows)


async def ensure_publication(
    session: ReplicationSession, names: Names, *, is_continued: bool
) -> None:
    """Create the publication if it is missing and has the name of the slot.

    Raises ``SourceError``, also if it is missing and the slot ``is_continued``: the server does not send what was
    committed before the publication was created.
    """
    exists = f"SELECT 1 FROM pg_publication WHERE pubname = {literal(names.publication)}"
    if (await session.query(exists)).rows:
        return
    if not names.owns_publication:
        raise SourceError(
            f"{names.place}: there is no publication {names.publication!r} in this database: create it (CREATE "
            f"PUBLICATION … FOR TABLE …), or omit publication="
        )
    if is_continued:
        raise SourceError(
            f"{names.place}: the slot is continued, and there is no publication {names.publication!r}: changes since "
            f"the slot was created would not be sent. Drop the slot (SELECT pg_drop_replication_slot("
            f"{literal(names.slot)})), or start the job fresh with snapshot=True"
        )
    tables = [table for _, table in [await _found(session, names, one) for one in names.tables]]
    listed = ", ".join(f"{quoted(schema)}.{quoted(name)}" for _, schema, name in tables)
    create = (
        f"CREATE PUBLICATION {quoted(names.publication)} FOR TABLE {listed} "
        f"WITH (publish_via_partition_root = true)"
    )
    try:
        await session.query(create)
    except Rejected as exc:
        if exc.sqlstate == _EXISTS:
            return
        next_step = (
            f"; let the owner of the tables run: {create}" if exc.sqlstate == _NO_PRIVILEGE else ""
        )
        raise SourceError(
            f"{names.place}: cannot create publication {names.publication!r}: {exc}{next_step}"
        ) from exc


async def _found(
    session: ReplicationSession, names: Names, given: str
) -> tuple[str, tuple[str, str, str]]:
    """Return oid, schema and name of the table ``given``."""
    schema, _, name = given.rpartition(".")
    where = f"n.nspname = {literal(schema)}" if schema else "pg_table_is_visible(c.oid)"
    rows = await session.query(
        f"SELECT c.oid, n.nspname, c.relname, c.relreplident FROM pg_class c "
        f"JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.relname = {literal(name)} AND c.relkind IN ('r', 'p') AND {where}"
    )
    if not rows.rows:
        raise SourceError(
            f"{names.place}: there is no table {given!r} in the {'schema' if schema else 'search path'}"
        )
    oid, found_schema, found_name, identity = rows.texts()[0]
    if names.require_before:
        root = [] if identity == "f" else [(found_schema, found_name)]
        lacking = root + await _partitions_without_before(session, oid)
        if lacking:
            raise SourceError(f"{names.place}, table {given!r}: {_without_before(lacking)}")
    return given, (oid, found_schema, found_name)


async def _partitions_without_before(
    session: ReplicationSession, oid: str
) -> list[tuple[str, str]]:
    """Return schemas and names of the leaf partitions that do not log the rows before their changes.

    The server writes to its log by the replica identity of the leaf, but declares that of the root to the source: a
    key alone arrives as a whole row.
    """
    rows = await session.query(
        f"SELECT n.nspname, c.relname FROM pg_partition_tree({oid}) p JOIN pg_class c ON c.oid = p.relid "
        f"JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE p.isleaf AND p.level > 0 AND c.relkind = 'r' AND c.relreplident <> 'f' ORDER BY 1, 2"
    )
    return [(schema, name) for schema, name in rows.texts()]


def _without_before(tables: Sequence[tuple[str, str]]) -> str:
    """Return the message for ``tables`` that lack the replica identity, with the statements that set it."""
    listed = "; ".join(
        f"ALTER TABLE {quoted(schema)}.{quoted(name)} REPLICA IDENTITY FULL"
        for schema, name in tables[:_MOST_LISTED]
    )
    more = len(tables) - _MOST_LISTED
    return (
        f"it sends no rows before their changes, as require_before=True demands: {listed}"
        f"{f'; and so for {more} further partitions' if more > 0 else ''}"
    )


async def _published(
    session: ReplicationSession, names: Names, given: str, oid: str, schema: str, name: str
) -> PublishedTable:
    version = session.pgconn.server_version
    lists = version >= _LISTS_COLUMNS
    generated = "true" if version >= _LISTS_GENERATED else "a.attgenerated = ''"
    rows = await session.query(
        f"SELECT a.attname, {'p.rowfilter' if lists else 'NULL'} FROM pg_publication_tables p "
        f"JOIN pg_attribute a ON a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND {generated} "
        f"{'AND a.attname = ANY (p.attnames)' if lists else ''} WHERE p.pubname = {literal(names.publication)} "
        f"AND p.schemaname = {literal(schema)} AND p.tablename = {literal(name)} ORDER BY a.attnum"
    )
    if not rows.rows:
        raise SourceError(
            f"{names.place}: publication {names.publication!r} has no table {given!r}: add it (ALTER PUBLICATION "
            f"{quoted(names.publication)} ADD TABLE {quoted(schema)}.{quoted(name)}); changes before that are not sent"
        )
    key = await session.query(
        f"SELECT a.attname, format_type(a.atttypid, -1) || coalesce({_COLLATION}, '') FROM pg_index i "
        f"JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = i.indrelid AND "
        f" a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) WHERE i.indrelid = {oid} AND "
        f"CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END "
        f"ORDER BY array_position(i.indkey::int2[], a.attnum)"
    )
    columns = tuple(name for name, _ in rows.texts())
    keys = key.texts()
    return PublishedTable(
        given,
        schema,
        name,
        columns,
        rows.texts()[0][1] or None,
        tuple(one for one, _ in keys),
        tuple(type_ for _, type_ in keys),
        int(oid),
    )


async def ensure_slot(
    session: ReplicationSession, names: Names, position: ChangePosition | None
) -> int:
    """Return the LSN that the slot has confirmed. Create the slot if it is missing and there is no ``position``.

    Raises ``SourceError`` if the changes after ``position`` are lost, or if the slot is not one of this source.
    """
    sql = (
        "SELECT coalesce(plugin, ''), coalesce(database, ''), current_database(), "
        "coalesce(confirmed_flush_lsn, '0/0'), coalesce(wal_status, '') FROM pg_replication_slots "
        f"WHERE slot_name = {literal(names.slot)}"
    )
    found = (await session.query(sql)).texts()
    if not found:
        if position is not None:
            raise SourceError(
                f"{names.place}: the slot was dropped, and with it the changes after {lsn_text(position.lsn)}, where "
                f"the checkpoint continues: start the job fresh, which reads a snapshot again"
            )
        return await _created(session, names)
    plugin, database, current, confirmed, status = found[0]
    if plugin != "pgoutput" or database != current:
        of = f"of plugin {plugin!r} and database {database!r}" if plugin else "a physical one"
        raise SourceError(
            f"{names.place}: the slot is {of}; it must be one of 'pgoutput' and {current!r}: choose another slot="
        )
    if status == "lost":
        raise SourceError(
            f"{names.place}: the server has removed the log that the slot needs (max_slot_wal_keep_size), so changes "
            f"are lost: drop the slot (SELECT pg_drop_replication_slot({literal(names.slot)})) and start the job fresh"
        )
    if position is not None and lsn_of(confirmed) > position.lsn:
        raise SourceError(
            f"{names.place}: the checkpoint continues at {lsn_text(position.lsn)}, and the slot has confirmed "
            f"{confirmed}: it was created again, or a later checkpoint of this job has confirmed it. Changes between "
            f"them are not sent again: continue from the latest checkpoint, or start the job fresh"
        )
    return lsn_of(confirmed)


async def _created(session: ReplicationSession, names: Names) -> int:
    create = f"CREATE_REPLICATION_SLOT {quoted(names.slot)} LOGICAL pgoutput NOEXPORT_SNAPSHOT"
    # It waits for the transactions that are open now.
    try:
        rows = await session.query(create, bounded=False)
    except Rejected as exc:
        raise _without_slot(names, exc) from exc
    return lsn_of(rows.texts()[0][1])


def _without_slot(names: Names, error: Rejected) -> SourceError:
    next_step = ""
    if error.sqlstate == _NO_FREE_SLOT:
        next_step = "; raise max_replication_slots, or drop a slot that is not used (pg_replication_slots lists them)"
    elif error.sqlstate == _NO_PRIVILEGE:
        next_step = "; the role needs the attribute REPLICATION (ALTER ROLE … REPLICATION)"
    return SourceError(f"{names.place}: cannot create a slot: {error}{next_step}")


async def begin_snapshot(session: ReplicationSession, names: Names, suffix: str) -> tuple[int, int]:
    """Begin a transaction that sees what was committed before an LSN, and nothing else.

    Return the LSN and the time (µs). The snapshot is that of a temporary slot, which the server drops with the
    connection.
    """
    await session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    name = f"{names.slot[:40]}_{suffix}"
    create = f"CREATE_REPLICATION_SLOT {quoted(name)} TEMPORARY LOGICAL pgoutput USE_SNAPSHOT"
    try:
        rows = await session.query(create, bounded=False)
    except Rejected as exc:
        raise _without_slot(names, exc) from exc
    micros = "SELECT (extract(epoch FROM now()) * 1000000)::bigint - 946684800000000"
    return lsn_of(rows.texts()[0][1]), int((await session.query(micros)).texts()[0][0])


async def up_to(
    session: ReplicationSession,
    table: PublishedTable,
    last: Sequence[str],
    keys: Sequence[Sequence[str]],
) -> list[bool]:
    """Return for each of ``keys`` whether it is at most ``last`` in the order of the table's key."""
    columns = [texts_literal([key[number] for key in keys]) for number in range(len(last))]
    names = [f"k{number}" for number in range(len(last))]
    given = ", ".join(f"{name}::{kind}" for name, kind in zip(names, table.key_types, strict=True))
    bound = ", ".join(map(typed, last, table.key_types))
    rows = await session.query(
        f"SELECT (ROW({given}) <= ROW({bound}))::integer FROM unnest({', '.join(columns)}) WITH ORDINALITY "
        f"AS u({', '.join(names)}, n) ORDER BY n"
    )
    return [value == "1" for (value,) in rows.texts()]


def typed(text: str, kind: str) -> str:
    """Return ``text`` as a literal of a type."""
    return f"{literal(text)}::{kind}"
