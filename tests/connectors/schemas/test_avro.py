"""Avro: records of declared types become bytes and come back, also through versions of their schema."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from importlib import import_module
from io import BytesIO
from itertools import count
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow_connectors.formats import FormatError
from aflow_connectors.schemas import Avro, aliases, decimal

# fastavro has no complete types.
fastavro: Any = import_module("fastavro")


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Unit(Enum):
    """Values that are no names in Avro."""

    METRE = "m/s"
    DEGREE = "°"


@dataclass(frozen=True)
class Item:
    sku: str
    count: int = 1


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Labels(TypedDict):
    text: str
    language: str | None


@dataclass(frozen=True)
class Order:
    id: UUID
    amount: Annotated[Decimal, decimal(12, 2)]
    at: datetime
    day: date
    clock: time
    local: Annotated[datetime, msgspec.Meta(tz=False)]
    paid: bool
    share: float
    data: bytes
    colour: Colour
    size: Size
    unit: Unit
    state: Literal["new", "old"]
    items: list[Item]
    tags: frozenset[str]
    path: tuple[int, ...]
    prices: dict[str, Annotated[Decimal, decimal(6, 3)]]
    where: Point | None
    labels: Labels
    either: int | str | None = None
    note: str | None = "none"
    more: list[Item] = field(default_factory=list)


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []
    parent: Tree | None = None


whole = st.integers(-(2**63), 2**63 - 1)
items = st.builds(Item, st.text(), whole)
elsewhere = timezone(timedelta(hours=5.5))
naive = st.datetimes(timezones=st.none())
moments = naive.map(lambda at: at.replace(tzinfo=UTC)) | naive.filter(
    lambda at: 1 < at.year < 9999
).map(lambda at: at.replace(tzinfo=elsewhere))
finite = st.floats(allow_nan=False)


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(lambda n: Decimal(n).scaleb(-scale))


orders = st.builds(
    Order,
    st.uuids(),
    decimals(12, 2),
    moments,
    st.dates(),
    st.times(),
    st.datetimes(),
    st.booleans(),
    finite,
    st.binary(),
    st.sampled_from(Colour),
    st.sampled_from(Size),
    st.sampled_from(Unit),
    st.sampled_from(["new", "old"]),
    st.lists(items, max_size=3),
    st.frozensets(st.text(), max_size=3),
    st.lists(whole, max_size=3).map(tuple),
    st.dictionaries(st.text(), decimals(6, 3), max_size=3),
    st.none() | st.builds(Point, finite, finite),
    st.fixed_dictionaries({"text": st.text(), "language": st.none() | st.text()}),
    st.none() | whole | st.text(),
    st.none() | st.text(),
    st.lists(items, max_size=2),
)

OF_ORDERS = Avro(Order)


@pytest.mark.slow
@settings(max_examples=20)
@given(orders)
def test_a_record_of_all_types_is_decoded_as_it_was_encoded(order: Order) -> None:
    assert OF_ORDERS.decode(OF_ORDERS.encode(order)) == order


SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, whole),
    (float, finite),
    (str, st.text()),
    (bytes, st.binary()),
    (datetime, moments),
    (date, st.dates()),
    (UUID, st.uuids()),
    (Annotated[Decimal, decimal(9, 4)], decimals(9, 4)),
    (Colour, st.sampled_from(Colour)),
]


_numbers = count()


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type, and its values."""
    kind = draw(st.sampled_from(["scalar", "optional", "list", "dict", "record"]))
    if depth == 0 or kind == "scalar":
        scalar: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(SCALARS))
        return scalar
    of, values = draw(typed_values(depth - 1))
    match kind:
        case "optional":
            return of | None, st.none() | values
        case "list":
            return GenericAlias(list, of), st.lists(values, max_size=3)
        case "dict":
            return GenericAlias(dict, (str, of)), st.dictionaries(st.text(), values, max_size=3)
        case _:
            parts = [(of, values), *draw(st.lists(typed_values(depth - 1), max_size=3))]
            name = f"R{next(_numbers)}"  # a schema names each record once
            made = msgspec.defstruct(name, [(f"f{n}", one) for n, (one, _) in enumerate(parts)])
            return made, st.builds(made, *(one for _, one in parts))


@settings(max_examples=50)
@given(st.data())
def test_random_records_of_random_types_are_decoded_as_they_were_encoded(
    data: st.DataObject,
) -> None:
    of, values = data.draw(typed_values())
    form = Avro(of)
    value = data.draw(values)

    assert form.decode(form.encode(value)) == value


@settings(max_examples=10)
@given(orders)
def test_fastavro_reads_what_is_written_and_the_reverse(order: Order) -> None:
    schema = fastavro.parse_schema(json.loads(OF_ORDERS.schema))

    read: Any = fastavro.schemaless_reader(BytesIO(OF_ORDERS.encode(order)), schema, None)
    again = BytesIO()
    fastavro.schemaless_writer(again, schema, read)

    assert read["amount"] == order.amount
    assert read["at"] == order.at
    assert read["colour"] == order.colour.value
    assert OF_ORDERS.decode(again.getvalue()) == order


def test_a_recursive_type_has_a_recursive_schema() -> None:
    tree = Tree(1, [Tree(2), Tree(3, [Tree(4)])], Tree(0))
    form = Avro(Tree)

    assert form.decode(form.encode(tree)) == tree


def test_the_derived_schema_has_names_defaults_and_aliases() -> None:
    @dataclass
    class Paid:
        card: Annotated[str, aliases("number", "pan")]
        colour: Colour = Colour.GREEN
        share: float = 1
        note: str | None = None
        either: int | str = "x"
        raw: bytes = b"\xff"
        at: datetime | None = None
        tags: list[str] = field(default_factory=list)

    assert json.loads(Avro(Paid, name="com.acme.Paid").schema) == {
        "type": "record",
        "name": "com.acme.Paid",
        "fields": [
            {"name": "card", "type": "string", "aliases": ["number", "pan"]},
            {
                "name": "colour",
                "type": {"type": "enum", "name": "Colour", "symbols": ["red", "green"]},
                "default": "green",
            },
            {"name": "share", "type": "double", "default": 1.0},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "either", "type": ["string", "long"], "default": "x"},
            {"name": "raw", "type": "bytes", "default": "ÿ"},
            {
                "name": "at",
                "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
                "default": None,
            },
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        ],
    }


class Sometimes(TypedDict):
    always: int
    sometimes: NotRequired[int]


@dataclass
class Twice:
    one: Annotated[Decimal, decimal(3, 1)]
    other: Decimal


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (Decimal, "Annotated[Decimal, decimal(precision, scale)]"),
        (Twice, "Twice.other"),
        (timedelta, "TimeDelta"),
        (dict[int, str], "keys of an Avro map are str"),
        (tuple[int, str], "Tuple"),
        (object, "has no Avro type"),
        (Sometimes, "NotRequired"),
        (Literal["a", 1], "all str, or all int"),
    ],
    ids=["decimal", "field", "timedelta", "keys", "tuple", "object", "not-required", "literal"],
)
def test_a_type_without_a_schema_is_refused_with_its_reason(of: Any, reason: str) -> None:
    with pytest.raises(FlowDefinitionError) as raised:
        Avro(of)

    assert reason in str(raised.value)
    assert "schema=" in str(raised.value)


WIDE = {
    "type": "record",
    "name": "Wide",
    "fields": [
        {"name": "small", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "ratio", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "names", "type": {"type": "array", "items": "string"}},
        {"name": "flag", "type": "boolean"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "single", "type": "float"},
        # Logical types without a meaning for their type.
        {"name": "label", "type": {"type": "string", "logicalType": "timestamp-micros"}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2, "logicalType": "uuid"}},
    ],
}
NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
GOOD = {
    "small": 1,
    "big": 2,
    "ratio": 0.5,
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "sum": Decimal("12.34"),
    "kind": "A",
    "code": b"ab",
    "maybe": "x",
    "names": ["a"],
    "flag": True,
    "day": date(2026, 1, 1),
    "single": 0.5,
    "label": "l",
    "id": b"id",
}


def test_a_given_schema_has_all_types_of_avro() -> None:
    form = Avro(schema=WIDE)

    assert form.decode(form.encode(GOOD)) == GOOD


@pytest.mark.parametrize("value", [math.inf, -math.inf, 2.0**128 - 2.0**104, 1])
def test_a_float_that_is_not_rounded_to_an_infinite_one_is_encoded(value: float) -> None:
    form = Avro(schema="float")

    assert form.decode(form.encode(value)) == value


def test_a_schema_that_fastavro_has_parsed_is_registered_as_it_was() -> None:
    plain = {"type": "record", "name": "a.B", "fields": [{"name": "n", "type": "long"}]}

    assert json.loads(Avro(schema=fastavro.parse_schema(plain)).schema) == plain


@pytest.mark.parametrize(
    ("field_name", "value", "reason"),
    [
        ("small", 2**31, "too large for int"),
        ("big", 2**63, "too large for long"),
        ("big", 3.7, "not of type long"),
        ("big", True, "not of type long"),
        ("ratio", "1", "not of type double"),
        ("ratio", 2**53 + 1, "not exactly a double"),
        ("ratio", 10**400, "not exactly a double"),
        ("single", 2.0**128 - 2.0**103, "too large for float"),
        ("single", -1e300, "too large for float"),
        ("at", NAIVE, "no time zone"),
        ("sum", Decimal("1.234"), ""),
        ("sum", Decimal("12345"), ""),
        ("sum", Decimal("NaN"), "finite"),
        ("sum", 1.5, "not of type decimal"),
        ("kind", "C", "not one of A, B"),
        ("code", b"abc", "3 bytes"),
        ("maybe", 1, "not of type string"),
        ("names", "a", "not of type array"),
        ("names", [1], "not of type string"),
        ("flag", 1, "not of type boolean"),
        ("day", datetime(2026, 1, 1, tzinfo=UTC), "not of type date"),
    ],
)
def test_a_value_that_is_not_of_the_schema_is_refused(
    field_name: str, value: object, reason: str
) -> None:
    with pytest.raises(FormatError) as raised:
        Avro(schema=WIDE).encode({**GOOD, field_name: value})

    assert reason in str(raised.value)
    if reason:
        assert f"field {field_name}" in str(raised.value)


def test_a_value_without_a_hash_is_of_the_branch_after_an_enumeration() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    union = ["null", kind, {"type": "array", "items": "string"}]
    fields = [{"name": "kind", "type": union}]
    form = Avro(schema={"type": "record", "name": "Tagged", "fields": fields})

    for record in ({"kind": ["A"]}, {"kind": "B"}, {"kind": None}):
        assert form.decode(form.encode(record)) == record


def test_a_missing_field_is_refused_and_so_is_one_that_the_schema_does_not_have() -> None:
    form = Avro(schema=WIDE)
    without = {name: value for name, value in GOOD.items() if name != "big"}

    with pytest.raises(FormatError, match="field big: it is missing"):
        form.encode(without)
    with pytest.raises(FormatError, match="no field 'more'"):
        form.encode({**GOOD, "more": 1})
    assert (
        form.decode(form.encode({n: v for n, v in GOOD.items() if n != "maybe"}))["maybe"] is None
    )


def test_the_path_to_a_wrong_value_is_in_the_error() -> None:
    @dataclass
    class Outer:
        inner: list[Item]

    wrong: Any = Outer([Item("a", "b")])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(FormatError, match=r"field inner\.count: 'b' is not of type long"):
        Avro(Outer).encode(wrong)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_record_are_a_format_error(data: bytes) -> None:
    form = Avro(schema=WIDE)
    try:
        record = form.decode(data)
    except FormatError:
        return
    assert set(record) == set(GOOD)


def test_bytes_after_the_record_are_a_format_error() -> None:
    form = Avro(Item)

    with pytest.raises(FormatError, match="2 bytes follow"):
        form.decode(form.encode(Item("a")) + b"ab")


@pytest.mark.parametrize("schema", ["{", '{"type": "record"}', {"type": "nothing"}, 5])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="not a schema"):
        Avro(schema=schema)


def test_avro_without_anything_to_decode_by_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="give a type"):
        Avro()


def test_a_format_can_be_pickled() -> None:
    form = pickle.loads(pickle.dumps(Avro(Item).for_topic("a")))

    assert form.decode(form.encode(Item("x", 3))) == Item("x", 3)
