"""The encoding of records without a declared type."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.connect import BadRecord
from aflow.model.batch import Batch, decode_batch, encode_batch
from aflow.model.codecs import PICKLE, RECORDS, CodecError
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow, Windowed


class Colour(Enum):
    RED = 1
    BLUE = "b"


@dataclass(frozen=True, slots=True)
class Payment:
    card: str
    amount: Decimal
    at: datetime
    tags: tuple[str, ...] = ()


@dataclass
class Counted:
    start: InitVar[int]
    value: int = 0
    seen: list[Payment] = field(default_factory=list)
    calls = 0

    def __post_init__(self, start: int) -> None:
        Counted.calls += 1
        self.value += start


class Point(NamedTuple):
    x: int
    y: float


class Order(msgspec.Struct, frozen=True):
    id: int
    point: Point
    colour: Colour = Colour.RED


class Outer:
    @dataclass(frozen=True)
    class Inner:
        n: int


PAYMENT = Payment("4711", Decimal("1.50"), datetime(2026, 1, 1, tzinfo=UTC), ("a", "b"))


@pytest.mark.parametrize(
    "value",
    [
        PAYMENT,
        Point(1, 2.5),
        Order(1, Point(0, 0.0), Colour.BLUE),
        Colour.RED,
        Outer.Inner(3),
        [PAYMENT, (Point(1, 2.0), {Colour.RED: PAYMENT}), {Point(3, 4.0)}, 2**80],
        Windowed("key", TimeWindow(0, 10), PAYMENT, 2),
        Windowed(("a", 1), GLOBAL_WINDOW, [Point(1, 1.0)]),
        BadRecord("a.csv, line 3", "too short", b"\x00"),
    ],
    ids=[
        "dataclass",
        "named tuple",
        "struct",
        "enum",
        "nested",
        "mixed",
        "window",
        "global window",
        "bad record",
    ],
)
def test_records_are_restored_equal_and_of_their_type(value: object) -> None:
    decoded = RECORDS.decode(RECORDS.encode(value))

    assert decoded == value
    assert type(decoded) is type(value)


def test_computed_fields_are_not_computed_again() -> None:
    counted = Counted(5, 2)
    calls = Counted.calls

    decoded = RECORDS.decode(RECORDS.encode(counted))

    assert decoded == counted
    assert Counted.calls == calls


def test_an_attribute_that_is_no_field_is_kept() -> None:
    counted = Counted(1)
    counted.note = "by hand"  # type: ignore[attr-defined]

    decoded = RECORDS.decode(RECORDS.encode(counted))

    assert vars(decoded)["note"] == "by hand"


def test_a_class_inside_of_a_function_is_refused_with_the_way_out() -> None:
    @dataclass
    class Local:
        n: int

    with pytest.raises(CodecError, match=r"Local cannot be found by its name"):
        RECORDS.encode([Local(1)])


def test_an_object_that_is_not_its_fields_is_refused_with_the_way_out() -> None:
    with pytest.raises(CodecError, match=r"object is neither .* nor a dataclass"):
        RECORDS.encode({"a": object()})


@pytest.mark.parametrize("codec", [RECORDS, PICKLE], ids=lambda codec: codec.name)
def test_a_batch_is_restored_with_all_its_columns(codec: object) -> None:
    batch = Batch([PAYMENT, PAYMENT], [1, 2], ["a", ("b", 1)])

    assert decode_batch(encode_batch(batch, codec), codec) == batch  # type: ignore[arg-type]


def test_a_batch_without_timestamps_and_keys_has_none_afterwards() -> None:
    assert decode_batch(encode_batch(Batch([1]), RECORDS), RECORDS) == Batch([1])


payments = st.builds(
    Payment,
    st.text(),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(st.text()).map(tuple),
)
records = st.recursive(
    payments
    | st.builds(Point, st.integers(), st.floats(allow_nan=False))
    | st.sampled_from(Colour),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.integers() | st.text(), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=10,
)


@pytest.mark.slow
@given(records)
def test_any_nesting_of_records_is_restored_equal(value: object) -> None:
    assert RECORDS.decode(RECORDS.encode(value)) == value
