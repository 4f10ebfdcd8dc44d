"""Channels, gates and exchanges between subtasks."""

from __future__ import annotations

import pytest

from aflow.errors import OperatorError
from aflow.graph.nodes import Broadcast, Custom, Forward, HashByKey, Partitioning, Rebalance
from aflow.model.batch import Batch
from aflow.model.elements import END_OF_INPUT, Watermark
from aflow.model.key_groups import key_group, subtask_of
from aflow.runtime.channel import Channel
from aflow.runtime.edges import OutEdge, make_edge


class Calls:
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def channels(count: int, capacity: int = 100) -> list[Channel]:
    return [Channel(capacity, Calls(), Calls()) for _ in range(count)]


def edge(partitioning: Partitioning, readers: list[Channel]) -> OutEdge:
    return make_edge("step", partitioning, readers, key_groups=128)


def taken(channel: Channel) -> list[object]:
    return [channel.take(1024) for _ in range(len(channel))]


def test_a_channel_is_full_from_its_capacity_on_and_tells_the_writer_when_it_is_not_any_more() -> (
    None
):
    freed = Calls()
    channel = Channel(3, freed, Calls())

    channel.put_batch(Batch([1, 2]))
    half_full = channel.full
    channel.put_batch(Batch([3, 4]))

    assert (half_full, channel.full, channel.records) == (False, True, 4)
    assert channel.take(1024) == Batch([1, 2])
    assert (channel.full, freed.count) == (False, 1)


def test_a_channel_tells_its_reader_only_when_it_stops_being_empty() -> None:
    came = Calls()
    channel = Channel(10, Calls(), came)

    channel.put(Watermark(1))
    channel.put(Watermark(2))
    taken(channel)
    channel.put(Watermark(3))

    assert came.count == 2


def test_a_large_batch_is_taken_in_pieces_and_in_order() -> None:
    channel = Channel(10, Calls(), Calls())
    channel.put_batch(Batch([1, 2, 3, 4, 5], [10, 20, 30, 40, 50], ["a", "b", "c", "d", "e"]))

    pieces = [channel.take(2), channel.take(2), channel.take(2)]

    assert pieces == [
        Batch([1, 2], [10, 20], ["a", "b"]),
        Batch([3, 4], [30, 40], ["c", "d"]),
        Batch([5], [50], ["e"]),
    ]
    assert (channel.records, len(channel)) == (0, 0)


def test_a_hash_exchange_sends_each_record_to_the_owner_of_its_key_group_in_order() -> None:
    readers = channels(3)
    keys = [f"key-{number}" for number in range(50)]

    edge(HashByKey(), readers).emit(Batch(list(range(50)), list(range(50)), keys))

    owners = [subtask_of(key_group(key), 128, 3) for key in keys]
    for subtask, reader in enumerate(readers):
        mine = [number for number in range(50) if owners[number] == subtask]
        assert taken(reader) == [Batch(mine, mine, [keys[number] for number in mine])]


@pytest.mark.parametrize("timestamps", [None, [1, 2, 3, 4]], ids=["without time", "with time"])
def test_a_hash_exchange_sends_no_empty_batches(timestamps: list[int] | None) -> None:
    readers = channels(7)

    edge(HashByKey(), readers).emit(Batch([1, 2, 3, 4], timestamps, ["same"] * 4))

    assert sorted(len(reader) for reader in readers) == [0, 0, 0, 0, 0, 0, 1]


def test_a_key_that_cannot_be_one_is_an_error_of_its_step_and_names_the_record() -> None:
    with pytest.raises(OperatorError, match=r"step 'step' failed on record 'second'.*list") as info:
        edge(HashByKey(), channels(2)).emit(Batch(["first", "second"], None, ["a", ["b"]]))  # type: ignore[list-item]

    assert info.value.record == "second"


def test_rebalance_deals_batches_in_turn_and_passes_over_full_readers() -> None:
    readers = channels(3, capacity=1)
    spread = edge(Rebalance(), readers)

    readers[1].put_batch(Batch([0]))
    for number in (1, 2):
        spread.emit(Batch([number]))

    assert [taken(reader) for reader in readers] == [[Batch([1])], [Batch([0])], [Batch([2])]]


def test_a_rebalance_is_full_only_when_all_readers_are() -> None:
    readers = channels(2, capacity=1)
    spread = edge(Rebalance(), readers)

    spread.emit(Batch([1]))
    one_full = spread.full
    spread.emit(Batch([2]))

    assert (one_full, spread.full) == (False, True)


def test_every_other_exchange_is_full_when_one_reader_is() -> None:
    readers = channels(2, capacity=1)
    shared = edge(Broadcast(), readers)

    shared.emit(Batch([1]))
    readers[0].take(1)

    assert shared.full


def test_broadcast_gives_every_reader_every_record() -> None:
    readers = channels(2)

    edge(Broadcast(), readers).emit(Batch([1, 2]))

    assert [taken(reader) for reader in readers] == [[Batch([1, 2])], [Batch([1, 2])]]


def test_a_custom_exchange_follows_the_users_choice() -> None:
    readers = channels(2)

    edge(Custom(lambda value, subtasks: value % subtasks), readers).emit(
        Batch([1, 2, 3], [10, 20, 30])
    )

    assert [taken(reader) for reader in readers] == [[Batch([2], [20])], [Batch([1, 3], [10, 30])]]


@pytest.mark.parametrize("choice", [-1, 2, True, None, "1"])
def test_a_choice_that_is_no_subtask_is_refused_with_the_record(choice: object) -> None:
    partitioning = Custom(lambda _value, _subtasks: choice)  # type: ignore[arg-type, return-value]

    with pytest.raises(OperatorError, match="from 0 to 1"):
        edge(partitioning, channels(2)).emit(Batch([7]))


@pytest.mark.parametrize("partitioning", [HashByKey(), Rebalance(), Broadcast()], ids=repr)
def test_watermarks_and_the_end_go_to_all_readers(partitioning: Partitioning) -> None:
    readers = channels(3)
    sender = edge(partitioning, readers)

    sender.watermark(5)
    sender.end()

    assert [taken(reader) for reader in readers] == [[Watermark(5), END_OF_INPUT]] * 3


def test_a_forward_goes_to_the_one_reader() -> None:
    readers = channels(1)

    edge(Forward(), readers).emit(Batch([1]))

    assert taken(readers[0]) == [Batch([1])]
