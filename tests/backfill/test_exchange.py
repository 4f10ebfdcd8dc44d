"""Records on their way from one fragment to another come back as they were, type for type."""

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
from aflow.backfill.exchange import ExitEncoder, Rows, decoded
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


def _rows(values: list[Any], keys: list[Any] | None = None) -> Rows:
    keys = ["k"] * len(values) if keys is None else keys
    return _encoder().rows(Batch(values, list(range(len(values))), keys))


@given(st.lists(st.tuples(keys, values), min_size=1, max_size=8))
def test_whatever_is_sent_comes_back_with_its_key(records: list[tuple[Any, Any]]) -> None:
    keys, values = map(list, zip(*records, strict=True))

    rows = _rows(values, keys)

    assert decoded(rows.payloads) == (keys, values)
    assert [type(one) for one in decoded(rows.payloads)[1]] == [type(one) for one in values]


@given(st.lists(st.builds(Slotted, st.text(), st.integers(0, 9)), min_size=1))
def test_records_of_one_class_with_plain_fields_are_not_pickled(records: list[Slotted]) -> None:
    rows = _rows(list(records))

    assert "" not in {msgspec.msgpack.decode(payload)[0] for payload in rows.payloads}


def test_each_record_goes_to_the_subtask_that_owns_its_key_in_a_live_job() -> None:
    keys = [f"key {number}" for number in range(50)]

    rows = _rows(list(range(50)), keys)

    assert rows.parts == [subtask_of(key_group(key, 128), 128, 3) for key in keys]
    assert rows.times == list(range(50))
    assert rows.exit == 4


def test_records_for_a_sink_have_neither_part_nor_time() -> None:
    rows = _encoder(reader=None).rows(Batch(["a", "b"]))

    assert (rows.parts, rows.times) == ([], [])
    assert decoded(rows.payloads) == ([None, None], ["a", "b"])


def test_a_record_that_cannot_be_sent_is_named_with_its_step() -> None:
    with pytest.raises(
        af.OperatorError, match=r"step 'by name' sent <unlocked .* cannot go from one executor"
    ):
        _rows([1, threading.Lock()])


def test_what_can_be_no_key_is_named_with_its_record() -> None:
    with pytest.raises(af.OperatorError, match="by name") as raised:
        _rows(["a"], [[1]])

    assert raised.value.record == "a"


def test_keys_that_are_equal_keep_their_own_types() -> None:
    rows = _rows(["a", "b", "c", "d"], [1, True, 1.0, Decimal(2)])

    assert [type(key) for key in decoded(rows.payloads)[0]] == [int, bool, float, Decimal]
