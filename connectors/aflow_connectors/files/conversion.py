"""Rows become records of the type that was asked for; those that do not fit are kept apart, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import msgspec

from aflow.connect import BadRecord, Chunk, Position
from aflow.errors import FlowDefinitionError
from aflow_connectors.files.arrow_values import Row
from aflow_connectors.files.source import BadRecords

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unfit:
    """A row that cannot be converted, and why."""

    row: Row
    reason: str


Conversion = Callable[[list[Row]], list[T | Unfit]]


def conversion(owner: str, of: type[T] | None) -> Conversion[T]:
    """What makes records of rows; without ``of`` they stay as they are. Raises ``FlowDefinitionError``."""
    if of is None:
        # Who says no type gets dicts: the overloads of the sources say so.
        return lambda rows: cast(list[T | Unfit], rows)
    try:
        msgspec.json.Decoder(of)
    except TypeError as exc:
        raise FlowDefinitionError(f"{owner}: cannot convert into {of!r}: {exc}") from exc

    def one(row: Row) -> T | Unfit:
        try:
            return msgspec.convert(row, of)
        except ValueError as exc:
            return Unfit(row, str(exc))

    def all_of(rows: list[Row]) -> list[T | Unfit]:
        try:
            # One call for all is faster, but its error does not tell the row.
            return msgspec.convert(rows, list[of])  # type: ignore[valid-type]
        except ValueError:
            return [one(row) for row in rows]

    return all_of


def chunk_of(
    rows: Sequence[T | Unfit],
    position: Position,
    bad_records: BadRecords,
    where: Callable[[int], str],
) -> Chunk[T]:
    """A chunk of converted rows. ``where`` says for a person where the row of a number (from 0) stands.

    Raises ``SourceError`` for a row that does not fit, if there is no dead-letter stream.
    """
    if Unfit not in set(map(type, rows)):
        return Chunk(cast(Sequence[T], rows), position)
    values: list[T] = []
    rejected: list[BadRecord] = []
    for number, row in enumerate(rows):
        if isinstance(row, Unfit):
            rejected.append(bad_records.bad(where(number), row.reason, repr(row.row).encode()))
        else:
            values.append(row)
    return Chunk(values, position, rejected=rejected)
