"""What goes into a fragment that runs, and what comes out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from aflow.backfill.fragments import Exit
from aflow.model.batch import Batch
from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedRows:
    """Rows of exchanges, ordered by event time, then by input, then by place: columns of equal length."""

    inputs: Sequence[int]
    times: Sequence[Timestamp]
    keys: list[Any]
    values: list[Any]


InputRows: TypeAlias = list[Any] | ExchangedRows
"""Some rows of a partition, in order: records of a source, or rows of exchanges. Never empty."""


class Inbox(Protocol):
    """Where the rows of a partition come from."""

    async def take(self) -> InputRows | None:
        """The next rows; None when there are no more."""
        ...


@dataclass(frozen=True, slots=True)
class ExitBatch:
    """Records on their way out of a fragment."""

    way: Exit
    batch: Batch[Any]


class Outbox(Protocol):
    """Where records leave."""

    def put(self, leaving: ExitBatch, /) -> Awaitable[None] | None:
        """Hand out records. None: they are taken; an awaitable: they are taken once that is done. May be async.

        Waits while too many have not been fetched.
        """
        ...
