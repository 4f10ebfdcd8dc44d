"""A column whose type no field accepts is found before a stream starts; the others are converted row by row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any

import msgspec
import pytest

from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.stream.source_columns import column_mismatch


class Colour(Enum):
    RED = "red"


@dataclass
class Item:
    n: int
    price: float
    name: str
    seen: bool
    at: datetime | None = None
    colour: Colour | None = None
    size: Annotated[int, msgspec.Meta(gt=0)] | None = None
    more: Any = None


FITTING = {
    "n": pa.int32(),
    "price": pa.int64(),
    "name": pa.string(),
    "seen": pa.bool_(),
    "at": pa.timestamp("us", tz="UTC"),
    "colour": pa.string(),
    "size": pa.int64(),
    "more": pa.map_(pa.string(), pa.int64()),
}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        # Whole numbers may be in a column of floats, and a column of nulls may be of any type.
        ({"n": pa.float64()}, None),
        ({"n": pa.null()}, None),
        ({"colour": pa.int64()}, None),
        ({"unknown": pa.string()}, None),
        (
            {"n": pa.string()},
            "column 'n' is of type string, and the field is of type int: Expected",
        ),
        ({"n": pa.timestamp("us")}, "column 'n' is of type timestamp"),
        ({"price": pa.string()}, "column 'price' is of type string"),
        ({"name": pa.int64()}, "column 'name' is of type int64, and the field is of type str"),
        ({"seen": pa.int32()}, "column 'seen' is of type int32"),
        ({"size": pa.string()}, "column 'size' is of type string"),
        ({"n": pa.list_(pa.int64())}, "column 'n' is of type list"),
    ],
    ids=str,
)
def test_a_column_that_fits_no_record_is_named(changed: dict[str, Any], reason: str | None) -> None:
    found = column_mismatch(pa.schema({**FITTING, **changed}), Item)

    assert (found is None) == (reason is None)
    assert reason is None or (found is not None and found.startswith(reason))


def test_rows_without_a_class_have_any_columns() -> None:
    assert column_mismatch(pa.schema({"n": pa.string()}), None) is None
