"""Arrow record batches and Python records, without Spark."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import aflow as af
from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.columns import RowsIn, RowsOut, pieces
from aflow_connectors.spark.dataframe.schema import declared, inferred, spark_schema

NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)
IN_BERLIN = datetime(2013, 7, 1, 14, tzinfo=timezone(timedelta(hours=2)))


def rows_of(batch: Any, of: type[Any] | None = None) -> list[Any]:
    return RowsIn(batch.schema.names, of, owner="step 'in'").records(batch)


def rows_out(**columns: Any) -> RowsOut:
    schema = pa.schema(list(columns.items()))
    return RowsOut(declared(spark_schema(schema, owner="x"), owner="x"), owner="step 'out'")


def batch_of(records: Sequence[object], **columns: Any) -> Any:
    return rows_out(**columns).batch(records)


# -- Rows as records.


def test_rows_are_dicts_with_python_values() -> None:
    batch = pa.record_batch(
        {
            "n": pa.array([1, None], pa.int32()),
            "x": pa.array([math.inf, None]),
            "name": ["ann", None],
            "yes": [True, None],
            "day": [date(2013, 7, 1), None],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "raw": [b"\0", None],
        }
    )

    assert rows_of(batch) == [
        {
            "n": 1,
            "x": math.inf,
            "name": "ann",
            "yes": True,
            "day": date(2013, 7, 1),
            "price": Decimal("1.50"),
            "raw": b"\0",
        },
        dict.fromkeys(["n", "x", "name", "yes", "day", "price", "raw"]),
    ]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_timestamps_are_aware_and_in_utc_in_any_time_zone_of_the_session(zone: str) -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    early = datetime(1, 1, 1, tzinfo=UTC)
    odd = NOON + timedelta(microseconds=1)
    moments = [NOON, None, late, early, odd]
    batch = pa.record_batch({"at": pa.array(moments, pa.timestamp("us", zone))})

    found = [row["at"] for row in rows_of(batch)]

    assert found == moments
    assert {one.tzinfo for one in found if one is not None} == {UTC}


def test_moments_inside_of_other_values_are_in_utc_too() -> None:
    at = pa.timestamp("us", "Europe/Berlin")
    nested = pa.struct([("seen", pa.list_(at)), ("by", pa.map_(pa.string(), at))])
    batch = pa.record_batch({"all": pa.array([{"seen": [NOON], "by": [("ann", NOON)]}], nested)})

    (row,) = rows_of(batch)

    assert row == {"all": {"seen": [NOON], "by": {"ann": NOON}}}
    assert row["all"]["seen"][0].utcoffset() == timedelta(0)
    assert row["all"]["by"]["ann"].utcoffset() == timedelta(0)


def test_local_times_stay_local() -> None:
    naive = datetime(2013, 7, 1, 12)  # noqa: DTZ001
    batch = pa.record_batch({"at": pa.array([naive], pa.timestamp("us"))})

    assert rows_of(batch) == [{"at": naive}]


def test_a_moment_that_python_cannot_hold_is_an_error_with_the_column() -> None:
    batch = pa.record_batch({"at": pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))})

    with pytest.raises(
        ConnectorError, match=r"step 'in': column 'at' .* Python has years 1 to 9999 only"
    ):
        rows_of(batch)


def test_a_column_may_have_any_name() -> None:
    names = ["a'b", 'c"d', "e\\f", "{g}", "lambda", "", "v1", "zip", "ä\n"]
    batch = pa.record_batch([pa.array([index]) for index in range(len(names))], names=names)

    assert rows_of(batch) == [{name: index for index, name in enumerate(names)}]


def test_rows_without_columns_are_still_rows() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]}).select([])

    assert rows_of(batch) == [{}, {}, {}]


@dataclass
class Flight:
    number: int
    carrier: str
    delay: float = 0.0
    seen: list[str] = field(default_factory=list[str])


class Row(NamedTuple):
    number: int
    carrier: str = "??"


class Tight(msgspec.Struct, frozen=True):
    carrier: str
    number: int
    delay: float = -1.0


class ByName(msgspec.Struct, kw_only=True):
    number: int
    carrier: str = "??"


@dataclass(kw_only=True)
class AlsoByName:
    number: int
    carrier: str


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Flight, Flight(7, "UA", 1.5)),
        (Row, Row(7, "UA")),
        (Tight, Tight("UA", 7, 1.5)),
        (ByName, ByName(number=7, carrier="UA")),
        (AlsoByName, AlsoByName(number=7, carrier="UA")),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else "",
)
def test_rows_are_made_into_a_class_by_the_names_of_the_columns(
    of: type[Any], expected: object
) -> None:
    batch = pa.record_batch({"delay": [1.5], "carrier": ["UA"], "tail": ["N1"], "number": [7]})

    assert rows_of(batch, of) == [expected]


def test_a_field_in_the_middle_may_be_left_to_its_default() -> None:
    @dataclass
    class Middle:
        number: int
        delay: float = 2.5
        carrier: str = "??"

    batch = pa.record_batch({"carrier": ["UA"], "number": [7]})

    assert rows_of(batch, Middle) == [Middle(7, 2.5, "UA")]


def test_a_field_without_column_or_default_is_refused_by_name() -> None:
    with pytest.raises(
        FlowDefinitionError,
        match=r"Flight has a field 'carrier', .* no such column: number, airline",
    ):
        RowsIn(["number", "airline"], Flight, owner="step 'in'")


@pytest.mark.parametrize("of", [int, list[int], "Flight", Flight(1, "UA")], ids=str)
def test_a_type_without_named_fields_is_refused_for_records(of: Any) -> None:
    with pytest.raises(FlowDefinitionError, match=r"step 'in': .*of= takes a dataclass"):
        RowsIn(["number"], of, owner="step 'in'")


# -- Records as rows.


def test_records_get_exactly_the_declared_types_in_the_declared_order() -> None:
    batch = batch_of(
        [{"price": Decimal(2), "at": IN_BERLIN, "n": 3, "x": 1, "name": "ann"}],
        n=pa.int32(),
        at=pa.timestamp("us", "UTC"),
        price=pa.decimal128(10, 2),
        name=pa.string(),
        x=pa.float32(),
    )

    assert [str(one.type) for one in batch.schema] == [
        "int32",
        "timestamp[us, tz=UTC]",
        "decimal128(10, 2)",
        "string",
        "float",
    ]
    assert batch.schema.names == ["n", "at", "price", "name", "x"]
    assert rows_of(batch) == [
        {"n": 3, "at": NOON, "price": Decimal("2.00"), "name": "ann", "x": 1.0}
    ]


@pytest.mark.parametrize(
    "record",
    [
        {"carrier": "UA", "number": 7},
        Row(7, "UA"),
        ByName(number=7, carrier="UA"),
        AlsoByName(number=7, carrier="UA"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_records_may_be_of_any_type_with_named_fields(record: object) -> None:
    batch = batch_of([record, record], number=pa.int64(), carrier=pa.string())

    assert rows_of(batch) == [{"number": 7, "carrier": "UA"}] * 2


def test_records_of_several_kinds_may_be_mixed() -> None:
    batch = batch_of(
        [Row(7, "UA"), {"carrier": "AA", "number": 8}], number=pa.int64(), carrier=pa.string()
    )

    assert rows_of(batch) == [{"number": 7, "carrier": "UA"}, {"number": 8, "carrier": "AA"}]


def test_no_records_are_a_batch_without_rows() -> None:
    batch = batch_of([], n=pa.int32())

    assert (batch.num_rows, str(batch.schema.field("n").type)) == (0, "int32")


def test_ints_for_a_moment_are_milliseconds_as_everywhere_else() -> None:
    batch = batch_of([{"at": int(NOON.timestamp() * 1000)}], at=pa.timestamp("us", "UTC"))

    assert rows_of(batch) == [{"at": NOON}]


def test_whole_floats_may_be_integers() -> None:
    assert rows_of(batch_of([{"n": 3.0}, {"n": None}], n=pa.int64())) == [{"n": 3}, {"n": None}]


def test_nested_values_may_be_classes_too() -> None:
    batch = batch_of(
        [{"all": {"ua": [Row(7, "UA"), None]}}],
        all=pa.map_(
            pa.string(), pa.list_(pa.struct([("number", pa.int16()), ("carrier", pa.string())]))
        ),
    )

    assert rows_of(batch) == [{"all": {"ua": [{"number": 7, "carrier": "UA"}, None]}}]


class Color(enum.Enum):
    RED = 1


MISFITS = {
    "too large": (3_000_000_000, pa.int32(), "int", "too large"),
    "far too large": (2**70, pa.int64(), "bigint", "too large"),
    "a fraction": (1.5, pa.int64(), "bigint", "no whole number"),
    "nan as an int": (math.nan, pa.int32(), "int", "no whole number"),
    "text as an int": ("1", pa.int64(), "bigint", "no whole number"),
    "a bool as an int": (True, pa.int64(), "bigint", "it is a bool"),
    "an enum of an int as text": (Color.RED, pa.string(), "string", "it is no str"),
    "a bool as a number": (True, pa.float64(), "double", "it is a bool"),
    "text as a number": ("1.5", pa.float64(), "double", "it is a str"),
    "too large for 32 bits": (1e300, pa.float32(), "float", "declare the column as double"),
    "an int as text": (1, pa.string(), "string", "it is no str"),
    "bytes as text": (b"x", pa.string(), "string", "it is no str"),
    "text as bytes": ("x", pa.binary(), "binary", "encode"),
    "an int as a bool": (1, pa.bool_(), "boolean", "it is no bool"),
    "a naive moment": (datetime(2013, 7, 1), pa.timestamp("us", "UTC"), "timestamp", "time zone"),  # noqa: DTZ001
    "an aware local time": (NOON, pa.timestamp("us"), "timestamp_ntz", "has a time zone"),
    "text as a moment": ("2013-07-01", pa.timestamp("us", "UTC"), "timestamp", "aware datetime"),
    "ms beyond the calendar": (2**60, pa.timestamp("us", "UTC"), "timestamp", "year 9999"),
    "a moment as a day": (NOON, pa.date32(), "date", "time of day"),
    "a float as a decimal": (1.5, pa.decimal128(10, 2), "decimal(10,2)", "neither a Decimal"),
    "too many places": (Decimal("1.234"), pa.decimal128(10, 2), "decimal(10,2)", "data loss"),
    "text as a list": ("abc", pa.list_(pa.string()), "array<string>", "no list"),
    "a list with a misfit": ([1, "x"], pa.list_(pa.int64()), "array<bigint>", "no whole number"),
    "a list as a map": (
        [1],
        pa.map_(pa.string(), pa.int64()),
        "map<string,bigint>",
        "nor a list of pairs",
    ),
    "another struct": ({"b": 1}, pa.struct([("a", pa.int64())]), "struct<a:bigint>", "its fields"),
    "a time as a duration": (time(1), pa.duration("us"), "interval day to second", "no timedelta"),
}


@pytest.mark.parametrize(("value", "kind", "name", "why"), MISFITS.values(), ids=MISFITS)
def test_a_value_that_does_not_fit_is_named_with_column_type_and_record(
    value: object, kind: Any, name: str, why: str
) -> None:
    records = [{"id": 1, "n": None}, {"id": 2, "n": value}, {"id": 3, "n": value}]

    with pytest.raises(ConnectorError) as caught:
        batch_of(records, id=pa.int64(), n=kind)

    said = str(caught.value)
    assert said.startswith(f"step 'out': column 'n' is declared as {name}, and ")
    assert why in said
    assert "{'id': 2," in said


def test_none_does_not_fit_where_the_column_is_never_null() -> None:
    schema = StructType([StructField("id", LongType(), nullable=False)])
    out = RowsOut(declared(schema, owner="x"), owner="step 'out'")

    with pytest.raises(ConnectorError, match=r"'id' is declared as bigint, and None .* not null"):
        out.batch([{"id": 1}, {"id": None}])


@pytest.mark.parametrize("record", [{"id": 2}, ByName(number=1)], ids=["dict", "struct"])
def test_a_record_without_a_column_is_named(record: object) -> None:
    with pytest.raises(ConnectorError) as caught:
        batch_of([{"id": 1, "name": "ann"}, record], id=pa.int64(), name=pa.string())

    said = str(caught.value)
    assert said.startswith("step 'out': column ")
    assert "is declared, and record" in said
    assert repr(record) in said


def test_a_record_with_a_field_too_many_is_named() -> None:
    with pytest.raises(ConnectorError, match=r"step 'out': record \{'id': 2, 'nom'.*has 'nom'.*id"):
        batch_of([{"id": 1}, {"id": 2, "nom": "ann"}], id=pa.int64())


def test_a_class_with_a_field_too_many_is_named() -> None:
    with pytest.raises(ConnectorError, match=r"record Row\(number=1.*has 'carrier'"):
        batch_of([Row(1)], number=pa.int64())


@pytest.mark.parametrize("record", [5, (1, 2), None], ids=str)
def test_a_value_without_named_fields_is_no_record(record: object) -> None:
    with pytest.raises(ConnectorError, match=r"step 'out': .*has no named fields"):
        batch_of([record], id=pa.int64())


# -- Schemas.


@pytest.mark.parametrize("schema", [None, 5, ["id"], StructType([])], ids=str)
def test_an_invalid_schema_is_refused(schema: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="step 'out': schema= says the columns"):
        spark_schema(schema, owner="step 'out'")


def test_two_columns_of_one_name_are_refused() -> None:
    schema = StructType([StructField("id", LongType()), StructField("id", LongType())])

    with pytest.raises(FlowDefinitionError, match="more than one column 'id'"):
        declared(schema, owner="step 'out'")
    with pytest.raises(FlowDefinitionError, match="more than one column 'id'"):
        RowsIn(["id", "id"], owner="step 'in'")


def test_a_type_that_spark_does_not_have_is_refused() -> None:
    schema = pa.schema([("x", pa.dense_union([pa.field("a", pa.int64())]))])

    with pytest.raises(FlowDefinitionError, match="step 'out': Spark makes no schema"):
        spark_schema(schema, owner="step 'out'")


def test_a_schema_is_inferred_from_records() -> None:
    found = inferred(
        [
            {"id": 1, "at": IN_BERLIN, "tags": None},
            {"id": 2, "x": 1.5, "tags": [{"a": 1}], "price": Decimal("1.50"), "at": None},
        ]
    )

    assert {one.name: str(one.type) for one in found} == {
        "id": "int64",
        "at": "timestamp[us, tz=UTC]",
        "tags": "list<item: struct<a: int64>>",
        "x": "double",
        "price": "decimal128(38, 18)",  # of Decimal("1.50"): others may be longer
    }


def test_a_schema_is_inferred_from_classes_inside_of_others() -> None:
    sums = [af.Windowed("UA", af.TimeWindow(0, 1_000), [Flight(7, "UA", seen=["JFK"])])]

    out = RowsOut(declared(spark_schema(inferred(sums), owner="sums"), owner="sums"), owner="sums")

    assert out.batch(sums).to_pylist() == [
        {
            "key": "UA",
            "window": {"start": 0, "end": 1_000},
            "value": [{"number": 7, "carrier": "UA", "delay": 0.0, "seen": ["JFK"]}],
            "firing": 1,
        }
    ]


def test_a_schema_is_inferred_from_classes() -> None:
    found = inferred([Flight(7, "UA", seen=["JFK"]), Tight("AA", 8)])

    assert found.names == ["number", "carrier", "delay", "seen"]


@pytest.mark.parametrize("value", [None, [], {"a": None}], ids=str)
def test_a_column_of_none_has_no_type(value: object) -> None:
    with pytest.raises(FlowDefinitionError, match=r"'x.*is None in all records"):
        inferred([{"id": 1, "x": value}, {"id": 2, "x": value}])


def test_a_column_of_several_kinds_has_no_type() -> None:
    with pytest.raises(FlowDefinitionError, match="column 'x' has no one type"):
        inferred([{"x": 1}, {"x": "one"}])


def test_without_records_there_is_no_schema() -> None:
    with pytest.raises(FlowDefinitionError, match="without a record"):
        inferred([])


def test_a_large_batch_is_split() -> None:
    batch = pa.record_batch({"n": list(range(25))})

    assert [one.column("n").to_pylist() for one in pieces(batch, 10)] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 25)),
    ]
    assert list(pieces(batch.slice(0, 0), 10)) == []
