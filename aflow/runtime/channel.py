"""A bounded queue between a subtask that writes and a subtask that reads, both on the same event loop.

Bounded in records: ``put`` always takes the element (a writer cannot stop in the middle of a batch), and ``full`` tells
the writer to take no more input until there is room. So a channel holds at most its capacity plus what one step of the
writer emits. Nothing is awaited here: the reader is told when something came, the writer when there is room again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from aflow.model.batch import Batch
from aflow.model.elements import Active, Barrier, CancelBarrier, EndOfInput, Idle, Watermark

#: Records: enough for a few batches, so that writer and reader do not take turns for each of them.
DEFAULT_CAPACITY: Final = 4096

Element: TypeAlias = Batch[Any] | Watermark | Idle | Active | Barrier | CancelBarrier | EndOfInput


class Channel:
    """What one subtask has sent to another and the other has not taken yet, in order."""

    __slots__ = ("_elements", "capacity", "notify_reader", "notify_writer", "records")

    def __init__(self, capacity: int, notify_writer: Callable[[], None]) -> None:
        self._elements: deque[Element] = deque()
        self.capacity = capacity
        #: Records in all batches that wait here.
        self.records = 0
        self.notify_writer = notify_writer
        #: Set by the gate that reads the channel; called when the channel stops being empty.
        self.notify_reader: Callable[[], None] = _nobody

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
            self.notify_reader()

    def take(self, limit: int) -> Element:
        """Take the first element; of a batch at most ``limit`` records. Raises ``IndexError`` when empty."""
        element = self._elements.popleft()
        if type(element) is Batch:
            if len(element.values) > limit:
                self._elements.appendleft(element.slice(limit, len(element)))
                element = element.slice(0, limit)
            self._freed(len(element.values))
        return element

    def _freed(self, records: int) -> None:
        was_full = self.full
        self.records -= records
        if was_full and not self.full:
            self.notify_writer()


def _nobody() -> None:
    """Stands in until somebody wants to be told."""
