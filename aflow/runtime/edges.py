"""Exchanges: how the records of one subtask are shared out among the subtasks of another task.

Data goes to the channels that the partitioning chooses; watermarks, idleness and the end go to all of them. One
class for each partitioning, chosen when the job is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

from aflow.errors import FlowDefinitionError, InternalError, OperatorError, shown
from aflow.graph.nodes import Broadcast, Custom, Forward, HashByKey, Partitioning, Rebalance
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, END_OF_INPUT, IDLE, Watermark
from aflow.model.key_groups import KeyRouter
from aflow.model.keys import UnsupportedKey
from aflow.model.time import Timestamp
from aflow.runtime.channel import Channel


class OutEdge(ABC):
    """The sending end of an exchange, in one subtask."""

    def __init__(self, step: str, channels: Sequence[Channel]) -> None:
        self.step = step
        self.channels = channels

    @property
    def full(self) -> bool:
        """True while the subtask should take no more input because a reader is behind."""
        return any(channel.full for channel in self.channels)

    @abstractmethod
    def emit(self, batch: Batch[Any]) -> None:
        """Share out a batch."""

    def watermark(self, timestamp: Timestamp) -> None:
        element = Watermark(timestamp)
        for channel in self.channels:
            channel.put(element)

    def idle(self) -> None:
        for channel in self.channels:
            channel.put(IDLE)

    def active(self) -> None:
        for channel in self.channels:
            channel.put(ACTIVE)

    def end(self) -> None:
        """Tell all readers that nothing follows."""
        for channel in self.channels:
            channel.put(END_OF_INPUT)

    def side(self, tag: str, batch: Batch[Any]) -> None:
        raise InternalError(f"side output {tag!r} was sent into an exchange of step {self.step!r}")


class ForwardEdge(OutEdge):
    """To the one reader of the same index."""

    def emit(self, batch: Batch[Any]) -> None:
        self.channels[0].put_batch(batch)


class BroadcastEdge(OutEdge):
    """To every reader; they share the batch."""

    def emit(self, batch: Batch[Any]) -> None:
        for channel in self.channels:
            channel.put_batch(batch)


class RebalanceEdge(OutEdge):
    """Batch by batch to the readers in turn; one that is full is passed over unless all are."""

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


class _SplittingEdge(OutEdge):
    """One that sends the records of a batch to several readers."""

    def _send(self, batch: Batch[Any], targets: Sequence[int]) -> None:
        parts = _split(batch, targets, len(self.channels))
        for channel, part in zip(self.channels, parts, strict=True):
            if part.values:
                channel.put_batch(part)


class HashEdge(_SplittingEdge):
    """Each record to the reader that owns the key group of its key."""

    def __init__(self, step: str, channels: Sequence[Channel], key_groups: int) -> None:
        super().__init__(step, channels)
        self._router = KeyRouter(parallelism=len(channels), key_groups=key_groups)

    def emit(self, batch: Batch[Any]) -> None:
        keys = batch.keys
        if keys is None:
            raise InternalError(
                f"step {self.step!r} sent a batch without keys into a keyed exchange"
            )
        self._send(batch, self._targets(batch, keys))

    def _targets(self, batch: Batch[Any], keys: Sequence[Hashable]) -> list[int]:
        try:
            return self._router.route(keys)
        except UnsupportedKey as exc:
            index = next(i for i, key in enumerate(keys) if not self._routable(key))
            raise OperatorError.of(
                self.step, exc, record=batch.values[index], key=keys[index]
            ) from exc

    def _routable(self, key: Hashable) -> bool:
        try:
            self._router.route([key])
        except UnsupportedKey:
            return False
        return True


class CustomEdge(_SplittingEdge):
    """Each record to the reader that the user's function names."""

    def __init__(self, step: str, channels: Sequence[Channel], custom: Custom) -> None:
        super().__init__(step, channels)
        self._choose = custom.choose

    def emit(self, batch: Batch[Any]) -> None:
        count = len(self.channels)
        self._send(batch, [self._chosen(value, count) for value in batch.values])

    def _chosen(self, value: object, count: int) -> int:
        try:
            target = self._choose(value, count)
        except Exception as exc:
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
    """The sending end for ``partitioning``; ``channels`` are the ones to each reader, or the one of a forward."""
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


def _split(batch: Batch[Any], targets: Sequence[int], count: int) -> list[Batch[Any]]:
    """Deal the records of ``batch`` out to ``count`` batches, in order.

    Hot path (benchmark ``exchange``). One loop that appends to all columns is the fastest of the ways that
    ``python -m bench shapes`` compares, for two readers and for seven.
    """
    times, keys = batch.timestamps, batch.keys
    if times is not None and keys is not None:
        return _split_all(batch.values, times, keys, targets, count)
    if keys is not None:
        return _split_keyed(batch.values, keys, targets, count)
    values = _dealt(batch.values, targets, count)
    if times is None:
        return [Batch(some) for some in values]
    return list(map(Batch, values, _dealt(times, targets, count)))


def _split_all(
    values: Sequence[Any],
    timestamps: Sequence[Timestamp],
    keys: Sequence[Hashable],
    targets: Sequence[int],
    count: int,
) -> list[Batch[Any]]:
    columns: list[tuple[list[Any], list[Timestamp], list[Hashable]]] = [
        ([], [], []) for _ in range(count)
    ]
    for value, timestamp, key, target in zip(values, timestamps, keys, targets, strict=True):
        to_values, to_timestamps, to_keys = columns[target]
        to_values.append(value)
        to_timestamps.append(timestamp)
        to_keys.append(key)
    return [Batch(*column) for column in columns]


def _split_keyed(
    values: Sequence[Any], keys: Sequence[Hashable], targets: Sequence[int], count: int
) -> list[Batch[Any]]:
    columns: list[tuple[list[Any], list[Hashable]]] = [([], []) for _ in range(count)]
    for value, key, target in zip(values, keys, targets, strict=True):
        to_values, to_keys = columns[target]
        to_values.append(value)
        to_keys.append(key)
    return [Batch(some, None, their_keys) for some, their_keys in columns]


def _dealt(column: Sequence[Any], targets: Sequence[int], count: int) -> list[list[Any]]:
    parts: list[list[Any]] = [[] for _ in range(count)]
    for item, target in zip(column, targets, strict=True):
        parts[target].append(item)
    return parts
