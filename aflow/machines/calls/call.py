"""A record in flight: it came into a step that calls something for it, and its results have not left."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from itertools import repeat
from typing import Any, ClassVar, Final

import msgspec

from aflow.model.batch import Batch
from aflow.model.time import Timestamp


class Missing(Enum):
    """What stands where there is no result."""

    RESULT = "no result"
    """None yet, or none at all: the record was dropped."""


NO_RESULT: Final = Missing.RESULT


class Call(msgspec.Struct, eq=False):
    """One record and what has become of it. Compared by identity, so it can be a key.

    Hot path: made once for each record of an async step. A Struct takes half the time of a class with slots.
    """

    value: Any
    timestamp: Timestamp | None
    """Of the record (epoch ms)."""
    key: Hashable
    """None unless the stream is keyed."""
    done: bool = False
    """True once it is decided what becomes of the record: later answers count no more."""
    result: Any = NO_RESULT
    """What the call has given; ``NO_RESULT`` before, and for what is dropped. What handlers give is up to them."""
    attempt: int = 1
    """How often it was called; counted by steps with retries or times, and 1 in all others."""
    error: BaseException | None = None
    """Why the call failed for good; set for records whose failure goes to a side output."""
    begun_at: float = 0.0
    """When the latest attempt began (s, steady); set where latency matters."""
    segment: Any = None
    """Where it stands among watermarks; belongs to the queue."""
    slot: Any = None
    """Who is making the call now; belongs to the runtime."""
    cache_key: Any = None
    """Who has the same one may have the same result; belongs to steps that share results."""
    company: Any = None
    """With which others it is made as one call; belongs to steps that call for groups."""
    is_timer: ClassVar[bool] = False
    """True for the handler of a timer: there is no record, so users' functions of records are not called."""

    def __repr__(self) -> str:
        return (
            f"Call({self.value!r}, timestamp={self.timestamp}, key={self.key!r}, done={self.done})"
        )


def calls_of(batch: Batch[Any], keys: Sequence[Any] | None) -> list[Call]:
    """Return a call for each record of ``batch``."""
    times = repeat(None) if batch.timestamps is None else batch.timestamps
    return list(map(Call, batch.values, times, repeat(None) if keys is None else keys))
