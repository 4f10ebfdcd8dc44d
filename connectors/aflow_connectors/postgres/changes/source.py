"""``PostgresChanges``: change data capture from a logical replication slot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, cast, overload

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters, checked_texts
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.postgres.changes.change import Change
from aflow_connectors.postgres.changes.link import SlotLink
from aflow_connectors.postgres.changes.reader import ChangesReader, ReaderSettings
from aflow_connectors.postgres.changes.row_decoder import RecordType, record_type
from aflow_connectors.postgres.changes.session import ReplicationServer, checked_parameters
from aflow_connectors.postgres.changes.slot import Names
from aflow_connectors.postgres.changes.table_changes import TableChanges
from aflow_connectors.postgres.client import TIMEOUT, ConnectionLost, Server
from aflow_connectors.reconnect import Reconnect, Retries
from aflow_connectors.rows import checked_table

T = TypeVar("T")

#: The names that the server accepts.
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
_IDLE_AFTER: Final = timedelta(seconds=5)
_RECONNECT: Final = Reconnect()
_OWNER: Final = "PostgresChanges"


class ChangesOptions(TypedDict, total=False):
    """The arguments of ``PostgresChanges`` that have no influence on the type of its records."""

    dead_letters: Tag[BadRecord] | None
    reconnect: Reconnect
    publication: str | None
    snapshot: bool
    require_before: bool
    until: Literal["now"] | None
    idle_after: timedelta | None
    page: int
    timeout: timedelta
    client: Mapping[str, object] | None


class PostgresChanges(Source[Change[T]]):
    """Read the rows of ``tables``, and then each change of them, in the order of the commits.

    ``slot`` is the name of a logical replication slot, which is created if the job starts fresh and there is none. The
    server keeps its log for the slot until checkpoints confirm it, also while no job runs: drop a slot that is not
    needed any more. Changes are those that ``publication`` sends; without it, a publication with the name of the slot
    is created. Records are ``Change``, with rows of class ``of``, or of a class for each table by its name; dicts
    without it. The commit time is their event time.

    With ``snapshot`` the rows that the tables have are read first, as inserts. A job that starts fresh without it
    continues where the slot is, a new one at the current end. ``until="now"`` ends at the end that the log has at the
    start. ``page`` is the number of rows of a query of the snapshot. After ``idle_after`` without changes the source
    does not hold event time back. With ``require_before`` a table without ``REPLICA IDENTITY FULL`` is refused, so
    each update and delete has its row ``before``. A change that is not of class ``of`` is an error, or goes to
    ``dead_letters``. ``timeout`` bounds a statement, and the time without an answer after which a connection is
    replaced. ``client`` are parameters of libpq. Raises ``SourceError``.
    """

    bounded = False
    max_parallelism = 1
    needs_checkpoints = True

    @overload
    def __init__(
        self: PostgresChanges[dict[str, Any]],
        dsn: str,
        tables: str | Sequence[str],
        *,
        slot: str,
        of: None = None,
        **options: Unpack[ChangesOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        dsn: str,
        tables: str | Sequence[str],
        *,
        slot: str,
        of: type[T] | Mapping[str, type[T]],
        **options: Unpack[ChangesOptions],
    ) -> None: ...

    def __init__(
        self,
        dsn: str,
        tables: str | Sequence[str],
        *,
        slot: str,
        of: type[Any] | Mapping[str, type[Any]] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        reconnect: Reconnect = _RECONNECT,
        publication: str | None = None,
        snapshot: bool = True,
        require_before: bool = False,
        until: Literal["now"] | None = None,
        idle_after: timedelta | None = _IDLE_AFTER,
        page: int = 2048,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        server = Server(_OWNER, dsn, reconnect=reconnect, timeout=timeout)
        self.server = ReplicationServer(server, checked_parameters(_OWNER, dsn, client))
        names = (
            (tables,) if isinstance(tables, str) else tuple(checked_texts(_OWNER, "tables", tables))
        )
        if not names or len(set(names)) < len(names):
            raise FlowDefinitionError(
                f"{_OWNER}: the tables must be different names, at least one, not {shown(tables)}"
            )
        for name in names:
            checked_table(_OWNER, name)
        if not isinstance(slot, str) or not _SLOT_NAME.fullmatch(slot):
            raise FlowDefinitionError(
                f"{_OWNER}: slot= must have lower-case letters, digits and _ only, at most 63, not {shown(slot)}"
            )
        if publication is not None and not (isinstance(publication, str) and publication):
            raise FlowDefinitionError(
                f"{_OWNER}: publication= must be a name, not {shown(publication)}"
            )
        self.names = Names(
            f"{server.place}, slot {slot!r}",
            slot,
            publication or slot,
            publication is None,
            names,
            _checked_flag("require_before", require_before),
        )
        checked_dead_letters(_OWNER, dead_letters)
        self.dead_letters = dead_letters
        if until not in (None, "now"):
            raise FlowDefinitionError(f"{_OWNER}: until= must be 'now' or None, not {shown(until)}")
        self.bounded = until == "now"
        self.needs_checkpoints = not self.bounded
        self._settings = ReaderSettings(
            _checked_flag("snapshot", snapshot),
            self.bounded,
            _checked_page(page),
            _checked_idle(idle_after),
        )
        self._types = _record_types(of, names)

    async def splits(self) -> Sequence[Split]:
        return [Split(self.names.slot)]

    async def reader(self, split: Split, position: Position | None) -> Reader[Change[T]]:
        place = self.names.place
        retries = Retries(
            place, self.server.server.reconnect, lost=(ConnectionLost,), failed=SourceError
        )
        tables = TableChanges[T](
            place,
            self._types,
            BadRecords(place, self.dead_letters),
            require_before=self.names.require_before,
        )
        link = SlotLink(self.server, self.names)
        reader: ChangesReader[T] = ChangesReader(link, tables, retries, position, self._settings)
        try:
            await reader.open()
        except BaseException:
            await reader.close()
            raise
        return reader


def _record_types(of: object, tables: Sequence[str]) -> dict[str, RecordType]:
    """Return the type of the records of each table. Raises ``FlowDefinitionError``."""
    if not isinstance(of, Mapping):
        return dict.fromkeys(tables, record_type(_OWNER, cast("type[Any] | None", of)))
    by_table = cast("Mapping[str, type[Any]]", of)
    if set(by_table) != set(tables):
        raise FlowDefinitionError(
            f"{_OWNER}: of= must have a class for each of the tables {list(tables)}, and no others, not for "
            f"{list(by_table)}"
        )
    return {name: record_type(_OWNER, one) for name, one in by_table.items()}


def _checked_flag(argument: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise FlowDefinitionError(
            f"{_OWNER}: {argument}= must be True or False, not {shown(value)}"
        )
    return value


def _checked_page(page: object) -> int:
    if type(page) is not int or page < 1:
        raise FlowDefinitionError(f"{_OWNER}: page= must be a number of rows, not {shown(page)}")
    return page


def _checked_idle(idle_after: object) -> float | None:
    if idle_after is None:
        return None
    if not isinstance(idle_after, timedelta) or idle_after <= timedelta(0):
        raise FlowDefinitionError(
            f"{_OWNER}: idle_after= must be a positive timedelta or None, not {shown(idle_after)}"
        )
    return idle_after.total_seconds()
