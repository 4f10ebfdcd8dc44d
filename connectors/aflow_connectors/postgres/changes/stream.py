"""The stream of changes of a slot: received by callbacks of the event loop, confirmed while nothing is read.

A server ends a stream whose client has not sent a status for ``wal_sender_timeout``. A reader may rest for longer:
backpressure, the alignment of event time, a snapshot. So statuses are sent by a timer, in no task. The socket is read
until ``_MOST_BUFFERED`` bytes of messages wait; then the server has to wait, which it does while it gets statuses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from aflow.errors import described
from aflow_connectors.postgres.changes.messages import (
    KIND_AT,
    ROW_KINDS,
    Keepalive,
    keepalive_of,
    micros_of,
    status_message,
)
from aflow_connectors.postgres.changes.session import ReplicationSession, raise_refused
from aflow_connectors.postgres.client import ConnectionLost

#: Messages with changed rows that are taken at once, at most.
_MOST_ROWS: Final = 1024
#: Bytes of messages that are read ahead.
_MOST_BUFFERED: Final = 1 << 22

_XLOG_DATA: Final = ord("w")
_KEEPALIVE: Final = ord("k")

Received: TypeAlias = bytes | Keepalive
"""An 'w' message, or the notice that all transactions up to a point were sent."""


class ChangeStream:
    """The stream of one connection, on which it was started.

    Nothing is confirmed but by ``confirm``. ``interval`` is the time (s) between two statuses, ``silence`` the time (s)
    without a message after which the connection counts as lost: the server answers each status.
    """

    def __init__(self, session: ReplicationSession, *, interval: float, silence: float) -> None:
        self._session = session
        self._pgconn = session.pgconn
        # libpq closes the socket itself when the connection is lost.
        self._socket = self._pgconn.socket
        self._interval = interval
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        #: Messages with changed rows that follow each other are one list, which is not empty.
        self._received: deque[Received | list[bytes]] = deque()
        #: Bytes of the messages in ``_received``.
        self._bytes = 0
        #: The reason for the end of the stream. Raised after the messages before it.
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        #: End of the log up to which messages were received, for the server's views.
        self._written = 0
        self._confirmed = 0
        self._heard_at = self._loop.time()
        #: True while the socket is read.
        self._reads = False
        self._is_closed = False
        self._is_released = False
        self._resume()
        self._timer: asyncio.Handle = self._loop.call_soon(self._on_timer)

    def peek(self) -> Received | None:
        """Return the next message, which ``take`` removes; None if there is none yet."""
        first = self._received[0] if self._received else None
        return first[0] if isinstance(first, list) else first

    def take(self) -> None:
        """Remove the message that ``peek`` has returned."""
        first = self._received[0]
        if isinstance(first, list):
            self.take_rows(1)
        else:
            self._received.popleft()
            if not isinstance(first, Keepalive):
                self._on_taken(len(first))

    def take_rows(self, most: int) -> Sequence[bytes]:
        """Remove and return the messages with changed rows that are next, up to ``most``."""
        # Hot path of the source.
        received = self._received
        rows = received[0] if received else None
        if not isinstance(rows, list) or most < 1:
            return []
        if len(rows) > most:
            received[0] = rows[most:]
            rows = rows[:most]
        else:
            received.popleft()
        self._on_taken(sum(map(len, rows)))
        return rows

    def _on_taken(self, size: int) -> None:
        """Read the socket again once enough of the messages were taken."""
        self._bytes -= size
        if not self._reads and self._bytes < _MOST_BUFFERED // 2 and self._error is None:
            self._resume()
            self._drain()

    async def wait(self, timeout: float) -> None:
        """Wait until there is a message, at most ``timeout`` (s).

        If there is none, raises the reason for the end of the stream: ``ConnectionLost`` or ``Rejected``.
        """
        if self._received:
            return
        if self._error is not None:
            raise self._error
        self._waiting = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._waiting
        except TimeoutError:
            pass
        finally:
            self._waiting = None

    @property
    def has_ended(self) -> bool:
        """True if no further message will be received."""
        return self._error is not None and not self._received

    def confirm(self, lsn: int) -> None:
        """Tell the server that what is before ``lsn`` is not needed any more."""
        self._confirmed = max(self._confirmed, lsn)
        if self._error is None and not self._is_closed:
            self._send_status(wants_reply=False)

    async def close(self) -> None:
        """End the stream, and close its connection."""
        if not self._is_closed:
            self._is_closed = True
            self._timer.cancel()
            self._release()
            if self._error is None:
                await self._session.end_stream()
            await self._session.close()

    def _resume(self) -> None:
        self._reads = True
        self._heard_at = self._loop.time()
        self._loop.add_reader(self._socket, self._on_readable)

    def _pause(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._socket)

    def _release(self) -> None:
        """Watch the socket no more. Later, its number may be that of another one: libpq closes a lost connection."""
        if not self._is_released:
            self._is_released = True
            self._pause()
            self._loop.remove_writer(self._socket)

    def _on_readable(self) -> None:
        self._heard_at = self._loop.time()
        self._guarded(self._pgconn.consume_input)
        if self._error is None and self._pgconn.ssl_in_use:
            # The rest of a record may be in the buffer of TLS, where the loop does not see it.
            self._guarded(self._pgconn.consume_input)
        self._drain()

    def _drain(self) -> None:
        """Take messages out of the buffer of libpq."""
        self._guarded(self._take_messages)
        if self._bytes >= _MOST_BUFFERED:
            self._pause()
        if self._received or self._error is not None:
            self._wake()

    def _take_messages(self) -> None:
        # Hot path of the source.
        get, received, data = self._pgconn.get_copy_data, self._received, b""
        rows: list[bytes] | None = None
        while self._bytes < _MOST_BUFFERED:
            size, view = get(1)
            if size <= 0:
                if size < 0:
                    self._on_end()
                break
            data = bytes(view)
            if data[0] == _XLOG_DATA:
                self._bytes += size
                if data[KIND_AT] not in ROW_KINDS:
                    received.append(data)
                    rows = None
                elif rows is None or len(rows) >= _MOST_ROWS:
                    rows = [data]
                    received.append(rows)
                else:
                    rows.append(data)
            elif data[0] == _KEEPALIVE:
                rows = None
                self._on_keepalive(keepalive_of(data))
        if data:
            # A transaction may have changes from before the commit of the preceding one.
            self._written = max(self._written, int.from_bytes(data[1:9], "big"))

    def _on_keepalive(self, keepalive: Keepalive) -> None:
        self._written = max(self._written, keepalive.end)
        if self._received and isinstance(self._received[-1], Keepalive):
            self._received.pop()
        self._received.append(keepalive)
        if keepalive.wants_reply:
            self._send_status(wants_reply=False)

    def _on_end(self) -> None:
        """Handle the end of the stream: the server has ended it, with an error or not."""
        result = self._pgconn.get_result()
        if result is not None:
            raise_refused(result)
        raise ConnectionLost("the server has ended the stream")

    def _on_timer(self) -> None:
        quiet = self._loop.time() - self._heard_at
        if self._reads and quiet > self._silence:
            self._fail(ConnectionLost(f"no message of the server for {quiet:.1f} s"))
        if self._error is None:
            self._send_status(wants_reply=self._reads)
        if self._error is None:
            self._timer = self._loop.call_later(self._interval, self._on_timer)

    def _send_status(self, *, wants_reply: bool) -> None:
        now = micros_of(datetime.now(UTC))
        status = status_message(self._written, self._confirmed, now, wants_reply=wants_reply)

        def send() -> None:
            self._pgconn.put_copy_data(status)
            self._flush()

        self._guarded(send)

    def _flush(self) -> None:
        if self._pgconn.flush():
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._guarded(self._flush)

    def _guarded(self, call: Callable[[], object]) -> None:
        """Call a function of libpq, whose error ends the stream."""
        if self._error is not None:
            return
        try:
            call()
        except Exception as exc:
            self._fail(exc)

    def _fail(self, error: Exception) -> None:
        import psycopg

        lost = isinstance(error, (psycopg.Error, OSError))
        self._error = ConnectionLost(described(error)) if lost else error
        self._release()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
