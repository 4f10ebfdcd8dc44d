"""Input and output of a running fragment."""

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


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Records of one split of a source, in order."""

    split: str
    values: list[Any]

    def __len__(self) -> int:
        return len(self.values)


InputRows: TypeAlias = list[Any] | SplitRows | ExchangedRows
"""Some rows of a partition, in order: records of a source, or rows of exchanges. Never empty."""


class Inbox(Protocol):
    """Source of the rows of a partition."""

    async def take(self) -> InputRows | None:
        """Return the next rows; None at the end."""
        ...


@dataclass(frozen=True, slots=True)
class ExitBatch:
    """Records emitted by an exit of a fragment."""

    exit: Exit
    batch: Batch[Any]


class Outbox(Protocol):
    """Receiver of the records that a fragment emits."""

    def put(self, exit_batch: ExitBatch, /) -> Awaitable[None] | None:
        """Accept records: at once if it returns None, else when the awaitable is done. May be async.

        Waits while too many records have not been fetched.
        """
        ...
