"""What an interval join holds of one input, and for how long."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from aflow.machines.expiry import Expiry
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.changed_keys import ChangedKeys
from aflow.operators.joins.columns import Columns, cut, insert

#: A key whose records never come back is forgotten at most this part of the interval after it could be.
_STRETCHES: Final = 8

#: A key that had new records when it was looked at is next looked at after so many lengths of the interval: what it
#: holds in vain until then is what it got in one of them. Sooner, a key would be looked at for every few records.
_PATIENCE: Final = 4


class Alone(NamedTuple):
    """A record that has found no partner and will find none."""

    at: Timestamp
    key: Hashable
    value: Any


class IntervalSide:
    """The records of one input that may still meet a partner. The partners of time t are in [t + first, t + last].

    A record goes when its last moment, its timestamp plus ``last``, is at or before the watermark. With ``outer`` that
    happens at this watermark exactly, since records which found nobody come out then; otherwise when its key is touched
    or looked at, and until then nothing that is on time can find it.
    """

    def __init__(self, first: int, last: int, *, outer: bool) -> None:
        self.first = first
        self.last = last
        self.outer = outer
        #: The records of each key; never empty.
        self.held: dict[Hashable, Columns] = {}
        #: With ``outer``: whether each of the records in `held` has found a partner.
        self._met: dict[Hashable, list[bool]] = {}
        #: With ``outer`` has each record's last moment; otherwise each key held once.
        self.expiry: Final = Expiry(1 if outer else max(1, (last - first) // _STRETCHES))
        self._patience: Final = _PATIENCE * (last - first)

    def gone(self, watermark: Timestamp) -> Timestamp:
        """The newest timestamp whose last moment has come."""
        return MAX_TIMESTAMP if watermark == MAX_TIMESTAMP else watermark - self.last

    def add(
        self, key: Hashable, at: Timestamp, value: object, *, met: bool, gone: Timestamp
    ) -> None:
        """Hold a record that is newer than ``gone``."""
        held = self.held.get(key)
        known = held is not None
        if held is None:
            held = self.held[key] = ([], [])
        elif not self.outer and held[0][0] <= gone:
            cut(*held, gone)
        index = insert(*held, at, value)
        if self.outer:
            self._met.setdefault(key, []).insert(index, met)
        if self.outer or not known:
            self.expiry.note(key, at + self.last)

    def meet(self, key: Hashable, low: Timestamp, high: Timestamp) -> Columns:
        """The records from ``low`` to ``high``, inclusive, which have found a partner now."""
        held = self.held.get(key)
        if held is None:
            return [], []
        times, values = held
        start = bisect_left(times, low)
        stop = bisect_right(times, high, start)
        if self.outer:
            self._met[key][start:stop] = [True] * (stop - start)
        return times[start:stop], values[start:stop]

    def expire(self, watermark: Timestamp, changed: ChangedKeys) -> list[Alone]:
        """Drop records whose last moment has come; with ``outer``, returns those that found no partner.

        ``changed`` is told of their keys.
        """
        gone = self.gone(watermark)
        alone: list[Alone] = []
        due = list(self.held if watermark == MAX_TIMESTAMP else self.expiry.due(watermark))
        changed.add(due)
        for key in due:
            if key in self.held:
                self._look_at(key, gone, alone)
        if watermark == MAX_TIMESTAMP:
            self.expiry.clear()
        return alone

    def _look_at(self, key: Hashable, gone: Timestamp, alone: list[Alone]) -> None:
        times, values = self.held[key]
        if self.outer:
            met = self._met[key]
            count = bisect_right(times, gone)
            alone += [
                Alone(at, key, value)
                for at, value, paired in zip(times[:count], values, met, strict=False)
                if not paired
            ]
            del met[:count]
        cut(times, values, gone)
        if not times:
            del self.held[key]
            self._met.pop(key, None)
        elif not self.outer:
            self.expiry.note(key, max(gone + self._patience, times[-1]) + self.last)

    def met(self, key: Hashable) -> list[bool]:
        """With ``outer``: for each record of ``key``, whether it has found a partner."""
        return self._met[key]

    def size(self) -> int:
        """How many records are held."""
        return sum(len(times) for times, _ in self.held.values())
