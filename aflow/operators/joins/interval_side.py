"""Buffered records of one input of an interval join, in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Hashable
from typing import Any, Final, NamedTuple

from aflow.errors import FlowDefinitionError
from aflow.machines.expiry import Expiry
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.joins.buffered_records import TimedRecord, TimedRecords
from aflow.operators.joins.columns import Columns, cut, insert, stored_times
from aflow.operators.pieces import drained_slices, slices
from aflow.state.defensive_copies import defensive_copy

#: Checks for expired keys per length of the interval: an expired key is dropped at most an eighth too late.
_CHECKS_PER_INTERVAL: Final = 8

#: Lengths of the interval until the next check of a key that still had records at a check. Its expired records are
#: dropped then, or when it is accessed. A smaller number would check a key for every few records.
_RECHECK_AFTER: Final = 4


def closed(lower: int, upper: int, *, inclusive: tuple[bool, bool]) -> tuple[int, int]:
    """Return the bounds (ms) of the same interval, both inclusive.

    Raises ``FlowDefinitionError`` for an empty interval.
    """
    low = lower if inclusive[0] else lower + 1
    high = upper if inclusive[1] else upper - 1
    if low > high:
        first, last = (
            f"{bound} ms ({'inclusive' if within else 'exclusive'})"
            for bound, within in zip((lower, upper), inclusive, strict=True)
        )
        raise FlowDefinitionError(
            f"no timestamp lies between {first} and {last}, so the join would emit no pair; "
            f"give the lower bound first, and note that an exclusive bound excludes its own millisecond"
        )
    return low, high


class Unpaired(NamedTuple):
    """A record that has had no partner and will have none."""

    at: Timestamp
    key: Hashable
    value: Any


class IntervalSide:
    """Records of one input that may still have partners. The partners of time t are in [t + first, t + last].

    A record expires when the watermark reaches its timestamp plus ``last``. With ``outer`` it is dropped at this
    watermark exactly, since records without a partner are emitted then. Otherwise it is dropped when its key is
    accessed or checked; until then it can be no partner of a record on time.
    """

    def __init__(self, first: int, last: int, *, outer: bool, from_left: bool) -> None:
        self.first = first
        self.last = last
        self.from_left: Final = from_left
        self.outer = outer
        #: The records of each key; never empty.
        self.held: dict[Hashable, Columns] = {}
        #: With ``outer``: for each record in `held` True if it has had a partner.
        self._matched: dict[Hashable, list[bool]] = {}
        #: With ``outer`` an entry for each record, otherwise one for each key.
        self.expiry: Final = Expiry(1 if outer else max(1, (last - first) // _CHECKS_PER_INTERVAL))
        self._recheck_after: Final = _RECHECK_AFTER * (last - first)

    def times_of(self, data: bytes) -> tuple[Timestamp]:
        """Return the time at which the stored records of a key act, as ``Operator.row_times``.

        With ``outer`` the oldest one may be emitted alone. Otherwise all are dropped, unseen, with the newest one.
        """
        return (stored_times(data)[0 if self.outer else -1] + self.last,)

    def expired_until(self, watermark: Timestamp) -> Timestamp:
        """Return the largest timestamp that has expired at ``watermark``."""
        return MAX_TIMESTAMP if watermark == MAX_TIMESTAMP else watermark - self.last

    def add(
        self, key: Hashable, at: Timestamp, value: object, *, matched: bool, expired: Timestamp
    ) -> None:
        """Buffer a record that is newer than ``expired``, the largest expired timestamp."""
        held = self.held.get(key)
        known = held is not None
        if held is None:
            held = self.held[key] = ([], [])
        elif not self.outer and held[0][0] <= expired:
            cut(*held, expired)
        index = insert(*held, at, value)
        if self.outer:
            self._matched.setdefault(key, []).insert(index, matched)
        if self.outer or not known:
            self.expiry.add(key, at + self.last)

    def take_partners(self, key: Hashable, low: Timestamp, high: Timestamp) -> Columns:
        """Return the records from ``low`` to ``high``, inclusive, and mark them as matched."""
        held = self.held.get(key)
        if held is None:
            return [], []
        times, values = held
        start = bisect_left(times, low)
        stop = bisect_right(times, high, start)
        if self.outer:
            self._matched[key][start:stop] = [True] * (stop - start)
        return times[start:stop], values[start:stop]

    def is_due(self, watermark: Timestamp) -> bool:
        """Return True if ``expire`` has something to do."""
        return watermark == MAX_TIMESTAMP or self.expiry.is_due(watermark)

    def expire(
        self, watermark: Timestamp, on_expiry: Callable[[list[Hashable]], None]
    ) -> Generator[int, None, list[Unpaired]]:
        """Drop expired records, in pieces; with ``outer``, return those without a partner.

        ``on_expiry`` is called with the keys before.
        """
        expired = self.expired_until(watermark)
        unpaired: list[Unpaired] = []
        if watermark == MAX_TIMESTAMP:
            held: list[Hashable] = []
            for keys in slices(self.held):
                held += keys
                yield 0
            due = drained_slices(held)
        else:
            due = slices(self.expiry.due(watermark))
        for keys in due:
            on_expiry(keys)
            for key in keys:
                if key in self.held:
                    self._expire_key(key, expired, unpaired)
            yield 0
        if watermark == MAX_TIMESTAMP:
            for _ in slices(self.expiry.due(watermark)):
                yield 0
            self.expiry.clear()
        return unpaired

    def _expire_key(self, key: Hashable, expired: Timestamp, unpaired: list[Unpaired]) -> None:
        times, values = self.held[key]
        if self.outer:
            matched = self._matched[key]
            count = bisect_right(times, expired)
            unpaired += [
                Unpaired(at, key, value)
                for at, value, paired in zip(times[:count], values, matched, strict=False)
                if not paired
            ]
            del matched[:count]
        cut(times, values, expired)
        if not times:
            del self.held[key]
            self._matched.pop(key, None)
        elif not self.outer:
            self.expiry.add(key, max(expired + self._recheck_after, times[-1]) + self.last)

    def matched(self, key: Hashable) -> list[bool]:
        """Return for each record of ``key`` True if it has had a partner; only with ``outer``."""
        return self._matched[key]

    def peek(self, key: Hashable, watermark: Timestamp) -> TimedRecords:
        """Return copies of the records of ``key`` that have not expired at ``watermark``."""
        if key not in self.held:
            return []
        times, values = self.held[key]
        start = bisect_right(times, self.expired_until(watermark))
        return list(map(TimedRecord, times[start:], map(defensive_copy, values[start:])))

    def size(self) -> int:
        """Count the records."""
        return sum(len(times) for times, _ in self.held.values())
