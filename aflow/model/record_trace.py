"""The seam to tools for tracing, for one record: the core calls it, and knows no such tool.

A trace belongs to the correlation of its record (``questions``), so a record without one costs nothing. No method
raises: errors of the tool are its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol


class CallTrace(Protocol):
    """The calls of one step for one traced record: the first attempt and its retries."""

    def attempt(
        self, number: int, invoke: Callable[[], Awaitable[Any]], others: Sequence[CallTrace]
    ) -> Awaitable[Any]:
        """Call ``invoke`` in the context of the trace, and return what a slot awaits. Raises what ``invoke`` raises.

        ``others`` are the traces of the other records of a call for several records.
        """
        ...

    def settled(self, outcome: str, error: tuple[str, str] | None) -> None:
        """No attempt follows. ``error`` has the class and the text of the error of a call that was given up."""
        ...


class RecordTrace(Protocol):
    """The trace of one record."""

    def begin(self) -> None:
        """A reader returns the record, maybe again: its processing begins, unless it has begun."""
        ...

    def processed(self) -> None:
        """Nothing is left of the record: its results are written, or in the state of a step."""
        ...

    def call(self, step: str) -> CallTrace:
        """Return the trace of the calls of ``step`` for the record."""
        ...


class RecordTracer(Protocol):
    """Decides which records of one job are traced."""

    def sent(self, source: str) -> RecordTrace | None:
        """Called by the sender of a record, in its context. None if the record is not traced."""
        ...

    def sampled(self, step: str) -> RecordTrace | None:
        """Called by ``step`` for a record that is not traced, to begin a trace with its call. None for most."""
        ...
