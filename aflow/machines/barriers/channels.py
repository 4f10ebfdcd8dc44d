"""The channels of a barrier machine: those that have ended, and those whose barrier is missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Set as AbstractSet
from typing import Final

from aflow.errors import InternalError
from aflow.machines.barriers.events import AlarmFired, ChannelEnded, Event
from aflow.model.elements import Barrier

#: Number of events shown when a stream is corrupt.
_REMEMBERED: Final = 20


class BarrierChannels:
    """A fixed number of channels, numbered from 0. Raises ``InternalError`` if there is none."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise InternalError(f"a barrier machine needs a channel, not {count}")
        self.count = count
        #: Channels that have ended. Grows only; after an end only barriers follow.
        self.ended: set[int] = set()
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)

    @property
    def open(self) -> int:
        """Channels that have not ended."""
        return self.count - len(self.ended)

    def observe(self, event: Event) -> None:
        """Record ``event``. Raises ``InternalError`` if its channel does not exist, or ends a second time."""
        self._recent.append(event)
        if isinstance(event, AlarmFired):
            return
        if not 0 <= event.channel < self.count:
            raise self.corrupt(f"there is no channel {event.channel} among {self.count}")
        if isinstance(event, ChannelEnded):
            if event.channel in self.ended:
                raise self.corrupt(f"channel {event.channel} has ended twice")
            self.ended.add(event.channel)

    def all_reported(self, reported: AbstractSet[int]) -> bool:
        """Return True if every channel is in ``reported`` or has ended."""
        return len(reported | self.ended) == self.count

    def missing(self, reported: AbstractSet[int]) -> tuple[int, ...]:
        """Return the open channels that are not in ``reported``."""
        return tuple(
            one for one in range(self.count) if one not in reported and one not in self.ended
        )

    def repeated(self, channel: int, barrier: Barrier) -> InternalError:
        """Return the error for a second barrier of one checkpoint."""
        return self.corrupt(f"channel {channel} sent the barrier of checkpoint {barrier.id} twice")

    def corrupt(self, what: str) -> InternalError:
        """Return the error for an impossible event, with the recent events."""
        return InternalError(what, events=tuple(self._recent))
