"""Exchanges: the distribution of the records of one subtask to the subtasks of another task.

Records go to the channels that the partitioning chooses; watermarks, idleness and the end go to all of them. Each
partitioning has one class, chosen when the job is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from aflow.errors import FlowDefinitionError, InternalError, OperatorError, shown
from aflow.graph.nodes import Broadcast, Custom, Forward, HashByKey, Partitioning, Rebalance
from aflow.model.batch import Batch
from aflow.model.elements import (
    ACTIVE,
    END_OF_INPUT,
    IDLE,
    Barrier,
    CancelBarrier,
    LatencyMarker,
    Marker,
    Watermark,
)
from aflow.model.key_groups import key_group, subtask_of
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, unsupported
from aflow.runtime.channel import Channel, Element

#: The most keys whose readers are cached.
_MOST_KEYS: Final = 65_536


class OutEdge(ABC):
    """The sending end of an exchange, in one subtask."""

    def __init__(self, step: str, channels: Sequence[Channel]) -> None:
        self.step = step
        self.channels = channels
        #: The channel of the next latency marker.
        self._measured = 0

    @property
    def full(self) -> bool:
        """True while the subtask must take no more input because a reader is slower."""
        return any(channel.full for channel in self.channels)

    @abstractmethod
    def emit(self, batch: Batch[Any]) -> None:
        """Distribute a batch."""

    def _send(self, parts: Sequence[Batch[Any]]) -> None:
        """Send a part to each reader; empty ones are left out."""
        for channel, part in zip(self.channels, parts, strict=True):
            if part.values:
                channel.put_batch(part)

    def watermark(self, timestamp: Timestamp) -> None:
        self._send_to_all(Watermark(timestamp))

    def idle(self) -> None:
        self._send_to_all(IDLE)

    def active(self) -> None:
        self._send_to_all(ACTIVE)

    def marker(self, marker: Marker) -> None:
        """Emit a marker: one that measures latency to one reader after the other, others to all.

        Latency is measured where records were sent just now: readers that have nothing to do would hide the others.
        """
        if type(marker) is LatencyMarker:
            count = len(self.channels)
            turns = [(self._measured + offset) % count for offset in range(1, count + 1)]
            self._measured = next((turn for turn in turns if len(self.channels[turn])), turns[0])
            self.channels[self._measured].put(marker)
        else:
            self._send_to_all(marker)

    def barrier(self, barrier: Barrier) -> None:
        """Emit a barrier: all that was sent before belongs to the checkpoint."""
        for channel in self.channels:
            channel.put_barrier(barrier)

    def cancel_barrier(self, checkpoint: int) -> None:
        """Tell all readers that a checkpoint is aborted."""
        self._send_to_all(CancelBarrier(checkpoint))

    def end(self) -> None:
        """Emit the end of the input."""
        self._send_to_all(END_OF_INPUT)

    def side(self, tag: str, batch: Batch[Any]) -> None:
        raise InternalError(f"side output {tag!r} was sent into an exchange of step {self.step!r}")

    def _send_to_all(self, element: Element) -> None:
        for channel in self.channels:
            channel.put(element)


class ForwardEdge(OutEdge):
    """Sends to the reader of the same index."""

    def emit(self, batch: Batch[Any]) -> None:
        self.channels[0].put_batch(batch)


class BroadcastEdge(OutEdge):
    """Sends to every reader; they share the batch."""

    def emit(self, batch: Batch[Any]) -> None:
        for channel in self.channels:
            channel.put_batch(batch)


class RebalanceEdge(OutEdge):
    """Sends batches to the readers in turn; a full one is skipped unless all are full."""

    def __init__(self, step: str, channels: Sequence[Channel]) -> None:
        super().__init__(step, channels)
        self._next = 0

    @property
    def full(self) -> bool:
        return all(channel.full for channel in self.channels)

    def emit(self, batch: Batch[Any]) -> None:
        count = len(self.channels)
        start = self._next
        turns = ((start + offset) % count for offset in range(count))
        index = next((turn for turn in turns if not self.channels[turn].full), start)
        self._next = (index + 1) % count
        self.channels[index].put_batch(batch)


class KeyOwners:
    """The index of the reader of each key, by key group. ``step`` is the sending step, for errors."""

    def __init__(self, step: str, key_groups: int, readers: int) -> None:
        self._step = step
        self._key_groups = key_groups
        self._readers = readers
        #: Readers by key, for recent keys. A plain ``dict``, since CPython looks up in those a third faster than in a
        #: subclass that fills itself.
        self.known: dict[Hashable, int] = {}

    def learn(self, batch: Batch[Any], keys: Sequence[Hashable]) -> None:
        """Find the owners of ``keys``. All others are forgotten once there are many, which limits the memory.

        Raises ``OperatorError`` for an invalid key.
        """
        if len(self.known) >= _MOST_KEYS:
            self.known.clear()
        for index, key in enumerate(keys):
            try:
                if key not in self.known:
                    self.known[key] = self._owner(key)
            except (
                TypeError
            ) as exc:  # an UnsupportedKey, or the error of a dict for an unhashable key
                cause = unsupported(key) or exc
                raise OperatorError.of(
                    self._step, cause, record=batch.values[index], key=key
                ) from cause

    def _owner(self, key: Hashable) -> int:
        group = key_group(key, self._key_groups)
        return subtask_of(group, self._key_groups, self._readers)


class HashEdge(OutEdge):
    """Sends each record to the reader that owns the key group of its key."""

    def __init__(self, step: str, channels: Sequence[Channel], key_groups: int) -> None:
        super().__init__(step, channels)
        self._owners = KeyOwners(step, key_groups, len(channels))

    def emit(self, batch: Batch[Any]) -> None:
        keys = batch.keys
        if keys is None:
            raise InternalError(
                f"step {self.step!r} sent a batch without keys into a keyed exchange"
            )
        owners = self._owners
        try:
            parts = _split_by_key(batch, keys, owners.known, len(self.channels))
        except (KeyError, TypeError):
            # The key was not seen recently, or it cannot be looked up.
            owners.learn(batch, keys)
            parts = _split_by_key(batch, keys, owners.known, len(self.channels))
        self._send(parts)


class CustomEdge(OutEdge):
    """Sends each record to the reader that the user's function returns."""

    def __init__(self, step: str, channels: Sequence[Channel], custom: Custom) -> None:
        super().__init__(step, channels)
        self._choose = custom.choose

    def emit(self, batch: Batch[Any]) -> None:
        count = len(self.channels)
        parts = _split(batch, [self._chosen(value, count) for value in batch.values], count)
        self._send(parts)

    def _chosen(self, value: object, count: int) -> int:
        try:
            target = self._choose(value, count)
        except RAISED as exc:
            raise OperatorError.of(self.step, exc, record=value) from exc
        if type(target) is not int or not 0 <= target < count:
            wrong = FlowDefinitionError(
                f"the partition function must return a subtask from 0 to {count - 1}, not {shown(target)}"
            )
            raise OperatorError.of(self.step, wrong, record=value) from wrong
        return target


def make_edge(
    step: str, partitioning: Partitioning, channels: Sequence[Channel], key_groups: int
) -> OutEdge:
    """Return the sending end for ``partitioning``; ``channels`` are those to each reader, or the one of a forward."""
    match partitioning:
        case Forward():
            return ForwardEdge(step, channels)
        case HashByKey():
            return HashEdge(step, channels, key_groups)
        case Rebalance():
            return RebalanceEdge(step, channels)
        case Broadcast():
            return BroadcastEdge(step, channels)
        case Custom():
            return CustomEdge(step, channels, partitioning)


def _split_by_key(
    batch: Batch[Any], keys: Sequence[Hashable], owners: Mapping[Hashable, int], count: int
) -> list[Batch[Any]]:
    """Distribute the records of ``batch`` to ``count`` readers, in order. Raises ``KeyError`` for a key without owner.

    Hot path (benchmark ``exchange``). One loop that appends to all columns is the fastest of the variants that ``python
    -m bench shapes`` compares, for two readers and for seven.
    """
    times, met = batch.timestamps, batch.watermarks
    if times is not None and met is not None:
        return _split_with_watermarks(batch.values, keys, times, met, owners, count)
    if times is None:
        pairs: list[tuple[list[Any], list[Hashable]]] = [([], []) for _ in range(count)]
        for value, key in zip(batch.values, keys, strict=True):
            to_values, to_keys = pairs[owners[key]]
            to_values.append(value)
            to_keys.append(key)
        return [Batch(some, None, their_keys) for some, their_keys in pairs]
    columns: list[tuple[list[Any], list[Timestamp], list[Hashable]]] = [
        ([], [], []) for _ in range(count)
    ]
    for value, timestamp, key in zip(batch.values, times, keys, strict=True):
        to_values, to_timestamps, to_keys = columns[owners[key]]
        to_values.append(value)
        to_timestamps.append(timestamp)
        to_keys.append(key)
    return [Batch(*column) for column in columns]


def _split_with_watermarks(
    values: Sequence[Any],
    keys: Sequence[Hashable],
    times: Sequence[Timestamp],
    met: Sequence[Timestamp],
    owners: Mapping[Hashable, int],
    count: int,
) -> list[Batch[Any]]:
    """Distribute records as ``_split_by_key``, with the watermarks that they meet."""
    columns: list[tuple[list[Any], list[Timestamp], list[Hashable], list[Timestamp]]] = [
        ([], [], [], []) for _ in range(count)
    ]
    for value, timestamp, key, watermark in zip(values, times, keys, met, strict=True):
        to_values, to_timestamps, to_keys, to_watermarks = columns[owners[key]]
        to_values.append(value)
        to_timestamps.append(timestamp)
        to_keys.append(key)
        to_watermarks.append(watermark)
    return [Batch(*column) for column in columns]


def _split(batch: Batch[Any], targets: Sequence[int], count: int) -> list[Batch[Any]]:
    """Distribute the records of ``batch`` to ``count`` readers, record ``i`` to reader ``targets[i]``."""
    indices: list[list[int]] = [[] for _ in range(count)]
    for index, target in enumerate(targets):
        indices[target].append(index)
    return [batch.pick_keyed(some) for some in indices]
