"""Records sent between fragments are decoded unchanged, type for type."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aflow as af
from aflow.backfill.exchange import ExitEncoder, RecordBlock, decode_block
from aflow.backfill.fragments import Exit
from aflow.graph.nodes import Kind, Node
from aflow.model.batch import Batch
from aflow.model.key_groups import key_group, subtask_of


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    at: int


@dataclass
class Plain:
    name: str
    at: float | None


class Named(NamedTuple):
    name: str
    at: int


class Packed(msgspec.Struct):
    name: str
    at: int


@dataclass
class Nested:
    inner: Slotted
    many: list[int]


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.one_of(
    scalars,
    st.tuples(st.text(), st.integers()),
    st.dictionaries(st.text(), scalars),
    st.dictionaries(st.integers(), scalars),
    st.lists(scalars),
    st.builds(Slotted, st.text(), st.integers()),
    st.builds(Plain, st.text(), st.none() | st.floats(allow_nan=False)),
    st.builds(Named, st.text(), st.integers()),
    st.builds(Packed, st.text(), st.integers(0, 100)),
    st.builds(Nested, st.builds(Slotted, st.text(), st.integers()), st.lists(st.integers())),
    st.sampled_from(Colour),
    st.decimals(allow_nan=False),
)
keys = st.text() | st.integers() | st.tuples(st.text(), st.integers())


def _encoder(reader: int | None = 1, readers: int = 3) -> ExitEncoder:
    origin = Node(id=0, name="by name", kind=Kind.STEP, what="key_by")
    return ExitEncoder(Exit(4, origin, None, reader=reader), key_groups=128, readers=readers)


def _sent(values: list[Any], keys: list[Any] | None = None, readers: int = 1) -> list[RecordBlock]:
    keys = ["k"] * len(values) if keys is None else keys
    batch = Batch(values, list(range(len(values))), keys)
    return list(_encoder(readers=readers).record_blocks(batch))


def _opened(record_blocks: list[RecordBlock]) -> tuple[list[Any], list[Any]]:
    there = [decode_block(one.payload, one.time) for one in record_blocks]
    return [key for one in there for key in one.keys], [v for one in there for v in one.values]


@pytest.mark.slow
@given(st.lists(st.tuples(keys, values), min_size=1, max_size=8))
def test_any_record_is_decoded_with_its_key(records: list[tuple[Any, Any]]) -> None:
    keys, values = map(list, zip(*records, strict=True))

    record_blocks = _sent(values, keys)

    assert _opened(record_blocks) == (keys, values)
    assert [type(one) for one in _opened(record_blocks)[1]] == [type(one) for one in values]


def test_a_class_with_other_fields_is_pickled_column_by_column() -> None:
    records = [Nested(Slotted("a", number), [number]) for number in range(50)]

    (record_block,) = _sent(list(records))

    assert record_block.payload.count(b"Nested") == 1
    assert _opened([record_block])[1] == records


@pytest.mark.slow
@given(st.lists(st.builds(Slotted, st.text(), st.integers(0, 9)), min_size=1))
def test_records_of_one_class_with_plain_fields_are_not_pickled(records: list[Slotted]) -> None:
    record_blocks = _sent(list(records))

    headers = [msgspec.msgpack.decode(record_block.payload)[0] for record_block in record_blocks]
    assert all("Slotted" in header for header in headers)


@given(st.lists(st.tuples(st.integers(-50_000, 50_000), st.text(max_size=1)), min_size=1))
def test_parcels_hold_records_in_the_order_of_time_within_ten_seconds(
    records: list[tuple[int, str]],
) -> None:
    times, keys = [time for time, _ in records], [key for _, key in records]

    record_blocks = list(
        _encoder(readers=2).record_blocks(Batch(list(range(len(times))), times, keys))
    )

    for record_block in record_blocks:
        there = decode_block(record_block.payload, record_block.time)
        assert there.times == sorted(there.times)
        assert there.times[0] == record_block.time
        assert there.times[-1] - there.times[0] <= 10_000
        order = list(zip(there.times, there.values, strict=True))
        assert order == sorted(order)
        assert [times[value] for value in there.values] == there.times
        assert [keys[value] for value in there.values] == there.keys
    assert sorted(_opened(record_blocks)[1]) == list(range(len(times)))


def _lengths(times: list[int]) -> list[int]:
    """Lengths of the blocks of records in batches of 100."""
    encoder = _encoder()
    batches = (times[at : at + 100] for at in range(0, len(times), 100))
    sent = (encoder.record_blocks(Batch(some, some, ["k"] * len(some))) for some in batches)
    return [
        len(decode_block(one.payload, one.time).times)
        for record_blocks in sent
        for one in record_blocks
    ]


def test_records_minutes_apart_share_a_batch_if_they_arrive_nearly_in_order() -> None:
    in_order = [number * 60_000 for number in range(2_000)]
    disordered = [at + at * 7 % 11 * 600_000 for at in in_order]
    with_one_of_long_ago = [*in_order[:150], -(10**12), *in_order[150:]]

    for times in (in_order, disordered, with_one_of_long_ago):
        lengths = _lengths(times)

        # The first batch does not show it.
        assert lengths[:100] == [1] * 100
        assert len(lengths) < 100 + 4 * 19


def test_parcels_stay_short_where_a_history_is_in_no_order() -> None:
    shuffled = [number * 7_919 % 20_000 * 60_000 for number in range(20_000)]

    lengths = _lengths(shuffled)

    assert max(lengths) < 10
    assert lengths.count(1) > 19_000


def test_parcels_hold_so_many_records_at_most() -> None:
    record_blocks = _sent(list(range(3_000)))

    assert [len(decode_block(one.payload, one.time).values) for one in record_blocks] == [
        1024,
        1024,
        952,
    ]


def test_each_record_is_sent_to_the_subtask_that_owns_its_key_in_a_live_job() -> None:
    keys = [f"key {number}" for number in range(50)]

    record_blocks = _sent(list(range(50)), keys, readers=3)

    for record_block in record_blocks:
        there = decode_block(record_block.payload, record_block.time).keys
        assert {subtask_of(key_group(key, 128), 128, 3) for key in there} == {record_block.part}
    assert sorted(_opened(record_blocks)[0]) == sorted(keys)
    assert {record_block.exit for record_block in record_blocks} == {4}


def test_records_for_a_sink_keep_their_order() -> None:
    record_blocks = list(_encoder(reader=None).record_blocks(Batch(["b", "a"])))

    assert [(one.part, one.time) for one in record_blocks] == [(0, 0)]
    assert _opened(record_blocks) == ([None, None], ["b", "a"])


def test_a_record_that_cannot_be_sent_is_named_with_its_step() -> None:
    with pytest.raises(
        af.OperatorError, match=r"step 'by name' sent <unlocked .* cannot go from one executor"
    ):
        _sent([1, threading.Lock()])


def test_a_class_of_a_function_inside_a_record_is_named_with_the_cure() -> None:
    @dataclass
    class Local:
        number: int

    with pytest.raises(af.OperatorError) as raised:
        _sent([{"numbers": [1]}, {"numbers": [Local(1)]}])

    assert raised.value.record == {"numbers": [Local(1)]}
    assert f"class {Local.__qualname__} is not found by its name" in str(raised.value)
    assert str(raised.value).endswith("define it at the top of a module")


def test_a_value_that_can_be_no_key_is_named_with_its_record() -> None:
    with pytest.raises(af.OperatorError, match="by name") as raised:
        _sent(["a"], [[1]])

    assert raised.value.record == "a"


def test_keys_that_are_equal_keep_their_own_types() -> None:
    record_blocks = _sent(["a", "b", "c", "d"], [1, True, 1.0, Decimal(2)])

    assert [type(key) for key in _opened(record_blocks)[0]] == [int, bool, float, Decimal]


def test_attributes_besides_the_fields_are_preserved() -> None:
    plain = Plain("a", 1.0)
    plain.__dict__["note"] = "beside"

    there = _opened(_sent([plain, Plain("b", 2.0)]))[1]

    assert there[0].__dict__ == {"name": "a", "at": 1.0, "note": "beside"}
    assert there[1].__dict__ == {"name": "b", "at": 2.0}
