"""The far timers of one time domain: those in a database, ordered by time, from a *horizon* on.

Theory. Timers fire in time order, so only the next ones are needed in memory: those before the horizon. A far timer is
registered and deleted without a look at the database, since to write a key that is there, and to delete one that is
not, changes nothing. The owner has the near timers. If they are too many, it moves the later half here, and the horizon
to the first of them. When the near ones have fired, it reads the next far ones.

    <domain, 1 byte> <time, 8 bytes> <namespace> <slot of the key> <stored key>     empty

The namespace of a timer is a window (start and end, 9 bytes each), or nothing. The bytes up to the stored key are the
*slot* of a timer. Equal keys have one slot, but may have different stored bytes (``1`` and ``True``). Once the keys of
a step are mixed like that, the database is read before each write.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from aflow.machines.timer_changes import Changes
from aflow.machines.timer_queue import Timer
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.store import View
from aflow.state.disk.stored_keys import StoredKeys, after, slot_length, slot_of, slots_of
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec

N = TypeVar("N", bound=Hashable)

FarTimer: TypeAlias = tuple[Timestamp, Hashable, N]
"""Time, key and namespace of a timer."""

#: The most near timers. To move half of them takes some milliseconds.
NEAR: Final = 4096

#: Timers that are read, and written, at once.
_AT_ONCE: Final = 1024

#: Timers that have been read and are deleted at once. To delete a range is cheap, and to read beside many such is not.
_MOST_DEAD: Final = 65_536

#: First byte of the database keys of each domain.
_DOMAINS: Final = {TimeDomain.EVENT: b"u", TimeDomain.PROCESSING: b"v"}

_TIME: Final = struct.Struct(">cQ")
#: Added to times, so that those before 1970 are in order too.
_OFFSET: Final = 2**63

#: Bytes of a bound of a window.
_BOUND: Final = 9
#: Added to bounds: a window may begin before the first timestamp, and end after the last one.
_BOUND_OFFSET: Final = 2**70


class NamespaceCodec(Protocol[N]):
    """Encodes namespaces in a fixed number of bytes."""

    size: int

    def encode(self, namespace: N, /) -> bytes: ...
    def decode(self, data: bytes, /) -> N: ...


class NoNamespaces:
    """The codec of timers without namespace."""

    size = 0

    def encode(self, namespace: None, /) -> bytes:
        return b""

    def decode(self, data: bytes, /) -> None:
        return None


class WindowNamespaces:
    """The codec of timers of windows."""

    size = 2 * _BOUND

    def encode(self, namespace: TimeWindow, /) -> bytes:
        start, end = namespace.start + _BOUND_OFFSET, namespace.end + _BOUND_OFFSET
        return start.to_bytes(_BOUND, "big") + end.to_bytes(_BOUND, "big")

    def decode(self, data: bytes, /) -> TimeWindow:
        start, end = data[:_BOUND], data[_BOUND:]
        return TimeWindow(
            int.from_bytes(start, "big") - _BOUND_OFFSET, int.from_bytes(end, "big") - _BOUND_OFFSET
        )


# Not slotted: a generic frozen dataclass with slots cannot be made on Python 3.11.
@dataclass(frozen=True)
class FarTimers(Generic[N]):
    """Far timers in ``view``; None if there are none."""

    view: View | None
    start: bytes
    stop: bytes
    timer_at: Callable[[bytes], Timer[Hashable, N]]

    def __iter__(self) -> Iterator[Timer[Hashable, N]]:
        """Yield the timers in the order of the database."""
        if self.view is not None:
            for place, _ in self.view.items(self.start, self.stop):
                yield self.timer_at(place)


class TimerDatabase(Generic[N]):
    """The far timers of ``domain``, in a database in ``scratch``.

    Raises ``OperatorError`` for a key that cannot be encoded. ``kinds`` observes all keys. Timers are lost with the
    database: ``scratch`` must not be cleared afterwards.
    """

    def __init__(
        self,
        domain: TimeDomain,
        namespaces: NamespaceCodec[N],
        key_codec: KeyGroupCodec,
        scratch: Scratch,
        kinds: KeyKinds,
    ) -> None:
        self._prefix: Final = _DOMAINS[domain]
        self._end: Final = bytes([self._prefix[0] + 1])
        self._namespaces = namespaces
        self._head: Final = _TIME.size + namespaces.size
        self._keys = StoredKeys(key_codec, "timers")
        self._scratch = scratch
        self._kinds = kinds
        self.horizon: tuple[Timestamp, bytes] | None = None
        """Time and slot at which far timers begin; None: there are none."""
        #: The number of timers that were read and are still in the database, all before the horizon: first and last.
        self._dead = 0
        self._dead_first = b""
        self._dead_last = b""
        #: Timers to write (True) or delete.
        self._unwritten: dict[FarTimer[N], bool] = {}

    def is_far(self, time: Timestamp, key: Hashable, namespace: N) -> bool:
        """Return True if a timer, registered or not, is at or after the horizon."""
        horizon = self.horizon
        if horizon is None or time < horizon[0]:
            return False
        hash(key)
        return time > horizon[0] or self._slot(time, key, namespace) >= horizon[1]

    def write(self, time: Timestamp, key: Hashable, namespace: N, *, there: bool) -> None:
        """Add or remove a far timer."""
        # Hot path (benchmark `state`): once for each record that registers a timer.
        self._unwritten[time, key, namespace] = there
        if len(self._unwritten) >= _AT_ONCE:
            self.flush()

    def holds(self, time: Timestamp, key: Hashable, namespace: N) -> bool:
        """Return True if a far timer is registered. Reads the database."""
        known = self._unwritten.get((time, key, namespace))
        if known is not None:
            return known
        self._kinds.see((key,))
        if self._kinds.mixed:
            return bool(self._equal_places(time, key, namespace))
        place = self._slot(time, key, namespace) + self._keys.stored(key)
        return self._scratch.store.get((place,))[0] is not None

    def take_later_half(self, near: Iterable[FarTimer[N]]) -> list[FarTimer[N]]:
        """Add the later half of the near timers, and return it: the owner removes them."""
        timers = sorted(near, key=itemgetter(0))
        first = timers[len(timers) // 2][0]
        later = [(self._slot(*timer), timer) for timer in timers if timer[0] >= first]
        later.sort(key=itemgetter(0))
        horizon = later[len(later) - len(timers) // 2][0]
        moved = [timer for slot, timer in later if slot >= horizon]
        for timer in moved:
            self._unwritten[timer] = True
        if self._dead and horizon <= self._dead_last:
            self._delete_dead()
        self.horizon = moved[0][0], horizon
        self.flush()
        return moved

    def read(self) -> list[FarTimer[N]]:
        """Move the horizon, and return the timers before it. None, if the next ones were deleted."""
        assert self.horizon is not None
        self.flush()
        limit, found = _AT_ONCE, list[bytes]()
        while not found and self.horizon is not None:
            found = self._scratch.store.first(self.horizon[1], self._end, limit)
            if len(found) < limit:
                self.horizon = None
            else:
                # Equal keys with different bytes have one slot, and have to move together.
                last = self._slot_at(found[-1])
                while found and found[-1].startswith(last):
                    found.pop()
                if found:
                    self.horizon = _time_of(last), last
            limit *= 2
        if found:
            if not self._dead:
                self._dead_first = found[0]
            self._dead += len(found)
            self._dead_last = found[-1]
            if self._dead >= _MOST_DEAD:
                self._delete_dead()
        head, decode = self._head, self._namespaces.decode
        times = [unpacked[1] - _OFFSET for unpacked in map(_TIME.unpack_from, found)]
        keys = self._keys.keys([place[head + slot_length(place, head) :] for place in found])
        namespaces = (
            [decode(place[_TIME.size : head]) for place in found]
            if self._namespaces.size
            else repeat(decode(b""))
        )
        return list(zip(times, keys, namespaces, strict=False))

    def flush(self) -> None:
        """Write all changes."""
        if not self._unwritten:
            return
        changes, self._unwritten = self._unwritten, {}
        keys = [key for _, key, _ in changes]
        self._kinds.see(keys)
        if self._kinds.mixed:
            for timer, there in changes.items():
                self._write_mixed(*timer, there=there)
            return
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        pack, prefix, namespace_of = _TIME.pack, self._prefix, self._namespaces.encode
        has_namespaces = self._namespaces.size > 0
        stored = zip(changes.items(), slots_of(keys), self._keys.all_stored(keys), strict=True)
        for ((time, _, namespace), there), slot, data in stored:
            head = pack(prefix, time + _OFFSET)
            if has_namespaces:
                head += namespace_of(namespace)
            place = head + slot + data
            if there:
                puts.append((place, b""))
            else:
                deletes.append(place)
        self._scratch.store.write(puts, deletes)

    def stored(self) -> FarTimers[N]:
        """Return the far timers as they are now, to iterate over later, also in another thread."""
        if self.horizon is None:
            return FarTimers(None, self._prefix, self._end, self._timer_at)
        self.flush()
        return FarTimers(self._scratch.store.view(), self.horizon[1], self._end, self._timer_at)

    def _write_mixed(self, time: Timestamp, key: Hashable, namespace: N, *, there: bool) -> None:
        """Write a timer whose key may be stored with other bytes."""
        equal = self._equal_places(time, key, namespace)
        if there and not equal:
            place = self._slot(time, key, namespace) + self._keys.stored(key)
            self._scratch.store.write([(place, b"")])
        elif not there:
            self._scratch.store.write((), equal)

    def _equal_places(self, time: Timestamp, key: Hashable, namespace: N) -> list[bytes]:
        """Return the database keys of a timer: those of equal keys."""
        slot = self._slot(time, key, namespace)
        found = self._scratch.store.first(slot, after(slot), _AT_ONCE)
        return [place for place in found if self._keys.key(place[len(slot) :]) == key]

    def _delete_dead(self) -> None:
        """Delete the timers in the database that have been read."""
        self._scratch.store.delete_range(self._dead_first, self._dead_last + b"\0")
        self._dead = 0

    def _slot(self, time: Timestamp, key: Hashable, namespace: N) -> bytes:
        head = _TIME.pack(self._prefix, time + _OFFSET) + self._namespaces.encode(namespace)
        return head + slot_of(key)

    def _slot_at(self, place: bytes) -> bytes:
        return place[: self._head + slot_length(place, self._head)]

    def _timer_at(self, place: bytes) -> Timer[Hashable, N]:
        key = self._keys.key(place[len(self._slot_at(place)) :])
        namespace = self._namespaces.decode(place[_TIME.size : self._head])
        return Timer(_time_of(place), key, namespace)


def last_changes(noted: Mapping[FarTimer[N], bool]) -> Changes[Hashable, N]:
    """Return the last change of each timer: True if it was added, False if it was removed.

    An added timer may have been there before, and a removed one may not.
    """
    return Changes(
        [timer for timer, there in noted.items() if there],
        [timer for timer, there in noted.items() if not there],
    )


def _time_of(place: bytes) -> Timestamp:
    time: int = _TIME.unpack_from(place)[1]
    return time - _OFFSET
