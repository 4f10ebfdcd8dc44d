"""Records in flight as bytes, and their distribution after a restore.

An unaligned checkpoint holds the records that barriers have overtaken: in the channels of a task, and in the queue of
the writer of a sink. A restore puts them back before anything else is processed. With the same numbers of writing and
reading subtasks each channel gets its elements, including watermarks. Otherwise records are distributed anew as the
exchange does it, by key or in turn; watermarks are left out, since the upstream tasks emit theirs again. If the step
has been chained to the preceding one, there is no channel any more, and it gets its records at once. Records of a
broadcast are in flight to each reader that has not received them, so they cannot be distributed anew: that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aflow.errors import RestoreError, UnstorableState
from aflow.graph.nodes import Broadcast, Custom, HashByKey, Partitioning
from aflow.model.batch import Batch, decode_batch, encode_batch
from aflow.model.codecs import PICKLE, PLAIN, RECORDS, Codec, CodecError
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.key_groups import key_group, subtask_of
from aflow.model.time import MAX_TIMESTAMP
from aflow.runtime.channel import Element
from aflow.runtime.checkpoints.checkpointed_input import InFlight
from aflow.runtime.checkpoints.sections import IN_FLIGHT, WAITING
from aflow.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class ElementOrigin:
    """A channel: from subtask ``writer`` of ``writers`` to ``reader`` of ``readers``, by input ``number``."""

    number: int
    writer: int
    writers: int
    reader: int
    readers: int
    partitioning: Partitioning


_Parts = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """The content of one channel when the checkpoint was taken; the numbers are those of its ``ElementOrigin``."""

    number: int
    writer: int
    writers: int
    reader: int
    readers: int
    copies: bool
    """True if each reader was sent the same records."""
    elements: Sequence[Element]

    def batches(self) -> Iterator[Batch[Any]]:
        """The records, without the watermarks between them, which are meaningless in another channel.

        They were earned by records of this channel alone: another one may follow that has older records.
        """
        return (one.without_watermarks() for one in self.elements if isinstance(one, Batch))

    def refuse_copies(self, step: str) -> None:
        """Raise ``RestoreError`` for records of a broadcast: each reader had received another number of them."""
        if self.copies and any(self.batches()):
            raise RestoreError(
                f"records of a broadcast were in flight to step {step!r}, which cannot be distributed to other "
                f"numbers of subtasks: restore with the former parallelism, or from a savepoint"
            )


_IDLE: Final = "idle"
_ACTIVE: Final = "active"
_END_OF_TIME: Final = Watermark(MAX_TIMESTAMP)


def records_of(in_flight: InFlight) -> int:
    """Return the number of records."""
    return sum(
        len(one) for elements in in_flight.values() for one in elements if isinstance(one, Batch)
    )


def has_in_flight(snapshot: OperatorSnapshot) -> bool:
    """Return True if records were in flight to the step."""
    return any(
        isinstance(element, bytes)
        for part in snapshot.operator.get(IN_FLIGHT, ())
        for element in cast("tuple[Any, ...]", PLAIN.decode(part))[-1]
    )


@dataclass(frozen=True, slots=True)
class InFlightCodec:
    """Turns records in flight into bytes and back."""

    codec: Codec[object]

    @classmethod
    def of(cls, *, pickle: bool) -> InFlightCodec:
        """With ``pickle``, values that cannot be described by their fields are pickled; reading them runs code."""

        return cls(PICKLE if pickle else RECORDS)

    def waiting(self, sink: str, subtask: int, batches: Iterable[Batch[Any]]) -> _Parts:
        """Encode the records that wait for a writer of a sink. Raises ``CheckpointError``."""
        return tuple(
            PLAIN.encode((subtask, self._batch(f"sink {sink!r}", batch))) for batch in batches
        )

    def channels(self, step: str, in_flight: InFlight, origins: Sequence[ElementOrigin]) -> _Parts:
        """Encode the records in the channels of a step. Raises ``CheckpointError``."""
        return tuple(
            self._channel(step, origins[index], elements)
            for index, elements in in_flight.items()
            if elements
        )

    def added(self, snapshot: OperatorSnapshot, parts: _Parts) -> OperatorSnapshot:
        """Return ``snapshot`` with the records in flight to its step."""
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
        """Return the records that writer ``subtask`` of a sink writes first. Raises ``RestoreError``."""
        parts = [
            cast("tuple[int, bytes]", PLAIN.decode(part))
            for part in snapshot.operator.get(WAITING, ())
        ]
        return [self._read(sink, data) for of, data in parts if of % parallelism == subtask]

    def _channel(self, step: str, origin: ElementOrigin, elements: Sequence[Element]) -> bytes:
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
        copies = isinstance(origin.partitioning, Broadcast)
        return PLAIN.encode([*ends, copies, encoded])

    def check(self, where: str, batch: Batch[Any]) -> None:
        """Raise ``CheckpointError`` if ``batch`` could not be stored as records in flight to ``where``."""
        self._batch(where, batch)

    def _batch(self, where: str, batch: Batch[Any]) -> bytes:
        try:
            return encode_batch(batch, self.codec)
        except CodecError as exc:
            raise UnstorableState(
                f"records in flight to {where} cannot be stored: {exc}; or choose Unaligned(pickle=True)"
            ) from exc

    def _read(self, step: str, data: bytes) -> Batch[Any]:
        try:
            return decode_batch(data, self.codec)
        except CodecError as exc:
            raise RestoreError(
                f"records that were in flight to {step!r} cannot be read: {exc}"
            ) from exc

    def found(self, step: str, snapshot: OperatorSnapshot) -> Iterator[_Found]:
        """Yield the content of the channels of a step. Raises ``RestoreError``."""
        for part in snapshot.operator.get(IN_FLIGHT, ()):
            number, writer, writers, reader, readers, copies, encoded = cast(
                "tuple[int, int, int, int, int, bool, list[bytes | int | str]]", PLAIN.decode(part)
            )
            elements = [self._element(step, one) for one in encoded]
            yield _Found(number, writer, writers, reader, readers, copies, elements)

    def _element(self, step: str, encoded: bytes | int | str) -> Element:
        match encoded:
            case bytes():
                return self._read(step, encoded)
            case int():
                return Watermark(encoded)
            case _:
                return IDLE if encoded == _IDLE else ACTIVE


def restored_channels(
    codec: InFlightCodec,
    step: str,
    snapshot: OperatorSnapshot,
    origins: Mapping[tuple[int, int, int], ElementOrigin],
    key_groups: int,
) -> dict[ElementOrigin, list[Element]]:
    """Return the first elements of each channel into ``step``. ``origins`` are all channels, by input, writer and
    reader.

    Raises ``RestoreError`` for records that cannot be distributed to other numbers of subtasks.
    """
    placed: dict[ElementOrigin, list[Element]] = {}
    for found in codec.found(step, snapshot):
        there = origins.get((found.number, found.writer, found.reader))
        if there is not None and (there.writers, there.readers) == (found.writers, found.readers):
            placed.setdefault(there, []).extend(_continued(found.elements))
            continue
        found.refuse_copies(step)
        for batch in found.batches():
            _share_out(step, found, batch, origins, key_groups, placed)
    return placed


def _continued(elements: Sequence[Element]) -> list[Element]:
    """Return the first elements of a channel from the ``elements`` that were in it.

    The writer starts active and with its splits dealt anew: it emits the end of event time, or idleness, again if that
    still holds. So the end is left out, and a channel that was idle ends active. Otherwise its reader would ignore the
    following watermarks.
    """
    kept = [one for one in elements if one != _END_OF_TIME]
    statuses = [one for one in kept if isinstance(one, Idle | Active)]
    return [*kept, ACTIVE] if statuses and isinstance(statuses[-1], Idle) else kept


def restored_in_chain(
    codec: InFlightCodec, step: str, snapshot: OperatorSnapshot, subtask: int, parallelism: int
) -> list[Batch[Any]]:
    """Return the first records of a step that is chained to the preceding one now, without a channel between them.

    Raises ``RestoreError`` for records that cannot be distributed to other numbers of subtasks.
    """
    batches: list[Batch[Any]] = []
    for found in codec.found(step, snapshot):
        if found.readers != parallelism:
            found.refuse_copies(step)
        if found.reader % parallelism == subtask:
            batches += found.batches()
    return batches


def _share_out(
    step: str,
    found: _Found,
    batch: Batch[Any],
    origins: Mapping[tuple[int, int, int], ElementOrigin],
    key_groups: int,
    placed: dict[ElementOrigin, list[Element]],
) -> None:
    any_origin = next((one for one in origins.values() if one.number == found.number), None)
    if any_origin is None:
        raise RestoreError(
            f"step {step!r} has no input {found.number} any more, and records were in flight to it"
        )
    readers, writers = any_origin.readers, any_origin.writers
    by_reader: dict[int, list[int]] = {}
    match any_origin.partitioning:
        case HashByKey():
            if batch.keys is None:
                raise RestoreError(
                    f"records without a key were in flight to step {step!r}, which reads by key now: restore with the "
                    f"former pipeline, or from a savepoint"
                )
            for index, key in enumerate(batch.keys):
                owner = subtask_of(key_group(key, key_groups), key_groups, readers)
                by_reader.setdefault(owner, []).append(index)
        case Custom(choose):
            for index, value in enumerate(batch.values):
                by_reader.setdefault(choose(value, readers), []).append(index)
        case Broadcast():
            raise RestoreError(
                f"records were in flight to step {step!r}, whose input is a broadcast only now: each of its subtasks "
                f"would need them; restore with the former pipeline, or from a savepoint"
            )
        case _:
            by_reader[found.reader % readers] = list(range(len(batch)))
    for target, indexes in by_reader.items():
        origin = origins.get((found.number, found.writer % writers, target))
        # A forward has one channel to each reader.
        origin = origin or origins[found.number, target, target]
        placed.setdefault(origin, []).append(batch.pick_keyed(indexes))
