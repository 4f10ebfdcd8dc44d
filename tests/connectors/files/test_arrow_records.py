"""Arrow record batches become records of a declared class, nested classes included."""

from __future__ import annotations

import enum
import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest

from aflow.errors import FlowDefinitionError
from aflow_connectors.files.arrow_records import Conversion, SchemaMismatch
from aflow_connectors.files.arrow_values import UnsupportedValue
from tests.connectors.files.arrow import pa
from tests.stable_ids import stable

T = TypeVar("T")
AT = datetime(2024, 1, 1, 12, tzinfo=UTC)
MOMENT = pa.timestamp("us", "Europe/Oslo")


def converted(of: Any, **columns: Any) -> list[Any]:
    return Conversion("test", of)(pa.record_batch(columns))


def one(of: Any, kind: Any, value: object) -> Any:
    """The only field ``v`` of the only record."""
    (record,) = converted(of, v=pa.array([value], kind))
    return record.v if not isinstance(record, SchemaMismatch) else record


class Color(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int = 9


@dataclass(frozen=True)
class Place:
    city: str | None
    at: datetime


class Tag(msgspec.Struct, rename="camel"):
    tag_name: str


class Row(msgspec.Struct, array_like=True):
    a: int
    more: list[int] = msgspec.field(default_factory=list)
    b: int = 0


def holder(kind: Any) -> Any:
    """A dataclass with one field ``v`` of type ``kind``."""
    return msgspec.defstruct("Holder", [("v", kind)])


POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
PLACE = pa.struct([("city", pa.string()), ("at", MOMENT)])
TEXTS = pa.list_(pa.string())
OSLO = {"city": "Oslo", "at": AT}

NESTED = {
    "a dataclass": (Place, PLACE, OSLO, Place("Oslo", AT)),
    "an optional one": (Place | None, PLACE, None, None),
    "a NamedTuple": (Point, POINT, {"x": 1, "y": 2}, Point(1, 2)),
    "a NamedTuple by its default": (Point, pa.struct([("x", pa.int64())]), {"x": 1}, Point(1)),
    "a list-like Struct": (Row, pa.struct([("b", pa.int64()), ("a", pa.int8())]), {"a": 1, "b": 2}, Row(1, [], 2)),
    "a renamed field": (Tag, pa.struct([("tagName", pa.string())]), {"tagName": "x"}, Tag("x")),
    "a list of optional ones": (list[Place | None], pa.list_(PLACE), [OSLO, None], [Place("Oslo", AT), None]),
    "a list of lists": (list[list[Point]], pa.list_(pa.list_(POINT)), [[{"x": 1, "y": 2}], []], [[Point(1, 2)], []]),
    "a long list": (list[int], pa.large_list(pa.int64()), [1], [1]),
    "a list of fixed size": (tuple[int, int], pa.list_(pa.int64(), 2), [1, 2], (1, 2)),
    "a set": (set[str], TEXTS, ["a"], {"a"}),
    "a map": (dict[str, Place], pa.map_(pa.string(), PLACE), [("a", OSLO)], {"a": Place("Oslo", AT)}),
    "a map by day": (dict[date, int], pa.map_(pa.date32(), pa.int64()), [(date(1, 1, 1), 1)], {date(1, 1, 1): 1}),
    "a map by NamedTuple": (dict[Point, int], pa.map_(POINT, pa.int64()), [({"x": 1, "y": 2}, 3)], {Point(1, 2): 3}),
    "pairs": (list[tuple[Point, int]], pa.map_(POINT, pa.int64()), [({"x": 1, "y": 2}, 3)], [(Point(1, 2), 3)]),
    "an enum": (Color, pa.string(), "red", Color.RED),
    "a whole number as a float": (float, pa.int64(), 1, 1.0),
    "a decimal": (Decimal, pa.decimal128(38, 18), Decimal("0.1"), Decimal("0.100000000000000000")),
    "a local time": (datetime, pa.timestamp("us"), AT.replace(tzinfo=None), AT.replace(tzinfo=None)),
    "seconds": (datetime, pa.timestamp("s", "UTC"), AT, AT),
    "anything": (Any, PLACE, OSLO, OSLO),
    "a union of classes": (int | str, pa.string(), "x", "x"),
}  # fmt: skip


@pytest.mark.parametrize(("of", "kind", "value", "expected"), NESTED.values(), ids=NESTED)
def test_a_column_is_converted_to_the_type_of_its_field(
    of: Any, kind: Any, value: object, expected: object
) -> None:
    found = one(holder(of), kind, value)

    assert found == expected
    assert repr(found) == repr(expected)  # also the classes inside, and the time zones


@pytest.mark.parametrize(("of", "kind", "value", "expected"), NESTED.values(), ids=NESTED)
def test_a_part_of_a_batch_has_the_values_of_its_rows(
    of: Any, kind: Any, value: object, expected: object
) -> None:
    batch = pa.record_batch({"v": pa.array([None, value, value, None, value, None], kind)})

    found: list[Any] = Conversion("test", holder(of | None))(batch.slice(1, 4))

    assert [record.v for record in found] == [expected, expected, None, expected]


@dataclass
class Payment:
    id: int
    text: str
    more: list[str] = field(default_factory=list[str])


class Typed(TypedDict):
    id: int
    text: str


@dataclass
class Box(Generic[T]):
    id: T


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    id: int


@dataclass
class Own:
    """Is not made by calling it with its fields."""

    id: int

    def __init__(self) -> None:
        raise AssertionError("never called")


RECORDS = {
    "a dataclass": (Payment, Payment(1, "x")),
    "a TypedDict": (Typed, {"id": 1, "text": "x"}),
    "a dict": (dict[str, int | str], {"id": 1, "text": "x"}),
    "a generic class": (Box[int], Box(1)),
    "a list-like Struct": (msgspec.defstruct("A", [("text", str), ("id", int)], array_like=True), None),
}  # fmt: skip


@pytest.mark.parametrize(("of", "expected"), RECORDS.values(), ids=RECORDS)
def test_fields_are_found_by_the_names_of_columns(of: Any, expected: object) -> None:
    (found,) = converted(of, text=["x"], id=[1])

    assert found == (of("x", 1) if expected is None else expected)


def test_an_init_of_the_users_is_not_called() -> None:
    (found,) = converted(Own, id=[1])

    assert found.id == 1


def test_a_class_that_forbids_other_fields_refuses_other_columns() -> None:
    (found,) = converted(Strict, id=[1], text=["x"])

    assert isinstance(found, SchemaMismatch)
    assert "unknown field `text`" in found.reason


class Positive(msgspec.Struct):
    n: Annotated[int, msgspec.Meta(gt=0)]
    at: Annotated[datetime, msgspec.Meta(tz=True)] = AT


@pytest.mark.parametrize(
    ("of", "columns", "reason"),
    [
        (Payment, {"id": [1, None], "text": ["a", "b"]}, "Expected `int`, got `null` - at `$.id`"),
        (Payment, {"id": [1, 2], "text": ["a", None]}, "Expected `str`, got `null` - at `$.text`"),
        (Payment, {"id": [1.0, 2.5], "text": ["a", "b"]}, "Expected `int`, got `float` - at `$.id`"),
        (
            holder(list[Place]),
            {"v": pa.array([[OSLO], [OSLO, {"city": "Bern", "at": None}]], pa.list_(PLACE))},
            "Expected `datetime`, got `null` - at `$.v[1].at`",
        ),
        (holder(Color), {"v": ["red", "blue"]}, "Invalid enum value 'blue' - at `$.v`"),
        (Positive, {"n": [1, 0]}, "Expected `int` >= 1 - at `$.n`"),
    ],
    ids=stable,
)  # fmt: skip
def test_a_row_that_does_not_fit_is_kept_apart_with_its_field(
    of: Any, columns: dict[str, Any], reason: str
) -> None:
    batch = pa.record_batch(columns)

    *_, bad = Conversion[Any]("test", of)(batch)

    assert isinstance(bad, SchemaMismatch)
    assert bad.reason == reason
    assert list(bad.row) == list(columns)


def test_rows_beside_one_that_does_not_fit_are_records() -> None:
    first, bad, last = converted(Payment, id=[1, None, 3], text=["a", "b", "c"])

    assert [first, last] == [Payment(1, "a"), Payment(3, "c")]
    assert isinstance(bad, SchemaMismatch)


@dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError(f"{self.n} is odd")


def test_a_row_that_the_class_refuses_is_kept_apart() -> None:
    two, three = converted(Even, n=[2, 3])

    assert two == Even(2)
    assert three == SchemaMismatch({"n": 3}, "3 is odd")


def test_a_missing_column_is_a_refusal_where_the_columns_are_known() -> None:
    conversion = Conversion("test", Payment)

    with pytest.raises(FlowDefinitionError, match=r"test: Payment has a field 'text', .* id, at"):
        conversion.check_names(["id", "at"])
    conversion.check_names(["more", "text", "id", "other"])


def test_in_a_file_of_another_schema_rows_do_not_fit() -> None:
    (bad,) = converted(Payment, id=[1])

    assert isinstance(bad, SchemaMismatch)
    assert "missing required field `text`" in bad.reason


STRUCT_KEYS = pa.map_(POINT, pa.int64())


@pytest.mark.parametrize("of", [None, holder(dict[Tag, int])], ids=["dicts", "of a class"])
def test_a_map_with_structs_as_keys_is_refused_with_the_column_and_the_cure(of: Any) -> None:
    schema = pa.schema([("v", STRUCT_KEYS)])
    conversion = Conversion("test", of)

    with pytest.raises(FlowDefinitionError, match=r"column 'v': .* map_entries\(column\)"):
        conversion.check(schema)
    with pytest.raises(UnsupportedValue, match=r"column 'v' .* list\[tuple\[Key, Value\]\]"):
        conversion(
            pa.record_batch([pa.array([[({"x": 1, "y": 2}, 3)]], STRUCT_KEYS)], schema=schema)
        )


def test_a_column_that_no_field_is_declared_for_is_not_looked_at() -> None:
    batch = pa.record_batch({"id": [1], "text": ["x"], "odd": pa.array([[]], STRUCT_KEYS)})
    conversion = Conversion("test", Payment)

    conversion.check(batch.schema)

    assert conversion(batch) == [Payment(1, "x")]


FAR = {
    "a moment": pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "a local time": pa.array([2**60], pa.int64()).cast(pa.timestamp("us")),
    "a day": pa.array([2**30], pa.int32()).cast(pa.date32()),
}


@pytest.mark.parametrize("column", FAR.values(), ids=FAR)
def test_a_year_beyond_9999_is_an_error_with_the_column_and_the_cure(column: Any) -> None:
    nested = pa.ListArray.from_arrays([0, 1], column)

    for one in (column, nested):
        with pytest.raises(
            UnsupportedValue, match=r"column 'v' .* years 1 to 9999 .* filter such rows"
        ):
            converted(None, v=one)


def test_a_key_that_is_in_a_map_twice_is_an_error_with_the_column() -> None:
    column = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))

    with pytest.raises(UnsupportedValue, match=r"column 'v' .* a key twice"):
        converted(None, v=column)


def test_a_conversion_is_pickled_with_its_class() -> None:
    conversion = Conversion("test", Payment)
    conversion(pa.record_batch({"id": [1], "text": ["x"]}))

    sent = pickle.loads(pickle.dumps(conversion))

    assert sent(pa.record_batch({"id": [2], "text": ["y"]})) == [Payment(2, "y")]


def test_types_of_fields_that_are_not_there_are_refused() -> None:
    @dataclass
    class Lost:
        n: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(FlowDefinitionError, match=r"test: .* 'Nowhere' .* at the top of a module"):
        Conversion("test", Lost)
