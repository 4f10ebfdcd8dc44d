"""Records in flight as bytes, and where they go on.

An unaligned checkpoint holds the records that barriers have overtaken: in the channels of a task, and in front of the
writer of a sink. A restore puts them back before anything else moves. With the same numbers of writing and reading
subtasks each channel gets what it had, watermarks included. Otherwise records are shared out anew, as the exchange does
it: by key, or in turn; watermarks are left out, since the tasks before send theirs again. What was broadcast is in
flight to each reader as far as it had not got it, so it cannot be shared out anew: that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aflow.errors import CheckpointError, RestoreError
from aflow.graph.nodes import Broadcast, Custom, HashByKey, Partitioning
from aflow.model.batch import Batch
from aflow.model.batch_codec import decode_batch, encode_batch
from aflow.model.codecs import PICKLE, PLAIN, RECORDS, Codec, CodecError
from aflow.model.elements import ACTIVE, IDLE, Idle, Watermark
from aflow.model.key_groups import key_group, subtask_of
from aflow.runtime.channel import Element
from aflow.runtime.checkpoints.barriers import InFlight
from aflow.runtime.checkpoints.sections import IN_FLIGHT, WAITING
from aflow.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class Origin:
    """A channel: from subtask ``writer`` of ``writers`` to ``reader`` of ``readers``, by input ``number``."""

    number: int
    writer: int
    writers: int
    reader: int
    readers: int
    partitioning: Partitioning


_Parts = tuple[bytes, ...]

_IDLE: Final = "idle"
_ACTIVE: Final = "active"


def records_of(in_flight: InFlight) -> int:
    """How many records there are."""
    return sum(
        len(one) for elements in in_flight.values() for one in elements if isinstance(one, Batch)
    )


@dataclass(frozen=True, slots=True)
class InFlightCodec:
    """Turns records in flight into bytes and back."""

    codec: Codec[object]

    @classmethod
    def of(cls, *, pickle: bool) -> InFlightCodec:
        """With ``pickle``, what cannot be described by its fields is pickled; reading it runs code."""

        return cls(PICKLE if pickle else RECORDS)

    def waiting(self, sink: str, subtask: int, batches: Iterable[Batch[Any]]) -> _Parts:
        """What waits in front of a writer of a sink. Raises ``CheckpointError``."""
        return tuple(
            PLAIN.encode((subtask, self._batch(f"sink {sink!r}", batch))) for batch in batches
        )

    def channels(self, step: str, in_flight: InFlight, origins: Sequence[Origin]) -> _Parts:
        """What is in the channels of a step. Raises ``CheckpointError``."""
        return tuple(
            self._channel(step, origins[index], elements)
            for index, elements in in_flight.items()
            if elements
        )

    def added(self, snapshot: OperatorSnapshot, parts: _Parts) -> OperatorSnapshot:
        """``snapshot`` with the records in flight to its step."""
        operator = {**snapshot.operator, IN_FLIGHT: parts}
        return OperatorSnapshot(
            snapshot.keyed,
            operator,
            snapshot.broadcast,
            snapshot.replaced,
            snapshot.removed,
            snapshot.members,
        )

    def waiting_for(
        self, sink: str, snapshot: OperatorSnapshot, subtask: int, parallelism: int
    ) -> list[Batch[Any]]:
        """What writer ``subtask`` of a sink writes first. Raises ``RestoreError``."""
        parts = [
            cast("tuple[int, bytes]", PLAIN.decode(part))
            for part in snapshot.operator.get(WAITING, ())
        ]
        return [self._read(sink, data) for of, data in parts if of % parallelism == subtask]

    def _channel(self, step: str, origin: Origin, elements: Sequence[Element]) -> bytes:
        encoded: list[object] = []
        for element in elements:
            match element:
                case Batch():
                    encoded.append(self._batch(f"step {step!r}", element))
                case Watermark(timestamp):
                    encoded.append(timestamp)
                case Idle():
                    encoded.append(_IDLE)
                case _:
                    encoded.append(_ACTIVE)
        ends = [origin.number, origin.writer, origin.writers, origin.reader, origin.readers]
        return PLAIN.encode([*ends, encoded])

    def _batch(self, where: str, batch: Batch[Any]) -> bytes:
        try:
            return encode_batch(batch, self.codec)
        except CodecError as exc:
            raise CheckpointError(f"records in flight to {where} cannot be stored: {exc}") from exc

    def _read(self, step: str, data: bytes) -> Batch[Any]:
        try:
            return decode_batch(data, self.codec)
        except CodecError as exc:
            raise RestoreError(
                f"records that were in flight to {step!r} cannot be read: {exc}"
            ) from exc

    def elements(self, step: str, data: bytes) -> tuple[list[int], list[Element]]:
        """The five numbers of the channel's ``Origin``, and what was in it. Raises ``RestoreError``."""
        *ends, encoded = cast("list[Any]", PLAIN.decode(data))
        found: list[Element] = []
        for one in cast("list[bytes | int | str]", encoded):
            match one:
                case bytes():
                    found.append(self._read(step, one))
                case int():
                    found.append(Watermark(one))
                case _:
                    found.append(IDLE if one == _IDLE else ACTIVE)
        return ends, found


def restored_channels(
    codec: InFlightCodec,
    step: str,
    snapshot: OperatorSnapshot,
    origins: Mapping[tuple[int, int, int], Origin],
    key_groups: int,
) -> dict[Origin, list[Element]]:
    """What each channel into ``step`` begins with. ``origins`` are all of them, by input, writer and reader.

    Raises ``RestoreError`` for what cannot be shared out among other numbers of subtasks.
    """
    found: dict[Origin, list[Element]] = {}
    for part in snapshot.operator.get(IN_FLIGHT, ()):
        (number, writer, writers, reader, readers), elements = codec.elements(step, part)
        there = origins.get((number, writer, reader))
        if there is not None and (there.writers, there.readers) == (writers, readers):
            found.setdefault(there, []).extend(elements)
            continue
        for element in elements:
            if isinstance(element, Batch):
                _share_out(step, number, writer, reader, element, origins, key_groups, found)
    return found


def _share_out(
    step: str,
    number: int,
    writer: int,
    reader: int,
    batch: Batch[Any],
    origins: Mapping[tuple[int, int, int], Origin],
    key_groups: int,
    found: dict[Origin, list[Element]],
) -> None:
    any_origin = next((one for one in origins.values() if one.number == number), None)
    if any_origin is None:
        raise RestoreError(
            f"step {step!r} has no input {number} any more, and records were in flight to it"
        )
    readers, writers = any_origin.readers, any_origin.writers
    by_reader: dict[int, list[int]] = {}
    match any_origin.partitioning:
        case Broadcast():
            raise RestoreError(
                f"records of a broadcast were in flight to step {step!r}, which cannot be shared out among other "
                f"numbers of subtasks: restore with the former parallelism, or from a savepoint"
            )
        case HashByKey():
            for index, key in enumerate(batch.keys or ()):
                owner = subtask_of(key_group(key, key_groups), key_groups, readers)
                by_reader.setdefault(owner, []).append(index)
        case Custom(choose):
            for index, value in enumerate(batch.values):
                by_reader.setdefault(choose(value, readers), []).append(index)
        case _:
            by_reader[reader % readers] = list(range(len(batch)))
    for target, indexes in by_reader.items():
        origin = origins.get((number, writer % writers, target)) or origins[number, target, target]
        found.setdefault(origin, []).append(_picked(batch, indexes))


def _picked(batch: Batch[Any], indexes: Sequence[int]) -> Batch[Any]:
    if len(indexes) == len(batch):
        return batch
    picked = batch.pick(indexes)
    if batch.keys is None:
        return picked
    return Batch(picked.values, picked.timestamps, [batch.keys[index] for index in indexes])
