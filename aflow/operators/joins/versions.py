"""Versions of each key to which a later record may be joined.

Theory. A version is valid from its timestamp until that of the next one of its key, and with a ``tolerance`` for no
longer than that. Lookups are at times after the watermark W. So of the versions up to W only the newest one matters,
and not even that once its timestamp plus the tolerance is at or before W; those after W all matter. Without a tolerance
the newest version of each key is kept until the end of time.

A version at or before W is still valid at times after W, unless a newer one up to W is known, or the tolerance has
passed: then it cannot change any result and is rejected. Of versions with equal timestamps the last to arrive is valid.

Versions that do not matter are dropped when their key gets a new one, and for keys that get none, when the key expires.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, Final

from aflow.machines.expiry import Expiry
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.joins.buffered_records import TimedRecord, TimedRecords
from aflow.operators.joins.columns import Columns
from aflow.operators.pieces import CHUNK, slices
from aflow.state.defensive_copies import defensive_copy

#: Time (ms) between two checks for versions that do not matter, without a tolerance.
_CHECK_EVERY: Final = 1000
#: Checks per length of the tolerance.
_CHECKS_PER_TOLERANCE: Final = 8


class Versions:
    """Versions by key. ``tolerance`` in ms; None: a version is valid for any time."""

    def __init__(self, tolerance: int | None) -> None:
        self.tolerance: Final = tolerance
        self.watermark: Timestamp = MIN_TIMESTAMP
        #: Timestamps, ascending and distinct, and values by key; never empty.
        self._held: dict[Hashable, Columns] = {}
        #: Keys to check for versions that do not matter any more: with a tolerance all keys.
        self.expiry: Final = Expiry(
            _CHECK_EVERY if tolerance is None else max(1, tolerance // _CHECKS_PER_TOLERANCE)
        )
        #: Without a tolerance: the keys in ``expiry``, so that none is registered twice.
        self._registered: set[Hashable] = set()

    def put(self, key: Hashable, at: Timestamp, value: object) -> bool:
        """Add a version, or replace the one of that timestamp; return False if it cannot matter."""
        tolerance, watermark = self.tolerance, self.watermark
        if tolerance is not None and at + tolerance <= watermark:
            return False
        held = self._held.get(key)
        if held is None:
            self._held[key] = ([at], [value])
            if tolerance is not None:
                self.expiry.add(key, at + tolerance)
            return True
        times, values = held
        if times[0] <= watermark:
            self._drop_outdated(times, values)
            if times and at < times[0] <= watermark:
                return False
        index = len(times) if not times or times[-1] < at else bisect_left(times, at)
        if index < len(times) and times[index] == at:
            values[index] = value
            return True
        times.insert(index, at)
        values.insert(index, value)
        if tolerance is None and len(times) == 2 and key not in self._registered:
            self._register(key, times[-1])
        return True

    def at(self, key: Hashable, moment: Timestamp) -> tuple[bool, Any]:
        """Return True and the version of ``key`` valid at ``moment``, which is not before the watermark; else False and
        None.
        """
        held = self._held.get(key)
        if held is None:
            return False, None
        times, values = held
        index = bisect_right(times, moment) - 1
        if index < 0 or (self.tolerance is not None and moment - times[index] > self.tolerance):
            return False, None
        return True, values[index]

    def advance(
        self, watermark: Timestamp, on_expiry: Callable[[list[Hashable]], None]
    ) -> Iterator[int]:
        """Drop the versions that do not matter for times after ``watermark``, in pieces.

        ``on_expiry`` is called with their keys: before that, except at the end of time.
        """
        self.watermark = watermark
        while watermark == MAX_TIMESTAMP and self._held:
            on_expiry([self._held.popitem()[0] for _ in range(min(CHUNK, len(self._held)))])
            yield 0
        for due in slices(self.expiry.due(watermark)):
            on_expiry(due)
            for key in due:
                self._registered.discard(key)
                if key in self._held:
                    self._expire_key(key)
            yield 0
        if watermark == MAX_TIMESTAMP:
            self.expiry.clear()
            self._registered.clear()

    def _expire_key(self, key: Hashable) -> None:
        times, values = self._held[key]
        self._drop_outdated(times, values)
        if not times:
            del self._held[key]
        elif self.tolerance is not None:
            self.expiry.add(key, times[-1] + self.tolerance)
        elif len(times) > 1:
            self._register(key, times[-1])

    def _register(self, key: Hashable, at: Timestamp) -> None:
        self._registered.add(key)
        self.expiry.add(key, at)

    def _drop_outdated(self, times: list[Timestamp], values: list[Any]) -> None:
        count = self._outdated_count(times, self.watermark)
        del times[:count], values[:count]

    def _outdated_count(self, times: list[Timestamp], watermark: Timestamp) -> int:
        return outdated_count(times, watermark, self.tolerance)

    def peek(self, key: Hashable, watermark: Timestamp) -> TimedRecords:
        """Return copies of the versions of ``key`` that matter for times after ``watermark``."""
        if key not in self._held:
            return []
        times, values = self._held[key]
        count = self._outdated_count(times, watermark)
        return list(map(TimedRecord, times[count:], map(defensive_copy, values[count:])))

    def keys(self) -> list[Hashable]:
        """Return the keys with versions."""
        return list(self._held)

    def by_key(
        self, among: Collection[Hashable] | None, watermark: Timestamp
    ) -> Iterator[tuple[Hashable, Columns]]:
        """Yield the versions of some keys or of all that matter for times after ``watermark``, for a snapshot."""
        held = self._held
        for key in held if among is None else filter(held.__contains__, among):
            times, values = held[key]
            count = self._outdated_count(times, watermark)
            if count < len(times):
                yield key, (times[count:], values[count:])

    def __len__(self) -> int:
        """Count the keys with versions."""
        return len(self._held)

    def size(self) -> int:
        """Count the versions."""
        return sum(len(times) for times, _ in self._held.values())


def outdated_count(times: Sequence[Timestamp], watermark: Timestamp, tolerance: int | None) -> int:
    """Return the number of versions that do not matter for times after ``watermark``."""
    newest = bisect_right(times, watermark) - 1
    if newest < 0:
        return 0
    if tolerance is not None and times[newest] + tolerance <= watermark:
        return newest + 1
    return newest
