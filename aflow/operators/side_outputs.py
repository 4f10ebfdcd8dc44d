"""Side outputs of a step: collected while it handles a batch, then emitted as batches."""

from __future__ import annotations

from typing import Any

from aflow.errors import OperatorError
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import Output


class SideOutputs:
    """Records for side outputs since ``begin``; ``emit`` sends one batch for each tag, in the order of first use."""

    __slots__ = ("_accepting", "_columns", "_operator")

    def __init__(self, operator: str) -> None:
        self._operator = operator
        #: True while a handler may run.
        self._accepting = False
        #: By tag: values and their timestamps, which are None for all or for none.
        self._columns: dict[str, tuple[list[Any], list[Any]]] = {}

    def begin(self) -> None:
        """Accept records: handlers run."""
        self._accepting = True

    def add(self, tag: str, value: object, timestamp: Timestamp | None) -> None:
        """Add a record. Raises ``OperatorError`` outside ``begin`` … ``emit``, when it would not be sent."""
        if not self._accepting:
            raise OperatorError(
                f"step {self._operator!r} used the side output {tag!r} outside of its handlers; "
                f"call ctx.side() before the handler returns",
                operator=self._operator,
            )
        column = self._columns.get(tag)
        if column is None:
            column = self._columns[tag] = ([], [])
        column[0].append(value)
        column[1].append(timestamp)

    def emit(self, output: Output) -> None:
        """Send the records, and accept no more."""
        self._accepting = False
        if not self._columns:
            return
        columns, self._columns = self._columns, {}
        for tag, (values, timestamps) in columns.items():
            output.side(tag, Batch(values, None if timestamps[0] is None else timestamps))
