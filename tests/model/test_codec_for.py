"""Typed encoding, and pickle on request."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, StrEnum
from typing import Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar, assert_type, cast
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import AflowError, FlowDefinitionError
from aflow.model.codecs import PICKLE, PLAIN, Codec, CodecError, codec_for, encode_all

T = TypeVar("T")


class Currency(StrEnum):
    CHF = "CHF"
    EUR = "EUR"


@dataclass(frozen=True)
class Payment:
    card: str
    amount: Decimal
    currency: Currency
    at: datetime
    tags: tuple[str, ...] = ()
    parents: list[Payment] = field(default_factory=list["Payment"])


class Reading(msgspec.Struct):
    sensor: UUID
    values: dict[int, float]


class Route(TypedDict):
    origin: str
    hops: set[str]


class Pair(NamedTuple):
    day: date
    flights: int


class Box(msgspec.Struct, Generic[T]):
    content: T


class Access(Flag):
    READ = 1


class Opaque:
    pass


def payments(parents: st.SearchStrategy[list[Payment]]) -> st.SearchStrategy[Payment]:
    return st.builds(
        Payment,
        card=st.text(),
        amount=st.decimals(allow_nan=False),
        currency=st.sampled_from(Currency),
        at=st.datetimes(timezones=st.just(UTC)),
        tags=st.lists(st.text()).map(tuple),
        parents=parents,
    )


@given(payments(st.lists(payments(st.builds(list[Payment])), max_size=2)))
def test_a_dataclass_is_restored_equal_with_the_types_of_its_fields(payment: Payment) -> None:
    codec = codec_for(Payment)

    restored = codec.decode(codec.encode(payment))

    assert restored == payment
    assert type(restored.tags) is tuple
    assert all(type(parent) is Payment for parent in restored.parents)


VALUES: list[tuple[Any, object]] = [
    (Reading, Reading(UUID(int=1), {1: 2.5})),
    (Route, Route(origin="JFK", hops={"BOS"})),
    (Pair, Pair(date(2013, 1, 1), 4)),
    (Box[int], Box(5)),
    (int, -(2**63)),
    (int, 2**64 - 1),
    (bool, True),
    (float, float("inf")),
    (str, "Zürich"),
    (bytes, b"\x00"),
    (type(None), None),
    (int | None, None),
    (int | None, 3),
    (Literal["a", "b"], "a"),
    (NewType("Cents", int), 5),
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta.min),
    (datetime, datetime(2013, 1, 1)),  # noqa: DTZ001
    (Decimal, Decimal("1.500")),
    (Currency, Currency.EUR),
    (list[tuple[int, str]], [(1, "a")]),
    (tuple[int, ...], (1, 2)),
    (dict[tuple[int, int], set[str]], {(1, 2): {"a"}}),
    (frozenset[bytes], frozenset({b"a"})),
    (Sequence[int], [1, 2]),
]


@pytest.mark.parametrize(("of", "value"), VALUES, ids=[f"{of} {value!r}" for of, value in VALUES])
def test_a_value_of_its_declared_type_is_restored_equal_and_of_that_type(
    of: Any, value: object
) -> None:
    codec: Codec[object] = codec_for(of)

    restored = codec.decode(codec.encode(value))

    assert restored == value
    assert type(restored) is type(value)


def test_an_int_for_a_float_is_restored_as_a_float() -> None:
    codec = codec_for(float)

    restored = codec.decode(codec.encode(3))

    assert (restored, type(restored)) == (3.0, float)


def test_an_aware_datetime_is_restored_as_the_same_instant_in_utc() -> None:
    codec = codec_for(datetime)
    moment = datetime(2013, 1, 1, 5, 15, 0, 1, timezone(timedelta(hours=-5)))

    restored = codec.decode(codec.encode(moment))

    assert restored == moment
    assert restored.tzinfo is UTC


def test_a_codec_is_of_the_type_it_was_made_for() -> None:
    codec = codec_for(Payment)

    assert_type(codec, Codec[Payment])
    assert codec.name == "Payment"
    assert codec_for(list[int]).name == "list[int]"


@dataclass
class Before:
    card: str
    dropped: int


@dataclass
class After:
    card: str
    added: list[str] = field(default_factory=lambda: ["new"])


def test_a_field_added_with_a_default_and_a_removed_field_both_load() -> None:
    stored = codec_for(Before).encode(Before("4711", 1))

    assert codec_for(After).decode(stored) == After("4711", ["new"])


def test_a_field_added_without_a_default_does_not_load_and_the_error_names_it() -> None:
    stored = codec_for(After).encode(After("4711"))

    with pytest.raises(CodecError, match="not of=Before: Object missing required field `dropped`"):
        codec_for(Before).decode(stored)


@dataclass
class Nested:
    inside: dict[str, list[Opaque]]


@dataclass
class Loose:
    extra: dict[str, Any]


REFUSED: list[tuple[Any, str]] = [
    (
        Opaque,
        "of=Opaque cannot be stored: Opaque has type Opaque, which has no encoding; make it a dataclass",
    ),
    (threading.Thread, "has no encoding"),
    (Nested, "of=Nested cannot be stored: Nested.inside has type Opaque"),
    (Loose, "of=Loose cannot be stored: Loose.extra may hold anything"),
    (dict, "of=dict cannot be stored: dict may hold anything.*for instance dict\\[str, float\\]"),
    (list[Any], "may hold anything"),
    (object, "may hold anything"),
    (Box, "Box.content may hold anything"),
    (Access, "has type Access, whose combinations have no encoding; store its .value as an int"),
    (Enum("Odd", {"A": 1.5}), "of=Odd cannot be stored: .*all str or all int"),
    (Before | After, "cannot be stored: Type unions may not contain more than one"),
    (memoryview, "has a type without an encoding"),
]


@pytest.mark.parametrize(("of", "complaint"), REFUSED, ids=[str(of) for of, _ in REFUSED])
def test_a_type_whose_values_could_not_be_restored_is_refused_at_once(
    of: Any, complaint: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        codec_for(of)


def test_an_annotation_that_names_nothing_is_refused_at_once() -> None:
    local: type[object] = dataclass(
        type("Local", (), {"__annotations__": {"other": "DoesNotExist"}})
    )

    with pytest.raises(
        FlowDefinitionError, match=r"of=Local cannot be stored: .*'DoesNotExist' is not defined"
    ):
        codec_for(local)


@dataclass(frozen=True)
class Refund(Payment):
    reason: str = ""


PAYMENT = Payment("4711", Decimal(1), Currency.CHF, datetime(2013, 1, 1, tzinfo=UTC))

MISTYPED: list[tuple[Any, object, str]] = [
    (int, "3", "'3' has type str, but of=int was declared; declare the type that the values have"),
    (int, True, "True has type bool, but of=int was declared"),
    (bool, 1, "1 has type int, but of=bool was declared"),
    (int | None, 2.5, "2.5 has type float, but"),
    (list[int], (1,), "has type tuple, but"),
    (Payment, Refund(**vars(PAYMENT)), "has type Refund, but of=Payment was declared"),
]


@pytest.mark.parametrize(("of", "value", "complaint"), MISTYPED, ids=[c for _, _, c in MISTYPED])
def test_a_value_of_another_type_than_declared_is_refused(
    of: Any, value: object, complaint: str
) -> None:
    codec: Codec[object] = codec_for(of)

    with pytest.raises(CodecError, match=complaint):
        codec.encode(value)


def test_an_int_that_msgpack_cannot_hold_is_refused() -> None:
    with pytest.raises(CodecError, match="cannot be stored as of=int: "):
        codec_for(int).encode(2**64)


def test_bytes_of_another_type_are_refused_with_the_allowed_changes() -> None:
    stored = codec_for(str).encode("text")

    with pytest.raises(
        CodecError, match=r"5 stored bytes are not of=int: .*can add fields with defaults"
    ):
        codec_for(int).decode(stored)


def test_cut_off_bytes_are_refused() -> None:
    with pytest.raises(CodecError, match="1 stored bytes are not of=str"):
        codec_for(str).decode(b"\xa5")


def test_a_codec_can_be_pickled_with_its_type() -> None:
    codec = pickle.loads(pickle.dumps(codec_for(Payment)))
    payment = Payment("1", Decimal("2.5"), Currency.CHF, datetime(2024, 1, 1, tzinfo=UTC))

    assert codec.decode(codec_for(Payment).encode(payment)) == payment
    assert codec.name == "Payment"


def test_pickle_accepts_values_that_the_other_codecs_refuse() -> None:
    value = {"key": 1 + 2j, "box": [Opaque]}

    assert PICKLE.decode(PICKLE.encode(value)) == value


def test_pickle_names_values_and_bytes_that_it_refuses() -> None:
    with pytest.raises(CodecError, match=r"cannot be pickled: .*lock"):
        PICKLE.encode(threading.Lock())
    with pytest.raises(CodecError, match="4 bytes cannot be unpickled: "):
        PICKLE.decode(b"junk")


def test_a_codec_error_is_an_aflow_error_and_a_value_error() -> None:
    assert issubclass(CodecError, AflowError)
    assert issubclass(CodecError, ValueError)


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        pytest.param(codec_for(int), [1, -2, 2**63], id="typed"),
        pytest.param(codec_for(cast("type[Any]", int | str)), [1, "a"], id="typed as a union"),
        pytest.param(PLAIN, [1, (2, 3)], id="plain"),
        pytest.param(codec_for(int), [], id="none"),
    ],
)
def test_many_values_are_encoded_as_each_of_them(codec: Codec[Any], values: list[Any]) -> None:
    assert encode_all(codec, values) == [codec.encode(value) for value in values]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        pytest.param([1, "a"], "'a' has type str, but of=int was declared", id="of another type"),
        pytest.param([1, 2**70], f"{2**70} cannot be stored as of=int", id="too large"),
    ],
)
def test_the_bad_one_of_many_values_is_named(values: list[Any], reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        encode_all(codec_for(int), values)
