"""Rows that were converted, as a chunk: those that do not fit are kept apart, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from aflow.connect import BadRecord, Chunk, Position
from aflow_connectors.files.arrow_records import Unfit
from aflow_connectors.files.source import BadRecords

T = TypeVar("T")


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
