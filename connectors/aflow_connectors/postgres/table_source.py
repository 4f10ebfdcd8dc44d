"""``PostgresTable``: the rows of a table, in the order of a key.

Pages are read by keyset: each is the next rows after the last key, found by the index. So a position is a key, no
transaction stays open, and a page costs the same at the end of the table as at its begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, TypeVar, cast, overload

import msgspec
import orjson

from aflow.connect import BadRecord, Chunk, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, RestoreError, described, shown
from aflow_connectors.arguments import checked_dead_letters, checked_texts
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.json_decoder import converter
from aflow_connectors.postgres.client import TIMEOUT, Server, ServerLink, ServerSession
from aflow_connectors.postgres.table import Column, TableColumns, look_up, quoted
from aflow_connectors.postgres.text_values import to_text
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.rows import checked_columns, checked_table

T = TypeVar("T")

_RECONNECT: Final = Reconnect()

#: Types of keys whose values in Python have the text of the server.
_EXACT: Final = frozenset({"int2", "int4", "int8", "text", "varchar", "uuid"})

#: True for a unique index of all rows over some of the columns of the key, none of which may be NULL.
_IS_UNIQUE: Final = """
    SELECT EXISTS (
        SELECT 1 FROM pg_index i WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indisvalid
            AND i.indpred IS NULL AND i.indexprs IS NULL
            AND NOT EXISTS (
                SELECT 1 FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(number)
                JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
                WHERE a.attname <> ALL ($2::text[]))
    ), EXISTS (
        SELECT 1 FROM pg_attribute a
        WHERE a.attrelid = $1::regclass AND a.attname = ANY ($2::text[]) AND NOT a.attnotnull
    )"""


class PostgresTable(Source[T]):
    """Read the rows of ``table`` in the order of ``key``, once.

    ``key`` has the columns of the primary key, or of a unique index without NULL. Records are of class ``of``, from the
    columns with the names of its fields; dicts without it. ``columns`` are read (default: all), and ``where`` is a
    condition in SQL. ``page`` is the number of rows of a query. ``bounds`` are keys that divide the table into splits,
    which several subtasks read concurrently: keys before the first one, from the first one on, and so on.

    A position is the last key. Each page is a query of its own: a row that is inserted or changed meanwhile is read in
    its current form if its key is still ahead, else not. A row that is not of class ``of`` is an error, or goes to
    ``dead_letters``. Raises ``SourceError``.
    """

    @overload
    def __init__(
        self: PostgresTable[dict[str, Any]],
        dsn: str,
        table: str,
        *,
        key: str | Sequence[str],
        of: None = None,
        dead_letters: Tag[BadRecord] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        bounds: Sequence[object] = (),
        page: int = 2048,
        reconnect: Reconnect = _RECONNECT,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: str | Sequence[str],
        of: type[T],
        dead_letters: Tag[BadRecord] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        bounds: Sequence[object] = (),
        page: int = 2048,
        reconnect: Reconnect = _RECONNECT,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None: ...

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: str | Sequence[str],
        of: type[T] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        bounds: Sequence[object] = (),
        page: int = 2048,
        reconnect: Reconnect = _RECONNECT,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "PostgresTable"
        self.server = Server(owner, dsn, {} if client is None else client, reconnect, timeout)
        self.table = checked_table(owner, table)
        self.columns = checked_columns(owner, columns)
        keys = (key,) if isinstance(key, str) else tuple(checked_texts(owner, "key", key))
        if not keys or not all(keys):
            raise FlowDefinitionError(f"{owner}: key= must be names of columns, not {shown(key)}")
        self.key = keys
        if where is not None and not isinstance(where, str):
            raise FlowDefinitionError(
                f"{owner}: where= must be a condition in SQL, not {shown(where)}"
            )
        self.where = where
        if type(page) is not int or page < 1:
            raise FlowDefinitionError(f"{owner}: page= must be a number of rows, not {shown(page)}")
        self.page = page
        checked_dead_letters(owner, dead_letters)
        self.dead_letters = dead_letters
        self.bounds = _checked_bounds(owner, bounds, len(keys))
        self._convert = _converter(owner, of)

    async def splits(self) -> Sequence[Split]:
        edges = ["", *(", ".join(map(repr, bound)) for bound in self.bounds), ""]
        return [Split(f"{self.table}: {begin}..{end}") for begin, end in pairwise(edges)]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        number = [one.id for one in await self.splits()].index(split.id)
        edges, last = [None, *self.bounds, None], self._last(position)
        link = ServerLink(self.server, f"table {self.table!r}", SourceError)
        try:
            table = await look_up(link, self.table, self.columns, written=False)
            whole = await look_up(link, self.table, None, written=False)
            keys = self._keys(link, whole)
            await self._check_unique(link, table)
        except BaseException:
            await link.close()
            raise
        bad = BadRecords(f"{self.server.place}, table {self.table}", self.dead_letters)
        pages = _Pages(table, keys, self.where, edges[number], edges[number + 1])
        return _TableReader(link, pages, self._convert, bad, self.page, last)

    def _keys(self, link: ServerLink, table: TableColumns) -> Sequence[Column]:
        columns = {column.name: column for column in table.columns}
        missing = [name for name in self.key if name not in columns]
        if missing:
            raise link.error(f"there is no column {missing[0]!r}, named in key=")
        return [columns[name] for name in self.key]

    async def _check_unique(self, link: ServerLink, table: TableColumns) -> None:
        async def check(session: ServerSession) -> tuple[bool, bool]:
            ((unique, nullable),) = await session.fetch(_IS_UNIQUE, table.full_name, list(self.key))
            return unique, nullable

        unique, nullable = await link.run(check, "cannot look up the indexes")
        if not unique or nullable:
            raise link.error(
                f"key={list(self.key)} needs a unique index over columns that are NOT NULL: else rows with equal keys "
                f"would be lost between two pages"
            )

    def _last(self, position: Position | None) -> tuple[str, ...] | None:
        if position is None:
            return None
        try:
            last = msgspec.convert(position, tuple[str, ...])
        except msgspec.ValidationError:
            last = ()
        if len(last) != len(self.key):
            raise RestoreError(
                f"table {self.table!r}: {shown(position)} is no position for key={list(self.key)}: was the key changed?"
            )
        return last


class _Pages:
    """The queries of one split."""

    def __init__(
        self,
        table: TableColumns,
        keys: Sequence[Column],
        where: str | None,
        begin: tuple[str, ...] | None,
        end: tuple[str, ...] | None,
    ) -> None:
        self._names = ", ".join(map(quoted, table.names))
        self._table = table
        self._keys = keys
        # Qualified: ORDER BY would find the texts of the result first.
        self._key = ", ".join(f"{table.full_name}.{quoted(column.name)}" for column in keys)
        self._where = where
        self._begin, self._end = begin, end
        names = table.names
        #: Columns of the key whose values in Python have exact texts; None if the server has to give the texts.
        self._exact = (
            [names.index(column.name) for column in keys]
            if all(column.base in _EXACT and column.name in names for column in keys)
            else None
        )
        self.json = [
            n for n, column in enumerate(table.columns) if column.base in ("json", "jsonb")
        ]
        self.names = table.names

    async def after(
        self, session: ServerSession, last: tuple[str, ...] | None, count: int
    ) -> Sequence[Any]:
        """Return at most ``count`` rows after key ``last``, each with the texts of its key at the end."""
        values: list[object] = [count]
        conditions = [f"({self._where})"] if self._where else []
        begin = last or self._begin
        if begin is not None:
            conditions.append(self._compared(">" if last else ">=", begin, values))
        if self._end is not None:
            conditions.append(self._compared("<", self._end, values))
        texts = "".join(
            f", {quoted(column.name)}::text"
            for column in (self._keys if self._exact is None else ())
        )
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return await session.fetch(
            f"SELECT {self._names}{texts} FROM {self._table.full_name}{where} ORDER BY {self._key} LIMIT $1",
            *values,
        )

    def key_of(self, row: Sequence[Any]) -> tuple[str, ...]:
        """Return the texts of the key of ``row``."""
        if self._exact is None:
            return tuple(row)[len(self.names) :]
        return tuple([str(row[number]) for number in self._exact])

    def records(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Return ``rows`` as dicts, without texts of keys."""
        # Hot path of the source: `dict(row)` takes a fifth more time.
        names = self.names
        records = [dict(zip(names, row, strict=False)) for row in rows]
        for number in self.json:
            name = names[number]
            for record in records:
                if record[name] is not None:
                    record[name] = orjson.loads(record[name])
        return records

    def _compared(self, operator: str, key: tuple[str, ...], values: list[object]) -> str:
        given = [f"${len(values) + n + 1}::text::{c.type}" for n, c in enumerate(self._keys)]
        values += key
        return f"({self._key}) {operator} ({', '.join(given)})"


class _TableReader(Reader[T]):
    def __init__(
        self,
        link: ServerLink,
        pages: _Pages,
        convert: Callable[[dict[str, Any]], T] | None,
        bad: BadRecords,
        page: int,
        last: tuple[str, ...] | None,
    ) -> None:
        self._link = link
        self._pages = pages
        self._convert = convert
        self._bad = bad
        self._page = page
        #: Key of the last row that was fetched.
        self._last = last
        #: Rows that were fetched and not returned yet.
        self._rows: Sequence[Any] = ()

    async def read(self, limit: int) -> Chunk[T] | None:
        if not self._rows:
            await self._fetch()
        if not self._rows:
            return None
        rows, self._rows = self._rows[:limit], self._rows[limit:]
        records = self._pages.records(rows)
        position = list(self._pages.key_of(rows[-1]))
        convert = self._convert
        if convert is None:
            return Chunk(cast("list[T]", records), position)
        try:
            return Chunk(list(map(convert, records)), position)
        except (msgspec.ValidationError, ValueError):
            return self._each(rows, records, convert, position)

    def _each(
        self,
        rows: Sequence[Any],
        records: Sequence[dict[str, Any]],
        convert: Callable[[dict[str, Any]], T],
        position: Position,
    ) -> Chunk[T]:
        values: list[T] = []
        rejected: list[BadRecord] = []
        for row, record in zip(rows, records, strict=True):
            try:
                values.append(convert(record))
            except (msgspec.ValidationError, ValueError) as exc:
                raw = repr(tuple(record.values())).encode(errors="backslashreplace")
                where = f"key {', '.join(self._pages.key_of(row))}"
                rejected.append(self._bad.bad(where, str(exc), raw))
        return Chunk(values, position, rejected=rejected)

    async def _fetch(self) -> None:
        async def fetch(session: ServerSession) -> Sequence[Any]:
            return await self._pages.after(session, self._last, self._page)

        rows = await self._link.run(fetch, "cannot read the next rows")
        self._rows = rows
        if rows:
            self._last = self._pages.key_of(rows[-1])

    async def close(self) -> None:
        await self._link.close()


def _converter(owner: str, of: type[T] | None) -> Callable[[dict[str, Any]], T] | None:
    if of is None:
        return None
    try:
        return converter(of)
    except TypeError as exc:
        raise FlowDefinitionError(
            f"{owner}: of={shown(of)} is no class that rows can be converted to: {described(exc)}"
        ) from exc


def _checked_bounds(owner: str, bounds: object, columns: int) -> tuple[tuple[str, ...], ...]:
    """Return the bounds as texts. Raises ``FlowDefinitionError`` for what is no sequence of different keys."""
    if not isinstance(bounds, (list, tuple)):
        raise FlowDefinitionError(f"{owner}: bounds= must be a list of keys, not {shown(bounds)}")
    given, found = cast(Sequence[object], bounds), list[tuple[str, ...]]()
    for bound in given:
        is_key = isinstance(bound, (list, tuple))
        values = cast(Sequence[object], bound) if is_key else (bound,)
        texts = tuple(map(to_text, values))
        if len(texts) != columns or None in texts:
            raise FlowDefinitionError(
                f"{owner}: bounds= must be keys of {columns} values, not {shown(bound)}"
            )
        found.append(cast("tuple[str, ...]", texts))
    if len(set(found)) < len(found):
        raise FlowDefinitionError(f"{owner}: bounds= must be different keys, not {shown(given)}")
    return tuple(found)
