"""The codec of values without a declared type: exact in the types it takes, clear about those it does not."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.model.codecs import PLAIN, RECORDS, Codec, CodecError

ZURICH = ZoneInfo("Europe/Zurich")


def exactly(value: Any) -> str:
    """Text that differs wherever a value or a type differs, at any depth; one NaN is like another."""
    kind = type(value).__name__
    if kind in {"list", "tuple"}:
        return f"{kind}{[exactly(part) for part in value]}"
    if kind in {"set", "frozenset"}:
        return f"{kind}{sorted(map(exactly, value))}"
    if kind == "dict":
        return f"dict{[(exactly(key), exactly(held)) for key, held in value.items()]}"
    return f"{kind}:{value!r}"


_zones = st.sampled_from(
    [None, UTC, ZURICH, timezone(timedelta(minutes=-90)), timezone(timedelta(hours=1), "CET")]
)
_hashable_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.binary(),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=_zones),
)
_hashable = st.recursive(
    _hashable_scalars,
    lambda parts: st.one_of(st.tuples(parts, parts), st.frozensets(parts, max_size=3)),
    max_leaves=4,
)
_values = st.recursive(
    _hashable,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4),
        st.tuples(parts, parts),
        st.dictionaries(_hashable, parts, max_size=4),
        st.sets(_hashable, max_size=4),
    ),
    max_leaves=8,
)


@given(_values)
def test_a_plain_value_is_restored_exactly(value: object) -> None:
    restored = PLAIN.decode(PLAIN.encode(value))

    assert exactly(restored) == exactly(value)


@pytest.mark.parametrize(
    "value",
    [
        True,
        1,
        1.0,
        -0.0,
        float("nan"),
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**63) - 1,
        [1, 2**100, True],
        {1: 2**100},
        {2**100: "large"},
        (),
        (1, [2, (3,)]),
        {(1, "a"): {"b": {2, 3}}},
        {1: "int", "1": "str"},
        {b"a": None, None: b"", 1.5: [], False: ""},
        frozenset({frozenset({1}), frozenset()}),
        Decimal("1.500"),
        Decimal("NaN"),
        Decimal("-Infinity"),
        timedelta.max,
        timedelta.min,
        date.min,
        UUID(int=7),
        datetime.max,  # noqa: DTZ901
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZURICH),
        datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=1), "CET")),
    ],
    ids=repr,
)
def test_a_value_at_the_edge_of_its_type_is_restored_exactly(value: object) -> None:
    assert exactly(PLAIN.decode(PLAIN.encode(value))) == exactly(value)


def test_a_zone_is_restored_as_the_same_zone() -> None:
    zones: list[tzinfo] = [UTC, ZURICH, timezone(timedelta(hours=1), "CET")]

    restored = [PLAIN.decode(PLAIN.encode(datetime(2026, 1, 1, tzinfo=zone))) for zone in zones]

    assert [str(moment.tzinfo) for moment in restored if isinstance(moment, datetime)] == [
        "UTC",
        "Europe/Zurich",
        "CET",
    ]


def test_the_order_of_a_dict_is_kept() -> None:
    ordered: dict[Any, int] = {(2,): 1, (1,): 2, "z": 3, "a": 4}

    restored: Any = PLAIN.decode(PLAIN.encode(ordered))

    assert list(restored) == [(2,), (1,), "z", "a"]


# (value, bytes in hex). Never change one: they are in savepoints.
STORED: list[tuple[object, str]] = [
    ({"a": [1, None, True]}, "81a16193 01c0c3"),
    (2**64, "c70901 010000000000000000"),
    ((1, "a"), "d602 9201a161"),
    ({1}, "d503 9101"),
    (frozenset[int](), "d40490"),
    ({(1,): 2}, "c70605 92 d5029101 02"),
    (
        datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
        "c71706 93b3323031332d30312d30315430353a31353a3030 00 00",
    ),
    (date(2013, 1, 1), "c70a07 323031332d30312d3031"),
    (timedelta(microseconds=-1), "d408ff"),
    (Decimal("1.50"), "d609 312e3530"),
    (UUID(int=1), "d80a 00000000000000000000000000000001"),
]


@pytest.mark.parametrize(("value", "stored"), STORED, ids=[repr(value) for value, _ in STORED])
def test_the_bytes_of_a_plain_value_are_those_of_the_first_release(
    value: object, stored: str
) -> None:
    assert PLAIN.encode(value).hex() == stored.replace(" ", "")
    assert exactly(PLAIN.decode(bytes.fromhex(stored))) == exactly(value)


class Level(IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    first: int


@dataclass
class Payment:
    amount: float


class Opaque:
    def __repr__(self) -> str:
        return "Opaque()"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Level.HIGH, "Level"),
        (Pair(1), "Pair"),
        (Payment(1.0), "Payment"),
        (Opaque(), "Opaque"),
        (OrderedDict[str, int](), "OrderedDict"),
        (1j, "complex"),
        (bytearray(b"a"), "bytearray"),
        ([1, {"a": Payment(1.0)}], "Payment"),
        ({Pair(1): 1}, "Pair"),
        ({"a": 2**100, "b": Payment(1.0)}, "Payment"),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused_with_the_advice_to_declare_it(
    value: object, name: str
) -> None:
    with pytest.raises(
        CodecError, match=f"declare of={name}, or the type of the value that contains it"
    ):
        PLAIN.encode(value)


class OffsetOfALibrary(tzinfo):
    """A fixed offset as pydantic's ``TzInfo`` is one: a class of its own with the methods of ``tzinfo``."""

    def __init__(self, minutes: int, name: str | None) -> None:
        self.minutes, self.name = minutes, name

    def utcoffset(self, value: datetime | None, /) -> timedelta:
        return timedelta(minutes=self.minutes)

    def dst(self, value: datetime | None, /) -> None:
        return None

    def tzname(self, value: datetime | None, /) -> str | None:
        return self.name


@pytest.mark.parametrize(
    ("minutes", "name", "zone"),
    [
        (0, "UTC", UTC),
        (0, None, UTC),
        (90, "+01:30", timezone(timedelta(minutes=90), "+01:30")),
        (-480, "UTC-08:00", timezone(timedelta(hours=-8))),
    ],
)
@pytest.mark.parametrize("codec", [PLAIN, RECORDS], ids=lambda codec: codec.name)
def test_a_fixed_offset_of_any_library_is_restored_as_an_offset(
    codec: Codec[object], minutes: int, name: str | None, zone: tzinfo
) -> None:
    before = datetime(2026, 1, 1, 12, tzinfo=OffsetOfALibrary(minutes, name))

    after = codec.decode(codec.encode(before))

    assert isinstance(after, datetime)
    assert after == before
    assert after.isoformat() == before.isoformat()
    assert (after.tzinfo, str(after.tzinfo)) == (zone, str(zone))


class Unnamed(OffsetOfALibrary):
    def tzname(self, value: datetime | None, /) -> str | None:
        raise NotImplementedError("a tzinfo subclass must implement tzname()")


@pytest.mark.parametrize("codec", [PLAIN, RECORDS], ids=lambda codec: codec.name)
def test_a_fixed_offset_without_a_name_is_restored_as_an_offset(codec: Codec[object]) -> None:
    before = datetime(2026, 1, 1, 12, tzinfo=Unnamed(90, None))

    after = codec.decode(codec.encode(before))

    assert isinstance(after, datetime)
    assert after.tzinfo == timezone(timedelta(minutes=90))
    assert after == before


class Berlin(tzinfo):
    """A zone whose offset changes, and which expects a datetime."""

    def utcoffset(self, value: datetime | None, /) -> timedelta:
        assert value is not None
        return timedelta(hours=2 if 4 <= value.month <= 10 else 1)

    def dst(self, value: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, value: datetime | None, /) -> str:
        return "local"


class Shifting(Berlin):
    """A zone that returns the offset of its winter time for ``utcoffset(None)``."""

    def utcoffset(self, value: datetime | None, /) -> timedelta:
        return timedelta(hours=1) if value is None else super().utcoffset(value)


@pytest.mark.parametrize("zone", [Berlin(), Shifting()], ids=lambda zone: type(zone).__name__)
def test_a_zone_whose_offset_changes_is_refused(zone: tzinfo) -> None:
    with pytest.raises(CodecError, match="has no fixed offset; use a ZoneInfo"):
        PLAIN.encode(datetime(2026, 7, 1, tzinfo=zone))


@pytest.mark.parametrize("codec", [PLAIN, RECORDS], ids=lambda codec: codec.name)
def test_the_message_about_a_zone_names_the_value_once(codec: Codec[object]) -> None:
    with pytest.raises(CodecError) as caught:
        codec.encode(datetime(2026, 7, 1, tzinfo=Berlin()))

    assert str(caught.value).count("cannot be stored") == 1


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(CodecError, match="nested too deeply, or contains itself"):
        PLAIN.encode(endless)


@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], [2**100, "\ud800"]], ids=ascii)
def test_text_that_is_not_unicode_is_refused(value: object) -> None:
    with pytest.raises(CodecError, match=r"cannot be stored: .*surrogates not allowed"):
        PLAIN.encode(value)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "0 stored bytes are not a plain value"),
        (b"\x92\x01", "2 stored bytes are not a plain value"),
        (msgspec.msgpack.encode(msgspec.msgpack.Ext(99, b"")), "extension 99 is unknown"),
        (msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"x")), "not a plain value"),
    ],
    ids=["empty", "cut off", "unknown", "damaged"],
)
def test_damaged_bytes_are_named_as_such(data: bytes, complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        PLAIN.decode(data)


def test_a_codec_keeps_no_reference_to_encoded_values() -> None:
    value = {"a": [1]}

    restored = PLAIN.decode(PLAIN.encode(value))
    value["a"].append(2)

    assert restored == {"a": [1]}
