"""Timers of one time domain for more keys than fit in memory: near ones in memory, far ones in ``TimerDatabase``.

Near timers of one time fire in the order of registration, far ones in the order of the canonical bytes of their keys.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from aflow.machines.timer_changes import Changes
from aflow.machines.timer_copy import CompleteCopy, TimerCopy
from aflow.machines.timer_queue import Timer, TimerQueue
from aflow.model.time import TimeDomain, Timestamp
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.timer_database import (
    NEAR,
    FarTimer,
    FarTimers,
    NoNamespaces,
    TimerDatabase,
    last_changes,
)
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec


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
        self._most_near = near
        self._near: TimerQueue[Hashable, None] = TimerQueue()
        self._far = TimerDatabase(domain, NoNamespaces(), key_codec, scratch, kinds)
        #: The last change of each timer since changes were taken; None: not recorded.
        self._changes: dict[FarTimer[None], bool] | None = None

    def __len__(self) -> int:
        """Return the number of timers. Reads all far ones."""
        return len(self._near) + sum(1 for _ in self._far.stored())

    @property
    def earliest(self) -> Timestamp | None:
        """The earliest time of a timer (epoch ms); None without timers."""
        while (earliest := self._near.earliest) is None and self._far.horizon is not None:
            self._read()
        return earliest

    def register(self, time: Timestamp, key: Hashable, namespace: None = None) -> None:
        """Add a timer, if it is not registered yet."""
        # Hot path (benchmark `state`): once for each record that registers a timer.
        horizon = self._far.horizon
        if horizon is not None and (time > horizon[0] or self._far.is_far(time, key, None)):
            self._far.write(time, key, None, there=True)
        else:
            self._near.register(time, key, None)
            if len(self._near) > self._most_near:
                for moved in self._far.take_later_half(self._near.entries()):
                    self._near.delete(*moved)
        if self._changes is not None:
            self._changes[time, key, None] = True

    def delete(self, time: Timestamp, key: Hashable, namespace: None = None) -> None:
        """Remove a timer, if it is registered."""
        if self._far.is_far(time, key, None):
            self._far.write(time, key, None, there=False)
        else:
            self._near.delete(time, key, None)
        if self._changes is not None:
            self._changes[time, key, None] = False

    def due_in_pieces(self, now: Timestamp) -> Iterator[Timer[Hashable, None] | None]:
        """Remove and yield the timers up to ``now``, as ``TimerQueue``, and None after each read of the database."""
        while True:
            for timer in self._near.due_in_pieces(now):
                if timer is not None and self._changes is not None:
                    self._changes[timer] = False
                yield timer
            if self._far.horizon is None or self._far.horizon[0] > now:
                return
            self._read()
            yield None

    def copied_in_pieces(self) -> TimerCopy[Hashable, None]:
        """Return all present timers; only the near ones are in memory, so they are copied at once."""
        keys = self.keys()
        return CompleteCopy(self.copied(), keys)

    def keys(self) -> list[Hashable]:
        """Return the key of each near timer: ``kinds`` has observed those of far ones."""
        self._far.flush()
        return self._near.keys()

    def copied(self) -> CopiedTimers:
        """Return all present timers, to iterate over later, also in another thread."""
        return CopiedTimers(self._near.copied(), self._far.stored())

    def take_changes(self) -> Changes[Hashable, None] | None:
        """Return the last changes since the last call. The first call starts recording and returns None."""
        changes, self._changes = self._changes, {}
        return None if changes is None else last_changes(changes)

    def _read(self) -> None:
        """Move the next far timers to memory."""
        register = self._near.register
        for time, key, namespace in self._far.read():
            register(time, key, namespace)


@dataclass(frozen=True, slots=True)
class CopiedTimers:
    """All timers of a queue at one point in time."""

    near: Iterable[Timer[Hashable, None]]
    far: FarTimers[None]

    def __iter__(self) -> Iterator[Timer[Hashable, None]]:
        return chain(self.near, self.far)
