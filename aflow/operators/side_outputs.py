"""Side outputs of a step: collected while it handles a batch, then emitted as batches."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any

from aflow.errors import OperatorError
from aflow.model.batch import Batch
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Output


class SideOutputs:
    """Records for side outputs since ``begin``; ``emit`` sends one batch for each tag, in the order of first use."""

    __slots__ = ("_accepting", "_columns", "_has_watermarks", "_operator", "_records")

    def __init__(self, operator: str) -> None:
        self._operator = operator
        #: True while a handler may run.
        self._accepting = False
        #: By tag: values, their timestamps, which are None for all or for none, the watermarks that they meet, and the
        #: records that were left to handle, which identify the handled one.
        self._columns: dict[str, tuple[list[Any], list[Any], list[Timestamp], list[int]]] = {}
        #: True if the records are emitted with the watermarks that they meet.
        self._has_watermarks = False
        #: The iterator over the handled records.
        self._records: Iterator[object] | None = None

    def begin(
        self, records: Iterator[object] | None = None, *, has_watermarks: bool = False
    ) -> None:
        """Accept records: handlers run, for each of ``records``, a list iterator, if it is given.

        With ``has_watermarks`` they are emitted with the watermarks that they meet.
        """
        self._accepting = True
        self._records = records
        self._has_watermarks = has_watermarks

    def add(
        self,
        tag: str,
        value: object,
        timestamp: Timestamp | None,
        watermark: Timestamp = MIN_TIMESTAMP,
    ) -> None:
        """Add a record that meets ``watermark``.

        Raises ``OperatorError`` outside ``begin`` … ``emit``, when it would not be sent.
        """
        if not self._accepting:
            raise OperatorError(
                f"step {self._operator!r} used the side output {tag!r} outside of its handlers; "
                f"call ctx.side() before the handler returns",
                operator=self._operator,
            )
        column = self._columns.get(tag)
        if column is None:
            column = self._columns[tag] = ([], [], [], [])
        column[0].append(value)
        column[1].append(timestamp)
        column[2].append(watermark)
        column[3].append(length_hint(self._records))

    def retract(self) -> None:
        """Remove the records that the handler of the last of ``records`` added; it failed."""
        current = length_hint(self._records)
        for tag, column in list(self._columns.items()):
            count = column[3].count(current)
            for part in column:
                del part[len(part) - count :]
            if not column[0]:
                del self._columns[tag]

    def mark(self) -> dict[str, int]:
        """Return the number of records of each side output, for ``retract_to``."""
        return {tag: len(column[0]) for tag, column in self._columns.items()}

    def retract_to(self, mark: dict[str, int]) -> None:
        """Remove the records that were added after ``mark``."""
        for tag, column in list(self._columns.items()):
            for part in column:
                del part[mark.get(tag, 0) :]
            if not column[0]:
                del self._columns[tag]

    def emit(self, output: Output) -> None:
        """Send the records, and accept no more."""
        self._accepting = False
        if not self._columns:
            return
        columns, self._columns = self._columns, {}
        for tag, (values, timestamps, met, _) in columns.items():
            times = None if timestamps[0] is None else timestamps
            output.side(tag, Batch(values, times, None, met if self._has_watermarks else None))
