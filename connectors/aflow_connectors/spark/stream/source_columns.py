"""Columns of a stream whose type no field accepts: found before anything runs, and not at the first row."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec
from msgspec import inspect

from aflow_connectors.declared_types import fields_by_name, without_none
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.schema import ArrowSchema

#: Fields whose type alone decides if they accept the values of a column. Text may be an enum or a date in others.
_PLAIN: Final[dict[type[inspect.Type], type]] = {
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
}

#: A value of a column, by the predicate of ``pyarrow.types``. No floats: only some of them are whole numbers.
_SAMPLES: Final[dict[str, object]] = {
    "is_boolean": True,
    "is_integer": 0,
    "is_string": "",
    "is_large_string": "",
    "is_binary": b"",
    "is_large_binary": b"",
    "is_timestamp": datetime(1970, 1, 1, tzinfo=UTC),
    "is_date32": date(1970, 1, 1),
    "is_struct": {},
    "is_list": [],
    "is_map": {},
}


def column_mismatch(schema: ArrowSchema, of: type | None) -> str | None:
    """Return why a column of ``schema`` fits no record of class ``of``; None if rows may fit.

    A record may still not match: None, or a value out of the bounds of its field, is found at its row.
    """
    fields = {} if of is None else fields_by_name(inspect.type_info(of))
    for column in schema:
        field = fields.get(column.name)
        want = None if field is None else without_none(field.type)
        plain = None if want is None else _PLAIN.get(type(want))
        if plain is not None and (reason := _reason(column.type, plain)):
            return (
                f"column {column.name!r} is of type {column.type}, and the field is of type "
                f"{plain.__name__}: {reason}"
            )
    return None


def _reason(kind: Any, plain: type) -> str | None:
    for predicate, sample in _SAMPLES.items():
        if getattr(pa.types, predicate)(kind):
            try:
                msgspec.convert(sample, plain)
            except msgspec.ValidationError as exc:
                return str(exc)
    return None
