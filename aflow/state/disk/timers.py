"""Timers of one time domain for more keys than fit in memory.

Theory. Timers fire in time order, so only the next ones are needed. The *near* ones, those before the *horizon*, are a
``TimerQueue`` in memory; the *far* ones are keys of the database, ordered by time. A timer is registered and deleted on
its side of the horizon: on the far side without a look at the database, since to write a key that is there, and to
delete one that is not, changes nothing. If there are too many near timers, the later half moves to the database, and
the horizon to the first of them. When the near ones have fired, the next far ones are read.

Near timers of one time fire in the order of registration, far ones in the order of the canonical bytes of their keys.

    <domain, 1 byte> <time, 8 bytes> <length, 4 bytes> <canonical key> <stored key>     empty

The bytes up to the canonical key are the *slot* of a timer. Equal keys have one slot, but may have different stored
bytes (``1`` and ``True``). Once the keys of a step are mixed like that, the database is read before each write.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Final

from aflow.errors import OperatorError, shown
from aflow.machines.timer_queue import Changes, Timer, TimerQueue
from aflow.model.codecs import CodecError
from aflow.model.keys import encode_key
from aflow.model.time import TimeDomain, Timestamp
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.store import View
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec

#: The most near timers. To move half of them takes some milliseconds.
NEAR: Final = 4096

#: Timers that are read, and written, at once.
_AT_ONCE: Final = 1024

#: Timers that have been read and are deleted at once. To delete a range is cheap, and to read beside many such is not.
_MOST_DEAD: Final = 65_536

#: First byte of the database keys of each domain.
_DOMAINS: Final = {TimeDomain.EVENT: b"u", TimeDomain.PROCESSING: b"v"}

_SLOT: Final = struct.Struct(">cQI")
#: Added to times, so that those before 1970 are in order too.
_OFFSET: Final = 2**63

_Identity = tuple[Timestamp, Hashable, None]


class DiskTimerQueue:
    """As ``TimerQueue``, with up to ``near`` timers in memory and the others in a database in ``scratch``.

    Raises ``OperatorError`` for a key that cannot be encoded, and ``TypeError`` for one without a hash. ``kinds``
    observes all keys. Timers are lost with the database: ``scratch`` must not be cleared afterwards.
    """

    def __init__(
        self,
        domain: TimeDomain,
        key_codec: KeyGroupCodec,
        scratch: Scratch,
        kinds: KeyKinds,
        near: int = NEAR,
    ) -> None:
        self._prefix: Final = _DOMAINS[domain]
        self._end: Final = bytes([self._prefix[0] + 1])
        self._key_codec = key_codec
        self._scratch = scratch
        self._kinds = kinds
        self._most_near = near
        self._near: TimerQueue[Hashable, None] = TimerQueue()
        #: Time and slot at which far timers begin; None: there are none.
        self._horizon: tuple[Timestamp, bytes] | None = None
        #: The number of timers that were read and are still in the database, all before the horizon: first and last.
        self._dead = 0
        self._dead_first = b""
        self._dead_last = b""
        #: Far timers to write (True) or delete.
        self._unwritten: dict[tuple[Timestamp, Hashable], bool] = {}
        #: The last change of each timer since changes were taken: True if it was added; None: not recorded.
        self._changes: dict[_Identity, bool] | None = None

    def __len__(self) -> int:
        """Return the number of timers. Reads all far ones."""
        return len(self._near) + sum(1 for _ in self._stored().entries())

    @property
    def earliest(self) -> Timestamp | None:
        """The earliest time of a timer (epoch ms); None without timers."""
        while (earliest := self._near.earliest) is None and self._horizon is not None:
            self._read(self._horizon[1])
        return earliest

    def register(self, time: Timestamp, key: Hashable, namespace: None = None) -> None:
        """Add a timer, if it is not registered yet."""
        # Hot path (benchmark `state`): once for each record that registers a timer.
        horizon = self._horizon
        if horizon is not None and time > horizon[0]:
            self._write(time, key, there=True)
        elif self._is_near(time, key):
            self._near.register(time, key, None)
            if len(self._near) > self._most_near:
                self._move_later_half()
        else:
            self._write(time, key, there=True)
        if self._changes is not None:
            self._changes[time, key, None] = True

    def delete(self, time: Timestamp, key: Hashable, namespace: None = None) -> None:
        """Remove a timer, if it is registered."""
        if self._is_near(time, key):
            self._near.delete(time, key, None)
        else:
            self._write(time, key, there=False)
        if self._changes is not None:
            self._changes[time, key, None] = False

    def due_in_pieces(self, now: Timestamp) -> Iterator[Timer[Hashable, None] | None]:
        """Remove and yield the timers up to ``now``, as ``TimerQueue``, and None after each read of the database."""
        while True:
            for timer in self._near.due_in_pieces(now):
                if timer is not None and self._changes is not None:
                    self._changes[timer] = False
                yield timer
            if self._horizon is None or self._horizon[0] > now:
                return
            self._read(self._horizon[1])
            yield None

    def keys(self) -> list[Hashable]:
        """Return the key of each near timer: ``kinds`` has observed those of far ones."""
        self._flush()
        return self._near.keys()

    def copied(self) -> CopiedTimers:
        """Return all present timers, to iterate over later, also in another thread."""
        return CopiedTimers(self._near.copied(), self._stored())

    def take_changes(self) -> Changes[Hashable, None] | None:
        """Return the last changes since the last call. The first call starts recording and returns None.

        An added timer may have been there before, and a removed one may not.
        """
        changes, self._changes = self._changes, {}
        if changes is None:
            return None
        return Changes(
            [timer for timer, there in changes.items() if there],
            [timer for timer, there in changes.items() if not there],
        )

    # ----------------------------------------------------------------------------------------- sides

    def _is_near(self, time: Timestamp, key: Hashable) -> bool:
        horizon = self._horizon
        if horizon is None or time < horizon[0]:
            return True
        hash(key)
        return time == horizon[0] and self._slot(time, key) < horizon[1]

    def _move_later_half(self) -> None:
        """Move the later half of the near timers to the database."""
        timers = sorted(self._near.entries(), key=itemgetter(0))
        first = timers[len(timers) // 2].time
        later = [(self._slot(time, key), time, key) for time, key, _ in timers if time >= first]
        later.sort(key=itemgetter(0))
        horizon = later[len(later) - len(timers) // 2][0]
        moved = [(slot, time, key) for slot, time, key in later if slot >= horizon]
        for _, time, key in moved:
            self._unwritten[time, key] = True
            self._near.delete(time, key, None)
        if self._dead and horizon <= self._dead_last:
            self._delete_dead()
        self._horizon = moved[0][1], horizon
        self._flush()

    def _read(self, start: bytes) -> None:
        """Move the next far timers to memory: those from ``start`` on."""
        self._flush()
        store = self._scratch.store
        found = store.first(start, self._end, _AT_ONCE)
        if len(found) < _AT_ONCE:
            self._horizon = None
        else:
            # Equal keys with different bytes have one slot, and have to move together.
            last = _slot_of(found[-1])
            while found and found[-1].startswith(last):
                found.pop()
            self._horizon = _time_of(last), last
        times: list[Timestamp] = []
        stored: list[bytes] = []
        for place in found:
            _, time, length = _SLOT.unpack_from(place)
            times.append(time - _OFFSET)
            stored.append(place[_SLOT.size + length :])
        register = self._near.register
        for time, key in zip(times, self._key_codec.keys(stored), strict=True):
            register(time, key, None)
        if found:
            if not self._dead:
                self._dead_first = found[0]
            self._dead += len(found)
            self._dead_last = found[-1]
            if self._dead >= _MOST_DEAD:
                self._delete_dead()

    def _delete_dead(self) -> None:
        """Delete the timers in the database that have been read."""
        self._scratch.store.delete_range(self._dead_first, self._dead_last + b"\0")
        self._dead = 0

    # -------------------------------------------------------------------------------------- database

    def _write(self, time: Timestamp, key: Hashable, *, there: bool) -> None:
        self._unwritten[time, key] = there
        if len(self._unwritten) >= _AT_ONCE:
            self._flush()

    def _write_mixed(self, time: Timestamp, key: Hashable, *, there: bool) -> None:
        """Write a timer whose key may be stored with other bytes."""
        store, slot = self._scratch.store, self._slot(time, key)
        # A slot is no prefix of another one, since it contains the length of the canonical key.
        found = store.first(slot, _after(slot), _AT_ONCE)
        equal = [place for place in found if self._key_at(place) == key]
        if there and not equal:
            store.write([(slot + self._stored_key(key), b"")])
        elif not there:
            store.write((), equal)

    def _flush(self) -> None:
        if not self._unwritten:
            return
        changes, self._unwritten = self._unwritten, {}
        self._kinds.see([key for _, key in changes])
        if self._kinds.mixed:
            for (time, key), there in changes.items():
                self._write_mixed(time, key, there=there)
            return
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        pack, prefix, stored_key = _SLOT.pack, self._prefix, self._key_codec.stored
        for (time, key), there in changes.items():
            canonical = encode_key(key)
            try:
                stored = stored_key(key)
            except CodecError:
                stored = self._stored_key(key)
            place = pack(prefix, time + _OFFSET, len(canonical)) + canonical + stored
            if there:
                puts.append((place, b""))
            else:
                deletes.append(place)
        self._scratch.store.write(puts, deletes)

    def _stored(self) -> FarTimers:
        """Return the far timers as they are now."""
        if self._horizon is None:
            return FarTimers(None, self._horizon_bytes(), self._end, self._key_codec.key)
        self._flush()
        view = self._scratch.store.view()
        return FarTimers(view, self._horizon_bytes(), self._end, self._key_codec.key)

    def _horizon_bytes(self) -> bytes:
        return self._prefix if self._horizon is None else self._horizon[1]

    def _slot(self, time: Timestamp, key: Hashable) -> bytes:
        canonical = encode_key(key)
        return _SLOT.pack(self._prefix, time + _OFFSET, len(canonical)) + canonical

    def _stored_key(self, key: Hashable) -> bytes:
        try:
            return self._key_codec.stored(key)
        except CodecError as exc:
            operator = self._key_codec.operator
            raise OperatorError(
                f"step {operator!r} cannot keep timers on disk for key {shown(key)}: {exc}",
                operator=operator,
                key=key,
            ) from exc

    def _key_at(self, place: bytes) -> Hashable:
        return self._key_codec.key(place[len(_slot_of(place)) :])


@dataclass(frozen=True, slots=True)
class FarTimers:
    """Far timers in ``view``; None if there are none."""

    view: View | None
    start: bytes
    stop: bytes
    key_of: Callable[[bytes], Hashable]

    def entries(self) -> Iterator[Timer[Hashable, None]]:
        """Yield the timers in the order of the database."""
        if self.view is None:
            return
        for place, _ in self.view.items(self.start, self.stop):
            yield Timer(_time_of(place), self.key_of(place[len(_slot_of(place)) :]), None)


@dataclass(frozen=True, slots=True)
class CopiedTimers:
    """All timers of a queue at one point in time."""

    near: Iterable[Timer[Hashable, None]]
    far: FarTimers

    def __iter__(self) -> Iterator[Timer[Hashable, None]]:
        return chain(self.near, self.far.entries())


def _time_of(place: bytes) -> Timestamp:
    time: int = _SLOT.unpack_from(place)[1]
    return time - _OFFSET


def _slot_of(place: bytes) -> bytes:
    length: int = _SLOT.unpack_from(place)[2]
    return place[: _SLOT.size + length]


def _after(prefix: bytes) -> bytes:
    """Return the first bytes after all that begin with ``prefix``, whose first byte is not the largest."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])
