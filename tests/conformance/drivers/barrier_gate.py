"""The gate of the scenarios about barriers: elements that arrived and were not polled yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from aflow.model.elements import Barrier, CancelBarrier


@dataclass(frozen=True, slots=True)
class Data:
    """A buffer with records."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class End:
    """The last of a channel."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A barrier is in the channel."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A barrier that has overtaken, with the data before it."""

    barrier: Barrier
    data: Sequence[Data]


Queued: TypeAlias = Data | Barrier | CancelBarrier | End
Urgent: TypeAlias = Announcement | Overtaken
#: Their names in the scenarios.
WORDS: Final[Mapping[type[Queued | Urgent], str]] = {
    Announcement: "announcement",
    Data: "data",
    End: "end",
    Overtaken: "barrier",
    Barrier: "barrier",
    CancelBarrier: "cancel",
}


@dataclass
class _Channel:
    """``urgent`` elements are taken before the others."""

    urgent: deque[Urgent] = field(default_factory=deque[Urgent])
    queued: deque[Queued] = field(default_factory=deque[Queued])

    def let_overtake(self, place: int) -> None:
        barrier = self.queued[place]
        assert isinstance(barrier, Barrier)
        del self.queued[place]
        passed = [one for one in list(self.queued)[:place] if isinstance(one, Data)]
        self.urgent.append(Overtaken(replace(barrier, unaligned=True), passed))


class Gate:
    """Channels in turn, those with something urgent before the others."""

    def __init__(self, channels: int) -> None:
        self._channels = [_Channel() for _ in range(channels)]
        self._ready: deque[int] = deque()

    def put(self, index: int, element: Queued, *, announced: bool = False) -> None:
        channel = self._channels[index]
        channel.queued.append(element)
        if isinstance(element, Barrier) and element.unaligned:
            channel.let_overtake(len(channel.queued) - 1)
        elif isinstance(element, Barrier) and announced:
            channel.urgent.append(Announcement(element))
        if index not in self._ready:
            self._ready.append(index)

    def overtake(self, index: int, checkpoint: int) -> None:
        channel = self._channels[index]
        for place, element in enumerate(channel.queued):
            if isinstance(element, Barrier) and element.id == checkpoint:
                return channel.let_overtake(place)
        raise AssertionError(f"the barrier of {checkpoint} is not in channel {index}")

    def poll(self, held: set[int]) -> tuple[int, Queued | Urgent] | None:
        """The next element of a channel that is not ``held``; None if there is none."""
        ready = [index for index in self._ready if index not in held]
        urgent = [index for index in ready if self._channels[index].urgent]
        if not ready:
            return None
        index = (urgent or ready)[0]
        self._ready.remove(index)
        channel = self._channels[index]
        element = channel.urgent.popleft() if channel.urgent else channel.queued.popleft()
        if channel.urgent or channel.queued:
            self._ready.append(index)
        return index, element
