"""``EventParser``: the text of an event stream to events, as the HTML standard defines it.

Reference: https://html.spec.whatwg.org/multipage/server-sent-events.html, "Interpreting an event stream".

The parser gets bytes, in pieces of any size, and returns the complete events. An event ends with an empty line; what
follows the last one is never an event. Beyond the standard, an event of more than ``max_bytes`` is returned without
most of its data, and marked, and ``retry`` is an hour at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_BOM: Final = b"\xef\xbb\xbf"

#: The longest delay (s) that a server may ask for.
_MOST_RETRY: Final = 3600.0

#: Digits of a delay; one of more is ignored.
_MOST_DIGITS: Final = 10

#: Bytes of an event that is too large which are kept, to show them.
_KEPT: Final = 4096


class ServerSentEvent(NamedTuple):
    """An event of a stream."""

    data: bytes
    type: str
    """``message`` if the server gave none."""
    id: str
    """The last id of the stream up to this event: it may be that of an earlier event."""
    is_too_large: bool = False


class EventParser:
    """See the theory at the top of the module. ``last_id`` is the id to begin with."""

    def __init__(self, *, max_bytes: int, last_id: str = "") -> None:
        self._max_bytes = max_bytes
        #: The id of the event that is being read, also if it has no data. It is that of the stream from its end on.
        self._id = last_id
        self.last_id = last_id
        #: The delay (s) before the next connection that the server asked for.
        self.retry: float | None = None
        self._is_first_line = True
        #: True if the last piece ended with CR: an LF that follows belongs to it.
        self._after_cr = False
        #: The line without end at the end of the last piece.
        self._partial = b""
        self._data: list[bytes] = []
        self._type = ""
        #: Bytes of data since the last end of an event.
        self._size = 0

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Return the events that end in ``piece``."""
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_cr = False
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = piece.split(b"\n")
        lines[0] = self._partial + lines[0]
        self._partial = self._bounded(lines.pop())
        return self._events(lines)

    def _events(self, lines: Sequence[bytes]) -> list[ServerSentEvent]:
        # Hot path: once for each line.
        events: list[ServerSentEvent] = []
        for line in lines:
            if self._is_first_line:
                self._is_first_line = False
                line = line.removeprefix(_BOM)
            if not line:
                if (event := self._end_event()) is not None:
                    events.append(event)
                continue
            name, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                self._add_data(value)
            elif name:
                self._set_field(name, value)
        return events

    def _add_data(self, value: bytes) -> None:
        self._size += len(value) + 1
        if self._size <= self._max_bytes + 1 or not self._data:
            self._data.append(value)

    def _set_field(self, name: bytes, value: bytes) -> None:
        if name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _MOST_DIGITS:
            self.retry = min(int(value) / 1000, _MOST_RETRY)

    def _end_event(self) -> ServerSentEvent | None:
        self.last_id = self._id
        data, self._data = self._data, []
        kind, self._type = self._type, ""
        size, self._size = self._size, 0
        if not data:
            return None
        whole = data[0] if len(data) == 1 else b"\n".join(data)
        if size > self._max_bytes + 1:
            return ServerSentEvent(whole[:_KEPT], kind or "message", self._id, is_too_large=True)
        return ServerSentEvent(whole, kind or "message", self._id)

    def _bounded(self, partial: bytes) -> bytes:
        """Return a line without end, cut if it is too long; its event will be too large."""
        if len(partial) <= self._max_bytes + _KEPT:
            return partial
        self._size += len(partial)
        return partial[:_KEPT]
