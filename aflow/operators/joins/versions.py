"""The versions of each key that a record may still have to be joined with.

Theory. A version holds from its timestamp until that of the next one of its key, and with a ``tolerance`` not longer
than that. Whoever asks from now on asks for a moment after the watermark W. So of the versions up to W only the newest
one matters, and not even that once its timestamp plus the tolerance is at or before W; those after W all matter.
Without a tolerance the newest version of each key that ever came is kept until the end of time.

A version that comes at or behind W is still the truth about moments after W, unless a newer one up to W is known (or it
is out of reach already): then it could not change any answer any more and is refused. Of versions with one timestamp
the last to come holds.

Versions that do not matter go when their key gets a new one, and for keys that get none, when the key is looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from typing import Any, Final

from aflow.machines.expiry import Expiry
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.changed_keys import ChangedKeys
from aflow.operators.joins.columns import Columns

#: Versions that do not matter are kept in vain for at most this long (ms) without a tolerance, and with one for
#: this part of it.
_STRETCH: Final = 1000
_STRETCHES: Final = 8


class Versions:
    """Versions by key. ``tolerance`` in ms; None: a version holds for any time."""

    def __init__(self, tolerance: int | None) -> None:
        self.tolerance: Final = tolerance
        self.watermark: Timestamp = MIN_TIMESTAMP
        #: Timestamps, ascending and distinct, and values; never empty.
        self._held: dict[Hashable, Columns] = {}
        #: Each key that holds something which will not matter one day: with a tolerance all of them.
        self.expiry: Final = Expiry(
            _STRETCH if tolerance is None else max(1, tolerance // _STRETCHES)
        )
        #: Without a tolerance: those keys. None is noted twice, or each look would note it as often again.
        self._noted: set[Hashable] = set()

    def put(self, key: Hashable, at: Timestamp, value: object) -> bool:
        """Add a version, or replace the one of that timestamp; False if it cannot matter any more."""
        tolerance, watermark = self.tolerance, self.watermark
        if tolerance is not None and at + tolerance <= watermark:
            return False
        held = self._held.get(key)
        if held is None:
            self._held[key] = ([at], [value])
            if tolerance is not None:
                self.expiry.note(key, at + tolerance)
            return True
        times, values = held
        if times[0] <= watermark:
            self._drop(times, values)
            if times and at < times[0] <= watermark:
                return False
        index = len(times) if not times or times[-1] < at else bisect_left(times, at)
        if index < len(times) and times[index] == at:
            values[index] = value
            return True
        times.insert(index, at)
        values.insert(index, value)
        if tolerance is None and len(times) == 2 and key not in self._noted:
            self._note(key, times[-1])
        return True

    def at(self, key: Hashable, moment: Timestamp) -> tuple[bool, Any]:
        """Whether a version of ``key`` holds at ``moment``, which is not before the watermark; and which."""
        held = self._held.get(key)
        if held is None:
            return False, None
        times, values = held
        index = bisect_right(times, moment) - 1
        if index < 0 or (self.tolerance is not None and moment - times[index] > self.tolerance):
            return False, None
        return True, values[index]

    def advance(self, watermark: Timestamp, changed: ChangedKeys) -> None:
        """Nobody asks for a moment up to ``watermark`` any more: drop what does not matter then.

        ``changed`` is told of its keys.
        """
        self.watermark = watermark
        if watermark == MAX_TIMESTAMP:
            changed.add(self._held)
            self._held.clear()
            self.expiry.clear()
            self._noted.clear()
            return
        due = list(self.expiry.due(watermark))
        changed.add(due)
        for key in due:
            self._noted.discard(key)
            if key in self._held:
                self._look_at(key)

    def _look_at(self, key: Hashable) -> None:
        times, values = self._held[key]
        self._drop(times, values)
        if not times:
            del self._held[key]
        elif self.tolerance is not None:
            self.expiry.note(key, times[-1] + self.tolerance)
        elif len(times) > 1:
            self._note(key, times[-1])

    def _note(self, key: Hashable, at: Timestamp) -> None:
        self._noted.add(key)
        self.expiry.note(key, at)

    def _drop(self, times: list[Timestamp], values: list[Any]) -> None:
        count = self._passed(times)
        del times[:count], values[:count]

    def _passed(self, times: list[Timestamp]) -> int:
        """How many of a key's versions do not matter any more."""
        newest = bisect_right(times, self.watermark) - 1
        if newest < 0:
            return 0
        if self.tolerance is not None and times[newest] + self.tolerance <= self.watermark:
            return newest + 1
        return newest

    def by_key(self, among: set[Hashable] | None = None) -> Iterator[tuple[Hashable, Columns]]:
        """The versions that matter, of some keys or of all, for a snapshot."""
        for key in self._held if among is None else among & self._held.keys():
            times, values = self._held[key]
            count = self._passed(times)
            if count < len(times):
                yield key, (times[count:], values[count:])

    def __len__(self) -> int:
        """How many keys have versions."""
        return len(self._held)

    def size(self) -> int:
        """How many versions are held."""
        return sum(len(times) for times, _ in self._held.values())
