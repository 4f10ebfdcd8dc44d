"""A table of the database, its columns, and the statements that write into it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, cast

from aflow_connectors.postgres.chunks import (
    CopyRow,
    PlainRow,
    PlainTable,
    are_plain,
    refuse_plain_surrogates,
)
from aflow_connectors.postgres.client import Rejected, ServerLink, ServerSession
from aflow_connectors.postgres.text_values import (
    TextRejected,
    TextRow,
    converter,
    copy_lines,
    copy_payload,
    refuse_surrogates,
    text_array,
    texts_of,
)
from aflow_connectors.rows import RowRejected

_LINE: Final = re.compile(r"\bline (\d+)")
#: SQLSTATE: ON CONFLICT would change a row twice.
_TWICE: Final = "21000"
_NO_UNIQUE_INDEX: Final = "42P10"
_NO_PRIVILEGE: Final = "42501"

_FIND: Final = """
    SELECT c.oid, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND (n.nspname = $1 OR ($1::text IS NULL AND pg_table_is_visible(c.oid)))"""
_COLUMNS: Final = """
    SELECT a.attname, format_type(a.atttypid, -1), coalesce(b.typname, t.typname),
        coalesce(b.typcategory, t.typcategory)::text, a.attgenerated <> '' OR a.attidentity = 'a'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        LEFT JOIN pg_type b ON t.typbasetype <> 0 AND b.oid = t.typbasetype
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """Name of the type without length or precision, for casts: those of the table apply at the assignment."""
    base: str
    category: str
    generated: bool


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table, with the columns that are read or written."""

    schema: str
    name: str
    columns: tuple[Column, ...]

    @property
    def full_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def texts(self, rows: Sequence[Sequence[object]]) -> list[TextRow]:
        """Return ``rows`` as text. Raises ``TypeError`` or ``ValueError`` for a value that has none."""
        return list(zip(*self._columns_of(rows), strict=True))

    def lines(self, rows: Sequence[Sequence[object]]) -> list[str]:
        """Return ``rows`` as lines of COPY. Raises ``TypeError`` or ``ValueError`` for a value that has none."""
        return copy_lines(self._columns_of(rows))

    def copied(self) -> Callable[[Sequence[Sequence[object]]], list[CopyRow]]:
        """Return a function that returns rows as plain ones if all are plain, else as ``lines`` does."""
        plain = PlainTable([column.type for column in self.columns])

        def convert(rows: Sequence[Sequence[object]]) -> list[CopyRow]:
            if plain.has(rows):
                if rows and type(rows[0]) is not tuple:
                    # The client takes twice the time for NamedTuples.
                    return list[CopyRow](map(tuple, rows))
                return cast("list[CopyRow]", rows)
            return list[CopyRow](self.lines(rows))

        return convert

    def _columns_of(self, rows: Sequence[Sequence[object]]) -> list[Sequence[str | None]]:
        # Hot path of the sinks: a pass for each column takes a third of the time of zip(*rows).
        return [
            texts_of(converter(column.base, column.category), list(map(itemgetter(number), rows)))
            for number, column in enumerate(self.columns)
        ]


async def look_up(
    link: ServerLink, name: str, columns: Sequence[str] | None, *, written: bool
) -> TableColumns:
    """Look up the table. Raises the error of the connector if it, or one of ``columns``, is missing.

    Without ``columns``, it has all of them; if it is ``written``, without those that the server generates.
    """
    schema, _, table = name.rpartition(".")

    async def find(session: ServerSession) -> tuple[Sequence[object], Sequence[Column]] | None:
        found = await session.fetch(_FIND, schema or None, table)
        if not found:
            return None
        rows = await session.fetch(_COLUMNS, found[0][0])
        return found[0], [Column(*row) for row in rows]

    found = await link.run(find, f"cannot look up table {name!r}")
    if found is None:
        raise link.error(
            f"there is no table {name!r} in the {'schema' if schema else 'search path'}; make it before the job starts"
        )
    by_name = {column.name: column for column in found[1]}
    unknown = [column for column in columns or () if column not in by_name]
    if unknown:
        raise link.error(f"table {name!r} has no column {unknown[0]!r}; it has {list(by_name)}")
    default = [column.name for column in found[1] if not (written and column.generated)]
    chosen = [by_name[column] for column in (default if columns is None else columns)]
    return TableColumns(str(found[0][1]), table, tuple(chosen))


class Append:
    """Appends rows by COPY."""

    def __init__(self, table: TableColumns) -> None:
        self.table = table

    async def write(self, session: ServerSession, rows: Sequence[CopyRow]) -> None:
        """Write ``rows``, of one kind, in a transaction. Raises ``RowRejected`` or ``Rejected``."""
        try:
            if are_plain(rows):
                await self._load_checked(session, cast(Sequence[PlainRow], rows))
                return
            payload = copy_payload(cast(Sequence[str], rows))
        except TextRejected as exc:
            raise RowRejected(exc.index, exc) from exc
        await self.load(session, payload)

    async def _load_checked(self, session: ServerSession, rows: Sequence[PlainRow]) -> None:
        """Load plain rows. Raises ``TextRejected``, too."""
        try:
            await self.load_plain(session, rows)
        except UnicodeEncodeError:
            refuse_plain_surrogates(rows)
            raise

    async def prepare(self, session: ServerSession) -> None:
        """Prepare the session for ``load``; outside of a transaction. A no-op."""

    async def load(self, session: ServerSession, payload: bytes) -> int:
        """Load rows. Raises ``RowRejected`` or ``Rejected``."""
        table = self.table
        return await _numbered(session.copy(table.schema, table.name, table.names, payload))

    async def load_plain(self, session: ServerSession, rows: Sequence[PlainRow]) -> None:
        """Load plain rows. Raises ``RowRejected`` or ``Rejected``."""
        table = self.table
        await _numbered(session.copy_rows(table.schema, table.name, table.names, rows))

    async def finish(self, session: ServerSession) -> None:
        """Write what was loaded into the table. A no-op."""


class Upsert:
    """Replaces rows by their key."""

    #: Name of the temporary table of a session.
    _LOADED: Final = "_aflow_loaded"

    def __init__(self, table: TableColumns, key: Sequence[str]) -> None:
        self.table = table
        self._key = [table.names.index(name) for name in key]
        # Literals, since the client tests the class of each element of a list, twice.
        types = ", ".join(f"${n}::text::text[]" for n in range(1, len(table.columns) + 1))
        names = ", ".join(f"c{n}" for n in range(len(table.columns)))
        casts = ", ".join(f"r.c{n}::{column.type}" for n, column in enumerate(table.columns))
        self._columns = ", ".join(map(quoted, table.names))
        conflict = _on_conflict(table.names, key)
        self.statement = (
            f"INSERT INTO {table.full_name} ({self._columns}) "
            f"SELECT {casts} FROM unnest({types}) AS r({names}) {conflict}"
        )
        keys = ", ".join(map(quoted, key))
        self._merge = (
            f"INSERT INTO {table.full_name} ({self._columns}) SELECT {self._columns} FROM "
            f"(SELECT DISTINCT ON ({keys}) * FROM pg_temp.{self._LOADED} "
            f"ORDER BY {keys}, _aflow_number DESC) AS loaded {conflict}"
        )

    async def check(self, session: ServerSession) -> None:
        """Raise ``Rejected`` if the server rejects the statement."""
        await session.execute(
            f"EXPLAIN {self.statement}", *[text_array(()) for _ in self.table.columns]
        )

    async def write(self, session: ServerSession, rows: Sequence[TextRow]) -> None:
        """Write ``rows`` in a transaction. Raises ``RowRejected`` or ``Rejected``."""
        last = list(dict(zip(map(itemgetter(*self._key), rows), rows, strict=True)).values())
        try:
            await self._write(session, last)
        except Rejected as exc:
            if exc.sqlstate == _TWICE:
                # Different texts of equal keys, like 1 and 1.0.
                async with session.transaction():
                    for row in last:
                        await self._write(session, [row])
            elif exc.is_of_row:
                index = await self._first_rejected(session, last)
                raise RowRejected(rows.index(last[index]), exc) from exc
            else:
                raise
        except UnicodeEncodeError:
            for index, row in enumerate(rows):
                try:
                    refuse_surrogates(index, row)
                except TextRejected as exc:
                    raise RowRejected(index, exc) from exc
            raise

    async def _write(self, session: ServerSession, rows: Sequence[TextRow]) -> None:
        await session.execute(self.statement, *map(text_array, zip(*rows, strict=True)))

    async def _first_rejected(self, session: ServerSession, rows: Sequence[TextRow]) -> int:
        """Return the index of the first row that the table rejects, by trials that are rolled back."""
        good, bad = 0, len(rows)  # rows[:good] are accepted, and rows[:bad] are not
        while bad - good > 1:
            middle = (good + bad) // 2
            await session.execute("BEGIN")
            try:
                await self._write(session, rows[:middle])
                good = middle
            except Rejected:
                bad = middle
            finally:
                await session.roll_back()
        return good

    async def prepare(self, session: ServerSession) -> None:
        """Prepare the session for ``load``; outside of a transaction."""
        await session.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {self._LOADED} (LIKE {self.table.full_name} INCLUDING DEFAULTS "
            f"INCLUDING CONSTRAINTS INCLUDING GENERATED, _aflow_number bigserial) ON COMMIT DELETE ROWS"
        )

    async def load(self, session: ServerSession, payload: bytes) -> int:
        """Load rows into the temporary table. Raises ``RowRejected`` or ``Rejected``."""
        return await _numbered(session.copy(None, self._LOADED, self.table.names, payload))

    async def load_plain(self, session: ServerSession, rows: Sequence[PlainRow]) -> None:
        """Load plain rows into the temporary table. Raises ``RowRejected`` or ``Rejected``."""
        await _numbered(session.copy_rows(None, self._LOADED, self.table.names, rows))

    async def finish(self, session: ServerSession) -> None:
        """Write the last row of each key into the table. Raises ``Rejected``."""
        await session.execute(self._merge)


WriteMethod = Append | Upsert


async def _numbered(copy: Awaitable[int]) -> int:
    """Return the number of copied rows. Raises ``RowRejected`` for an error of one of them."""
    try:
        return await copy
    except Rejected as exc:
        line = _LINE.search(exc.context)
        if exc.is_of_row and line is not None:
            raise RowRejected(int(line[1]) - 1, exc) from exc
        raise


def _on_conflict(columns: Sequence[str], key: Sequence[str]) -> str:
    others = [quoted(column) for column in columns if column not in key]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    action = f"UPDATE SET {changes}" if others else "NOTHING"
    return f"ON CONFLICT ({', '.join(map(quoted, key))}) DO {action}"


def advice(error: Rejected) -> str:
    """Return the next step for an error of the server."""
    if error.sqlstate == _NO_UNIQUE_INDEX:
        return " (the columns of key= are no primary key: make a unique index over them)"
    if error.sqlstate == _NO_PRIVILEGE:
        return " (the role of the address needs this privilege: GRANT)"
    return ""


def quoted(name: str) -> str:
    """Return ``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
