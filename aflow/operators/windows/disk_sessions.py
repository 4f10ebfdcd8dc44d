"""Sessions that may be on disk: their rows, and their timers.

The newest session of a key is one row, and the list of its other sessions is another one. A timer is one of a key, and
not of a session: when it fires, all sessions of the key are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeAlias, cast

from aflow.model.codecs import PLAIN, Codec, decode_all
from aflow.model.time import Timestamp
from aflow.operators.pieces import CHUNK
from aflow.state.backend import KeyTimerQueue
from aflow.state.keyed_entries import KeyRow

#: Numbers of the rows of newest and of other sessions.
NEWEST: Final = 0
OTHERS: Final = 1


class OpenSession:
    """The records of a key between two gaps."""

    __slots__ = ("end", "fired", "firings", "held", "key", "retired", "start")

    def __init__(
        self,
        key: Hashable,
        start: Timestamp,
        end: Timestamp,
        held: Any,
        firings: int = 0,
        fired: bool = False,
    ) -> None:
        self.key = key
        self.start = start
        self.end = end
        self.held = held
        self.firings = firings
        #: True if the watermark has reached the last timestamp: the session has fired, and is kept for late records.
        self.fired = fired
        #: True once the session was merged into another; its timer has no effect then.
        self.retired = False


SessionRow: TypeAlias = "OpenSession | list[OpenSession]"


class SessionRows:
    """Encodes a session as in a snapshot, and a list of them as a list of these."""

    def __init__(self, codec: Codec[Any]) -> None:
        self._codec = codec

    def encode(self, row: SessionRow) -> bytes:
        """Return the bytes of a row. Raises ``CodecError``."""
        parts = self._parts(row) if isinstance(row, OpenSession) else list(map(self._parts, row))
        return PLAIN.encode(parts)

    def encode_all(self, rows: Sequence[SessionRow]) -> list[bytes]:
        """Return the bytes of rows. Raises ``CodecError``."""
        return list(map(self.encode, rows))

    def decode_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[SessionRow]:
        """Return the rows of ``keys``."""
        return [
            self._decoded(key, parts)
            for key, parts in zip(keys, decode_all(PLAIN, stored), strict=True)
        ]

    def entries(self, number: int, key: Hashable, data: bytes) -> Iterable[KeyRow]:
        """Return the entries of a row for a snapshot."""
        if number == NEWEST:
            return ((key, data),)
        return [(key, PLAIN.encode(one)) for one in cast("list[object]", PLAIN.decode(data))]

    def _decoded(self, key: Hashable, row: object) -> SessionRow:
        parts = cast("list[Any]", row)
        if isinstance(parts[0], bytes):
            return self._session(key, parts)
        return [self._session(key, one) for one in parts]

    def _parts(self, session: OpenSession) -> list[Any]:
        held = self._codec.encode(session.held)
        return [held, session.start, session.end, session.firings, int(session.fired)]

    def _session(self, key: Hashable, parts: Sequence[Any]) -> OpenSession:
        held, start, end, firings, fired = parts
        return OpenSession(key, start, end, self._codec.decode(held), firings, bool(fired))


class SessionTimers:
    """Timers of keys, taken in time order and some hundred at a time, so that their sessions are read at once."""

    def __init__(self, queue: KeyTimerQueue) -> None:
        self._queue = queue
        self._numbers = count()
        #: The timers that were taken last, as a heap, with those set meanwhile.
        self._taken: list[tuple[Timestamp, int, Hashable]] = []
        #: The time of the last timer that was taken; None: none is being handled.
        self._until: Timestamp | None = None

    def is_due(self, now: Timestamp) -> bool:
        """Return True if a timer is set for ``now`` or an earlier time."""
        earliest = self._queue.earliest
        return earliest is not None and earliest <= now

    def set(self, time: Timestamp, key: Hashable) -> None:
        """Add a timer, if it is not set yet."""
        if self._until is not None and time <= self._until:
            heappush(self._taken, (time, next(self._numbers), key))
        else:
            self._queue.register(time, key, None)

    def due(
        self, now: Timestamp, on_keys: Callable[[Sequence[Hashable]], None]
    ) -> Iterator[tuple[Timestamp, Hashable]]:
        """Remove and yield the timers up to ``now``, in time order, with those set meanwhile.

        ``on_keys`` is called with the next keys before their timers are yielded.
        """
        while some := self._take(now):
            self._taken, self._until = some, some[-1][0]
            on_keys([key for _, _, key in some])
            while self._taken:
                time, _, key = heappop(self._taken)
                yield time, key
            self._until = None

    def _take(self, now: Timestamp) -> list[tuple[Timestamp, int, Hashable]]:
        some: list[tuple[Timestamp, int, Hashable]] = []
        for timer in self._queue.due_in_pieces(now):
            if timer is not None:
                some.append((timer.time, next(self._numbers), timer.key))
            if len(some) == CHUNK:
                break
        return some
