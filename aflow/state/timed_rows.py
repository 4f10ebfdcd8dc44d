"""Rows with a time to live: when each was last touched, and when it is forgotten.

Theory. Each row has the moment of its last touch, and rows are kept in the order of these moments. A touch moves its
row to the end, so expired rows are first: a sweep looks at the rows that it forgets and at one more. A clock that is
set back would break the order. The latest moment that was ever seen counts instead. An expired row is never returned,
whether or not a sweep has removed it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, Final

from aflow.model.time import MIN_TIMESTAMP, Clock, Timestamp

#: Size of a moment in a snapshot and on disk: 8 bytes, big-endian, two's complement.
MOMENT_BYTES: Final = 8


class TimedRows:
    """The rows of one state by key, each forgotten ``ttl`` ms after its last touch; ``LiveRows`` for cells.

    ``rows`` holds the rows themselves. Its owner may add rows (see ``hold``) and clear it.
    """

    __slots__ = ("_clock", "_latest", "_moments", "_rows", "on_read", "ttl")

    def __init__(self, rows: dict[Hashable, Any], ttl: int, *, on_read: bool, clock: Clock) -> None:
        self.ttl: Final = ttl
        #: True if reading a row is a touch too.
        self.on_read: Final = on_read
        self._rows = rows
        self._clock = clock
        self._latest: Timestamp = MIN_TIMESTAMP
        #: Moment of the last touch by key of `_rows`, the earliest first.
        self._moments: OrderedDict[Hashable, Timestamp] = OrderedDict()

    # ------------------------------------------------------------------------------------ for cells

    def get(self, key: Hashable, default: Any = None, /) -> Any:
        """Return the row of ``key``, ``default`` if there is none. Forget it first if it is expired."""
        self._read(key)
        return self._rows.get(key, default)

    def __contains__(self, key: object, /) -> bool:
        """Return True if ``key`` has a row. Forget it first if it is expired."""
        self._read(key)
        return key in self._rows

    def __getitem__(self, key: Hashable, /) -> Any:
        """Return the row of a ``key`` for which ``in`` returned True."""
        return self._rows[key]

    def __setitem__(self, key: Hashable, row: Any, /) -> None:
        self._rows[key] = row
        self._moments[key] = self.now()
        self._moments.move_to_end(key)

    def touch(self, key: Hashable, /) -> Any:
        """Return the row of ``key`` and restart its time to live, None if there is none or it is expired."""
        moment = self._moments.get(key)
        if moment is None:
            return None
        now = self.now()
        if self.is_expired(moment, now):
            self.pop(key)
            return None
        self._moments[key] = now
        self._moments.move_to_end(key)
        return self._rows[key]

    def pop(self, key: Hashable, default: None = None, /) -> None:
        """Forget the row of ``key`` if there is one."""
        self._rows.pop(key, None)
        self._moments.pop(key, None)

    # --------------------------------------------------------------------------------- for backends

    def now(self) -> Timestamp:
        """Return the time of the clock, never earlier than before (epoch ms)."""
        self._latest = max(self._latest, self._clock.now())
        return self._latest

    def is_expired(self, moment: Timestamp, now: Timestamp) -> bool:
        """Return True if a row that was last touched at ``moment`` is expired at ``now``."""
        return now - moment >= self.ttl

    def is_alive(self, key: Hashable) -> bool:
        """Return True if ``key`` has a row that is not expired. Never touches it."""
        moment = self._moments.get(key)
        return moment is not None and not self.is_expired(moment, self.now())

    def moment(self, key: Hashable) -> Timestamp:
        """Return the moment of the last touch of the row of ``key``, which must exist."""
        return self._moments[key]

    def sweep(self, most: int | None = None) -> list[Hashable]:
        """Forget expired rows, all or ``most`` of them, and return their keys. Takes time for these only."""
        moments, now = self._moments, self.now()
        gone: list[Hashable] = []
        while moments and len(gone) != most:
            key = next(iter(moments))
            if not self.is_expired(moments[key], now):
                break
            self.pop(key)
            gone.append(key)
        return gone

    def hold(self, key: Hashable, moment: Timestamp) -> None:
        """Record ``moment`` as the last touch of a row that was just loaded, out of the order of sweeps."""
        self._moments[key] = moment

    def hold_next(self, moments: Iterable[tuple[Hashable, Timestamp]]) -> None:
        """Record the last touches of rows that were just loaded, the earliest first and none before those held."""
        self._moments.update(moments)

    def clear(self) -> None:
        """Forget all moments; the owner of the rows clears these."""
        self._moments.clear()

    def _read(self, key: Hashable) -> None:
        moment = self._moments.get(key)
        if moment is None:
            return
        now = self.now()
        if self.is_expired(moment, now):
            self.pop(key)
        elif self.on_read:
            self._moments[key] = now
            self._moments.move_to_end(key)


def encode_moment(moment: Timestamp) -> bytes:
    """Return ``moment`` in ``MOMENT_BYTES`` bytes."""
    return moment.to_bytes(MOMENT_BYTES, "big", signed=True)


def decode_moment(data: bytes) -> Timestamp:
    """Return the moment of ``encode_moment``."""
    return int.from_bytes(data, "big", signed=True)
