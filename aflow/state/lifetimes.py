"""Time to live: which rows of one state are out of date, and when to forget them.

Theory. Every row has the moment at which it was last touched, and the rows are kept in the order of those moments. A
touch puts its row at the end, so what is out of date stands in front: a sweep looks at what it forgets and at one row
more. A clock that goes back would break the order; the latest moment that was ever seen counts instead. What is out of
date is never handed out, whether a sweep came by or not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, Final

from aflow.model.time import MIN_TIMESTAMP, Clock, Timestamp

#: How a moment stands in a snapshot and on disk: 8 bytes, big-endian, two's complement.
MOMENT_BYTES: Final = 8


class Lifetimes:
    """When the rows of one state were last touched; forgets them ``ttl`` ms after that."""

    __slots__ = ("_clock", "_latest", "_moments", "_rows", "on_read", "ttl")

    def __init__(self, rows: dict[Hashable, Any], ttl: int, *, on_read: bool, clock: Clock) -> None:
        self.ttl: Final = ttl
        self.on_read: Final = on_read
        self._rows = rows
        self._clock = clock
        self._latest: Timestamp = MIN_TIMESTAMP
        #: When each key of `_rows` was last touched, the longest ago first.
        self._moments: OrderedDict[Hashable, Timestamp] = OrderedDict()

    def now(self) -> Timestamp:
        """The clock, which here never goes back (epoch ms)."""
        self._latest = max(self._latest, self._clock.now())
        return self._latest

    def expired(self, moment: Timestamp, now: Timestamp) -> bool:
        """Whether a row that was last touched at ``moment`` is out of date."""
        return now - moment >= self.ttl

    def moment(self, key: Hashable) -> Timestamp:
        """When the row of ``key``, which there is, was last touched."""
        return self._moments[key]

    def read(self, key: Hashable) -> None:
        """The row of ``key`` is about to be read: forgets it if it is out of date."""
        moment = self._moments.get(key)
        if moment is None:
            return
        now = self.now()
        if self.expired(moment, now):
            self.forget(key)
        elif self.on_read:
            self._touch(key, now)

    def drop_expired(self, key: Hashable) -> None:
        """The row of ``key`` is about to be changed: forgets it if it is out of date."""
        moment = self._moments.get(key)
        if moment is not None and self.expired(moment, self.now()):
            self.forget(key)

    def written(self, key: Hashable) -> None:
        """The row of ``key`` was changed, or removed."""
        if key in self._rows:
            self._touch(key, self.now())
        else:
            self._moments.pop(key, None)

    def forget(self, key: Hashable) -> None:
        """Remove the row of ``key`` if there is one."""
        self._rows.pop(key, None)
        self._moments.pop(key, None)

    def alive(self, key: Hashable) -> bool:
        """Whether ``key`` has a row that is not out of date; no touch."""
        moment = self._moments.get(key)
        return moment is not None and not self.expired(moment, self.now())

    def sweep(self) -> list[Hashable]:
        """Forget what is out of date, and say of which keys; takes time for those only."""
        moments, now = self._moments, self.now()
        gone: list[Hashable] = []
        while moments:
            key = next(iter(moments))
            if not self.expired(moments[key], now):
                break
            self.forget(key)
            gone.append(key)
        return gone

    def hold(self, key: Hashable, moment: Timestamp) -> None:
        """Take up a row that is there already and was last touched at ``moment``, out of the order of sweeps."""
        self._moments[key] = moment

    def hold_all(self, moments: Iterable[tuple[Hashable, Timestamp]]) -> None:
        """Take up rows that are there already, and no others, each with the moment of its last touch."""
        self._moments = OrderedDict(sorted(moments, key=_moment))

    def clear(self) -> None:
        """Know of no rows; they are cleared by their owner."""
        self._moments.clear()

    def _touch(self, key: Hashable, now: Timestamp) -> None:
        self._moments[key] = now
        self._moments.move_to_end(key)


def encode_moment(moment: Timestamp) -> bytes:
    """``moment`` in ``MOMENT_BYTES`` bytes."""
    return moment.to_bytes(MOMENT_BYTES, "big", signed=True)


def decode_moment(data: bytes) -> Timestamp:
    """The moment that the bytes say."""
    return int.from_bytes(data, "big", signed=True)


def _moment(entry: tuple[Hashable, Timestamp]) -> Timestamp:
    return entry[1]
