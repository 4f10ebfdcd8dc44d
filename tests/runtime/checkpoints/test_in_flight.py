"""Records in flight: their distribution when a job continues from an unaligned checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from aflow.errors import CheckpointError, RestoreError
from aflow.graph.nodes import Broadcast, Custom, Forward, HashByKey, Partitioning, Rebalance
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Watermark
from aflow.model.key_groups import key_group, subtask_of
from aflow.model.time import MAX_TIMESTAMP
from aflow.runtime.channel import Element
from aflow.runtime.checkpoints.inflight import (
    ElementOrigin,
    InFlightCodec,
    restored_channels,
    restored_in_chain,
)
from aflow.runtime.checkpoints.sections import IN_FLIGHT, WAITING
from aflow.state.snapshot import OperatorSnapshot

PLAIN = InFlightCodec.of(pickle=False)


def channels(
    partitioning: Partitioning, writers: int, readers: int
) -> dict[tuple[int, int, int], ElementOrigin]:
    """Return all channels of an exchange, which is the only input."""
    forward = isinstance(partitioning, Forward)
    return {
        (0, writer, reader): ElementOrigin(0, writer, writers, reader, readers, partitioning)
        for writer in range(writers)
        for reader in ((writer,) if forward else range(readers))
    }


def stored(
    held: dict[ElementOrigin, list[Element]], codec: InFlightCodec = PLAIN
) -> OperatorSnapshot:
    origins = list(held)
    in_flight = dict(enumerate(held.values()))
    return codec.added(OperatorSnapshot(), codec.channels("step", in_flight, origins))


def values(elements: Iterable[Element]) -> list[Any]:
    return [value for one in elements if isinstance(one, Batch) for value in one.values]


def by_value(value: object, readers: int) -> int:
    assert isinstance(value, int)
    return value % readers


ALL = [HashByKey(), Rebalance(), Forward(), Custom(by_value), Broadcast()]


def test_records_keep_the_watermarks_that_they_meet_in_their_own_channel_only() -> None:
    met = Batch(["a", "b"], [7, 9], ["key", "key"], [3, 6])
    held: dict[ElementOrigin, list[Element]] = {
        origin: [met] for origin in channels(HashByKey(), 1, 2).values() if origin.reader == 0
    }
    snapshot = stored(held)

    same = restored_channels(PLAIN, "step", snapshot, channels(HashByKey(), 1, 2), 128)
    other = restored_channels(PLAIN, "step", snapshot, channels(HashByKey(), 1, 3), 128)
    chained = restored_in_chain(PLAIN, "step", snapshot, 0, 2)

    bare = met.without_watermarks()
    assert list(same.values()) == [[met]]
    # Records of several channels follow each other there, and each channel has watermarks of its own.
    assert (list(other.values()), chained) == ([[bare]], [bare])


@pytest.mark.parametrize("partitioning", ALL, ids=lambda one: type(one).__name__)
def test_with_the_same_subtasks_each_channel_gets_its_elements(partitioning: Partitioning) -> None:
    there = channels(partitioning, 2, 2)
    held: dict[ElementOrigin, list[Element]] = {
        origin: [Batch([index], [7], ["key"]), Watermark(5), IDLE, ACTIVE, Batch([index + 10])]
        for index, origin in enumerate(there.values())
    }

    found = restored_channels(PLAIN, "step", stored(held), there, 128)

    assert found == held


def test_a_channel_that_was_idle_begins_active_since_its_writer_does() -> None:
    origin = ElementOrigin(0, 0, 1, 0, 1, HashByKey())
    held: dict[ElementOrigin, list[Element]] = {origin: [Watermark(5), IDLE]}

    found = restored_channels(PLAIN, "step", stored(held), {(0, 0, 0): origin}, 128)

    assert found == {origin: [Watermark(5), IDLE, ACTIVE]}


def test_the_end_of_time_is_left_out_since_the_writer_may_get_other_splits() -> None:
    origin = ElementOrigin(0, 0, 1, 0, 1, HashByKey())
    last = Batch(["last"], [7], ["key"])
    held: dict[ElementOrigin, list[Element]] = {
        origin: [last, Watermark(6), Watermark(MAX_TIMESTAMP)]
    }

    found = restored_channels(PLAIN, "step", stored(held), {(0, 0, 0): origin}, 128)

    assert found == {origin: [last, Watermark(6)]}


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3), (3, 2), (4, 2)])
@pytest.mark.parametrize("partitioning", ALL[:-1], ids=lambda one: type(one).__name__)
def test_with_other_subtasks_each_record_goes_once_to_its_reader_without_watermarks(
    partitioning: Partitioning, before: int, after: int
) -> None:
    held: dict[ElementOrigin, list[Element]] = {}
    for number, origin in enumerate(channels(partitioning, before, before).values()):
        batch = list(range(number * 10, number * 10 + 10))
        held[origin] = [Batch(batch, batch, list(batch)), Watermark(number), IDLE]

    found = restored_channels(
        PLAIN, "step", stored(held), channels(partitioning, after, after), 128
    )

    everything = [value for elements in held.values() for value in values(elements)]
    assert sorted(value for one in found.values() for value in values(one)) == sorted(everything)
    assert all(isinstance(one, Batch) for elements in found.values() for one in elements)
    for origin, elements in found.items():
        for value in values(elements):
            if isinstance(partitioning, HashByKey):
                assert subtask_of(key_group(value, 128), 128, after) == origin.reader
            if isinstance(partitioning, Custom):
                assert by_value(value, after) == origin.reader


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_records_of_one_key_keep_their_order(before: int, after: int) -> None:
    origin = next(iter(channels(HashByKey(), before, before).values()))
    batches: list[Element] = [
        Batch([f"{key}{n}" for key in "abc"], None, list("abc")) for n in range(5)
    ]

    found = restored_channels(
        PLAIN, "step", stored({origin: batches}), channels(HashByKey(), after, after), 128
    )

    for key in "abc":
        of_key = [v for some in found.values() for v in values(some) if v[0] == key]
        assert of_key == [f"{key}{n}" for n in range(5)]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_records_of_a_broadcast_are_not_distributed_anew(before: int, after: int) -> None:
    origin = next(iter(channels(Broadcast(), before, before).values()))

    with pytest.raises(RestoreError, match=r"'step'.*former parallelism"):
        restored_channels(
            PLAIN,
            "step",
            stored({origin: [Batch([1])]}),
            channels(Broadcast(), after, after),
            128,
        )


def test_watermarks_of_a_broadcast_alone_do_not_prevent_another_parallelism() -> None:
    origin = next(iter(channels(Broadcast(), 1, 1).values()))

    found = restored_channels(
        PLAIN, "step", stored({origin: [Watermark(5)]}), channels(Broadcast(), 2, 2), 128
    )

    assert found == {}


def test_records_without_a_key_are_not_lost_silently_where_records_go_by_key_now() -> None:
    origin = ElementOrigin(0, 0, 1, 0, 1, Rebalance())

    with pytest.raises(RestoreError, match="without a key were in flight to step 'step'"):
        restored_channels(
            PLAIN, "step", stored({origin: [Batch([1])]}), channels(HashByKey(), 2, 2), 128
        )


def test_records_of_an_input_that_is_gone_are_not_lost_silently() -> None:
    second = ElementOrigin(1, 0, 1, 0, 1, Rebalance())

    with pytest.raises(RestoreError, match="'step' has no input 1"):
        restored_channels(
            PLAIN, "step", stored({second: [Batch([1])]}), channels(Rebalance(), 1, 1), 128
        )


class Thing:
    """A value that only pickle can store."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up


def test_records_that_cannot_be_stored_are_refused_with_the_way_out() -> None:
    origin = ElementOrigin(0, 0, 1, 0, 1, Rebalance())

    with pytest.raises(CheckpointError, match=r"'step'.*pickle=True"):
        stored({origin: [Batch([Thing(1)])]})


def test_with_pickle_any_record_may_be_in_flight() -> None:
    there = channels(Rebalance(), 1, 1)
    held: dict[ElementOrigin, list[Element]] = {there[0, 0, 0]: [Batch([Thing(1)])]}
    codec = InFlightCodec.of(pickle=True)

    assert restored_channels(codec, "step", stored(held, codec), there, 128) == held


def test_batches_that_wait_for_a_writer_go_to_the_same_writer_or_are_distributed() -> None:
    parts = tuple(
        part for subtask in range(3) for part in PLAIN.waiting("out", subtask, [Batch([subtask])])
    )
    snapshot = OperatorSnapshot(operator={WAITING: parts})

    same = [values(PLAIN.waiting_for("out", snapshot, subtask, 3)) for subtask in range(3)]
    fewer = [values(PLAIN.waiting_for("out", snapshot, subtask, 2)) for subtask in range(2)]

    assert same == [[0], [1], [2]]
    assert fewer == [[0, 2], [1]]


def test_nothing_in_flight_is_nothing_to_store() -> None:
    assert stored({ElementOrigin(0, 0, 1, 0, 1, Rebalance()): []}).operator[IN_FLIGHT] == ()
