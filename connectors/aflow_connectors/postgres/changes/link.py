"""``SlotLink``: the stream of a slot, which is opened at first use and replaced after a lost connection."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aflow.connect import SourceError
from aflow_connectors.postgres.changes.messages import lsn_text
from aflow_connectors.postgres.changes.position import ChangePosition
from aflow_connectors.postgres.changes.session import (
    ReplicationServer,
    ReplicationSession,
    literal,
)
from aflow_connectors.postgres.changes.slot import (
    Names,
    PublishedTable,
    ServerFacts,
    ensure_publication,
    ensure_slot,
    published_tables,
    server_facts,
    slot_exists,
)
from aflow_connectors.postgres.changes.stream import ChangeStream
from aflow_connectors.postgres.client import Rejected
from aflow_connectors.postgres.table import quoted

_logger = logging.getLogger("aflow.connectors")

_IN_USE: Final = "55006"
_NO_PRIVILEGE: Final = "42501"

#: Longest time (s) between two statuses.
_STATUS_INTERVAL: Final = 10.0
#: Time (s) for which a slot in use is waited for, after the time in which the server ends a dead connection.
_IN_USE_MARGIN: Final = 5.0


class SlotLink:
    """The connection of one reader to its slot."""

    def __init__(self, server: ReplicationServer, names: Names) -> None:
        self.names = names
        self.server = server
        self.tables: list[PublishedTable] = []
        #: Known once the link was opened.
        self.facts = ServerFacts("", 0, 0.0, {})
        #: A connection without stream.
        self._session: ReplicationSession | None = None
        self._stream: ChangeStream | None = None
        self._confirmed = 0

    async def open(self, position: ChangePosition | None, *, snapshot: bool) -> int:
        """Look up all parts, and create missing ones if there is no position.

        Return the LSN that the slot has confirmed.

        Raises ``SourceError`` and ``ConnectionLost``.
        """
        session = await self._connected(position)
        try:
            is_continued = position is not None or (
                not snapshot and await slot_exists(session, self.names)
            )
            await ensure_publication(session, self.names, is_continued=is_continued)
            self.tables = await published_tables(session, self.names)
            return await ensure_slot(session, self.names, position)
        except Rejected as exc:
            raise SourceError(f"{self.names.place}: {self.explained(exc)}") from exc

    async def stream(self, position: ChangePosition) -> ChangeStream:
        """Return the stream, which begins at ``position`` or before it if it is a new one.

        A new one is another object. Raises ``SourceError`` and ``ConnectionLost``.
        """
        if self._stream is not None and not self._stream.has_ended:
            return self._stream
        await self._close_stream()
        session = self._session
        if session is None or not session.is_usable:
            session = await self._connected(position)
            await ensure_slot(session, self.names, position)
        await self._start(session, position)
        self._session = None
        self._stream = ChangeStream(session, interval=self._interval(), silence=self._silence())
        if self._confirmed:
            self._stream.confirm(self._confirmed)
        return self._stream

    def confirm(self, lsn: int) -> None:
        """Tell the server that what is before ``lsn`` is not needed any more, now or once there is a connection."""
        self._confirmed = max(self._confirmed, lsn)
        if self._stream is not None:
            self._stream.confirm(self._confirmed)

    def explained(self, error: Rejected) -> str:
        """Return the text of an error of the server, with the next step."""
        if error.sqlstate == _NO_PRIVILEGE:
            return f"{error}: the snapshot needs SELECT on the tables, and USAGE on their schema"
        return str(error)

    async def close(self) -> None:
        await self._close_stream()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def _connected(self, position: ChangePosition | None) -> ReplicationSession:
        """Replace the connection. Raises ``SourceError`` if it is not to the server of ``position``."""
        await self.close()
        self._session = session = await self.server.connect()
        try:
            self.facts = await server_facts(session, self.names)
        except Rejected as exc:
            raise SourceError(f"{self.names.place}: {exc}") from exc
        if position is not None and position.system != self.facts.system:
            raise SourceError(
                f"{self.names.place}: the checkpoint is of another server (system identifier {position.system}, not "
                f"{self.facts.system}), whose log positions have no meaning here: connect to that one, or start the "
                f"job fresh"
            )
        return session

    async def _start(self, session: ReplicationSession, position: ChangePosition) -> None:
        """Begin the stream. A slot in use is waited for: the server may not know yet that a former run has died."""
        start = (
            f"START_REPLICATION SLOT {quoted(self.names.slot)} LOGICAL {lsn_text(position.lsn)} "
            f"(proto_version '1', publication_names {literal(quoted(self.names.publication))})"
        )
        loop = asyncio.get_running_loop()
        patience = self.facts.sender_timeout + _IN_USE_MARGIN
        until, pause = loop.time() + patience, 0.01
        while True:
            try:
                await session.start_stream(start)
            except Rejected as exc:
                if exc.sqlstate != _IN_USE:
                    raise SourceError(f"{self.names.place}: {self.explained(exc)}") from exc
                if loop.time() > until:
                    raise SourceError(
                        f"{self.names.place}: {exc}, and has been for {patience:.0f} s: another job reads this slot. "
                        f"Stop it (pg_replication_slots has its active_pid), or use another slot="
                    ) from exc
                if pause > 1:
                    extra = {"event": "slot_in_use", "place": self.names.place}
                    _logger.warning("%s: %s; it is waited for", self.names.place, exc, extra=extra)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _IN_USE_MARGIN)
            else:
                return

    def _interval(self) -> float:
        bound = self.facts.sender_timeout / 4 or _STATUS_INTERVAL
        return min(_STATUS_INTERVAL, bound, self._silence() / 4)

    def _silence(self) -> float:
        return self.server.server.timeout.total_seconds()
