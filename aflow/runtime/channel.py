"""A bounded queue between a writing and a reading subtask, both on the same event loop.

Bounded in records: ``put`` always accepts the element (a writer cannot stop within a batch), and ``full`` tells the
writer to take no more input until there is room. So a channel holds at most its capacity and the results of one step of
the writer. Nothing is awaited here: callbacks notify the reader of input and the writer of room.

A barrier is queued like any other element. One that may overtake is announced to the reader at once, which removes it
from the queue when it decides so (``overtake``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

from aflow.model.batch import Batch
from aflow.model.elements import (
    Active,
    Barrier,
    CancelBarrier,
    EndOfInput,
    Idle,
    Marker,
    Watermark,
)
from aflow.model.questions import current_correlation

#: Records: enough for a few batches, so that writer and reader do not alternate for each of them.
DEFAULT_CAPACITY: Final = 4096

Element: TypeAlias = (
    Batch[Any] | Watermark | Idle | Active | Marker | Barrier | CancelBarrier | EndOfInput
)


class Channel:
    """Elements that one subtask has sent and another has not taken yet, in order."""

    __slots__ = (
        "_elements",
        "_notify_reader",
        "_notify_writer",
        "capacity",
        "on_barrier",
        "records",
    )

    def __init__(
        self, capacity: int, notify_writer: Callable[[], None], notify_reader: Callable[[], None]
    ) -> None:
        """``notify_writer`` is called when there is room again, ``notify_reader`` when the channel stops being
        empty."""
        self._elements: deque[Element] = deque()
        self.capacity = capacity
        #: Records in all queued batches.
        self.records = 0
        self._notify_writer = notify_writer
        self._notify_reader = notify_reader
        #: Called with each barrier that may overtake when it is sent; None if the reader takes no checkpoints.
        self.on_barrier: Callable[[Barrier], None] | None = None

    @property
    def full(self) -> bool:
        """True while the writer must take no more input."""
        return self.records >= self.capacity

    def __len__(self) -> int:
        return len(self._elements)

    def put_batch(self, batch: Batch[Any]) -> None:
        """Send records, even if the channel is full."""
        if (correlation := current_correlation()) is not None:
            batch.correlation = correlation
            correlation.hold()
        self.records += len(batch.values)
        self.put(batch)

    def put(self, element: Element) -> None:
        """Send an element other than a batch."""
        elements = self._elements
        elements.append(element)
        if len(elements) == 1:
            self._notify_reader()

    def put_barrier(self, barrier: Barrier) -> None:
        """Send a barrier, and announce it if it may overtake."""
        self.put(barrier)
        if self.on_barrier is not None and (barrier.unaligned or barrier.timeout is not None):
            self.on_barrier(barrier)

    def take(self, limit: int) -> Element:
        """Take the first element; at most ``limit`` records of a batch. Raises ``IndexError`` when empty.

        A batch of a question is not divided.
        """
        element = self._elements.popleft()
        if type(element) is Batch:
            if len(element.values) > limit and element.correlation is None:
                self._elements.appendleft(element.slice(limit, len(element)))
                element = element.slice(0, limit)
            self._freed(len(element.values))
        return element

    @property
    def batches(self) -> Iterator[Batch[Any]]:
        """The queued batches, oldest first."""
        return (one for one in self._elements if type(one) is Batch)

    def holds(self, checkpoint: int) -> bool:
        """True while the barrier of ``checkpoint`` is in the queue."""
        return any(type(one) is Barrier and one.id == checkpoint for one in self._elements)

    def overtake(self, checkpoint: int) -> tuple[Barrier, list[Element]] | None:
        """Remove the barrier of ``checkpoint`` from the queue, and return it with the elements that it has overtaken.

        Those remain in the queue. Returns None if the barrier is not here.
        """
        for place, element in enumerate(self._elements):
            if type(element) is Barrier and element.id == checkpoint:
                overtaken = list(islice(self._elements, place))
                del self._elements[place]
                return element, overtaken
        return None

    def _freed(self, records: int) -> None:
        was_full = self.full
        self.records -= records
        if was_full and not self.full:
            self._notify_writer()


class InputChannels:
    """All channels into one subtask. The order in which they are added is that of the gate."""

    def __init__(self, on_input: Callable[[], None]) -> None:
        """``on_input`` is called when a channel stops being empty."""
        self._on_input = on_input
        self.channels: list[Channel] = []
        #: Indices of the channels that are not empty, in the order in which they are served; no index twice. Blocked
        #: channels are with the ``CheckpointedInput`` instead, once their turn has come.
        self.ready: deque[int] = deque()

    def add(self, capacity: int, notify_writer: Callable[[], None]) -> Channel:
        """Create the next channel."""
        index = len(self.channels)
        channel = Channel(capacity, notify_writer, self._notifier(index))
        self.channels.append(channel)
        return channel

    @property
    def queued_records(self) -> int:
        """Records in all channels."""
        return sum(channel.records for channel in self.channels)

    def has_queued(self, split: str) -> bool:
        """Return True if a channel holds records: an exchange does not tell splits apart."""
        return any(channel.records for channel in self.channels)

    def _notifier(self, index: int) -> Callable[[], None]:
        # Hot path: called for most batches. A closure costs less than a method.
        make_ready, on_input = self.ready.append, self._on_input

        def notify() -> None:
            make_ready(index)
            on_input()

        return notify
