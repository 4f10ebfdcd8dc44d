"""The channels that one subtask reads, with the queue of those that have elements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aflow.runtime.channel import Channel


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
