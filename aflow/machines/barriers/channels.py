"""What all barrier machines know of the channels of their task: which have ended, and whom there is to wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Set as AbstractSet
from typing import Final

from aflow.errors import InternalError
from aflow.machines.barriers.events import AlarmFired, ChannelEnded, Event
from aflow.model.elements import Barrier

#: So many events are shown when a stream is corrupt.
_REMEMBERED: Final = 20


class BarrierChannels:
    """A fixed number of channels, numbered from 0, of which some have ended. Raises ``InternalError`` for none."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise InternalError(f"a barrier machine needs a channel, not {count}")
        self.count = count
        #: Grows only: nothing comes back from its end, save for barriers that follow it.
        self.ended: set[int] = set()
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)

    @property
    def open(self) -> int:
        """BarrierChannels that have not ended."""
        return self.count - len(self.ended)

    def hear(self, event: Event) -> None:
        """Remember ``event``. Raises ``InternalError`` if its channel does not exist, or ends a second time."""
        self._recent.append(event)
        if isinstance(event, AlarmFired):
            return
        if not 0 <= event.channel < self.count:
            raise self.corrupt(f"there is no channel {event.channel} among {self.count}")
        if isinstance(event, ChannelEnded):
            if event.channel in self.ended:
                raise self.corrupt(f"channel {event.channel} has ended twice")
            self.ended.add(event.channel)

    def all_spoke(self, spoken: AbstractSet[int]) -> bool:
        """True if every channel is among ``spoken`` or has ended."""
        return len(spoken | self.ended) == self.count

    def silent(self, spoken: AbstractSet[int]) -> tuple[int, ...]:
        """The channels that are neither among ``spoken`` nor have ended."""
        return tuple(
            one for one in range(self.count) if one not in spoken and one not in self.ended
        )

    def repeated(self, channel: int, barrier: Barrier) -> InternalError:
        """The error for a second barrier of one checkpoint."""
        return self.corrupt(f"channel {channel} sent the barrier of checkpoint {barrier.id} twice")

    def corrupt(self, what: str) -> InternalError:
        """The error for a stream that says what it cannot, with what it said lately."""
        return InternalError(what, events=tuple(self._recent))
