"""A bounded queue between a subtask that writes and a subtask that reads, both on the same event loop.

Bounded in records: ``put`` always takes the element (a writer cannot stop in the middle of a batch), and ``full`` tells
the writer to take no more input until there is room. So a channel holds at most its capacity plus what one step of the
writer emits. Nothing is awaited here: the reader is told when something came, the writer when there is room again.

A barrier stands in the queue like everything else. One that may overtake what is in front of it is announced to the
reader at once, who takes it out of its place when it has reason to (``overtake``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

from aflow.model.batch import Batch
from aflow.model.elements import Active, Barrier, CancelBarrier, EndOfInput, Idle, Watermark

#: Records: enough for a few batches, so that writer and reader do not take turns for each of them.
DEFAULT_CAPACITY: Final = 4096

Element: TypeAlias = Batch[Any] | Watermark | Idle | Active | Barrier | CancelBarrier | EndOfInput


class Channel:
    """What one subtask has sent to another and the other has not taken yet, in order."""

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
        """``notify_writer`` is called when there is room again, ``notify_reader`` when the channel is empty no more."""
        self._elements: deque[Element] = deque()
        self.capacity = capacity
        #: Records in all batches that wait here.
        self.records = 0
        self._notify_writer = notify_writer
        self._notify_reader = notify_reader
        #: Called with each barrier that may overtake when it is sent; None if the reader takes no checkpoints.
        self.on_barrier: Callable[[Barrier], None] | None = None

    @property
    def full(self) -> bool:
        """True while the writer should take no more input."""
        return self.records >= self.capacity

    def __len__(self) -> int:
        return len(self._elements)

    def put_batch(self, batch: Batch[Any]) -> None:
        """Send records, whether or not there is room."""
        self.records += len(batch.values)
        self.put(batch)

    def put(self, element: Element) -> None:
        """Send what is no batch."""
        elements = self._elements
        elements.append(element)
        if len(elements) == 1:
            self._notify_reader()

    def put_barrier(self, barrier: Barrier) -> None:
        """Send a barrier, and announce it if it may overtake what is in front of it."""
        self.put(barrier)
        if self.on_barrier is not None and (barrier.unaligned or barrier.timeout is not None):
            self.on_barrier(barrier)

    def take(self, limit: int) -> Element:
        """Take the first element; of a batch at most ``limit`` records. Raises ``IndexError`` when empty."""
        element = self._elements.popleft()
        if type(element) is Batch:
            if len(element.values) > limit:
                self._elements.appendleft(element.slice(limit, len(element)))
                element = element.slice(0, limit)
            self._freed(len(element.values))
        return element

    @property
    def batches(self) -> Iterator[Batch[Any]]:
        """The batches that wait here, oldest first."""
        return (one for one in self._elements if type(one) is Batch)

    def holds(self, checkpoint: int) -> bool:
        """True while the barrier of ``checkpoint`` is in the queue."""
        return any(type(one) is Barrier and one.id == checkpoint for one in self._elements)

    def overtake(self, checkpoint: int) -> tuple[Barrier, list[Element]] | None:
        """Take the barrier of ``checkpoint`` out of its place; with it, what it has overtaken, which stays.

        None if the barrier is not here.
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
