"""A record in flight: it arrived at an async step, and its results were not emitted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from itertools import repeat
from typing import Any, ClassVar, Final

import msgspec

from aflow.errors import text_of
from aflow.model.batch import Batch
from aflow.model.time import Timestamp


class Missing(Enum):
    """The marker of a missing result."""

    RESULT = "no result"
    """None yet, or none at all: the record was dropped."""


NO_RESULT: Final = Missing.RESULT


class CallError(msgspec.Struct, frozen=True):
    """The description of an exception, which would keep the variables of the call."""

    type_name: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> CallError:
        """Return the description of ``error``."""
        return cls(type(error).__name__, text_of(error))


class Call(msgspec.Struct, eq=False, gc=False):
    """One record and its outcome. Compared by identity, so it can be a key.

    Hot path: made once for each record of an async step. A Struct takes half the time of a class with slots. The
    garbage collector does not look at it (``gc=False``): with thousands of calls in flight that was a tenth of the CPU
    time. So no cycle may remain through a settled call: queues and groups drop their references, and ``error`` is a
    description.
    """

    value: Any
    timestamp: Timestamp | None
    """Of the record (epoch ms)."""
    key: Hashable
    """None unless the stream is keyed."""
    done: bool = False
    """True once the record is settled: later answers do not count. Not set for calls that returned in a plain step."""
    result: Any = NO_RESULT
    """The result of the call; ``NO_RESULT`` before, and for dropped records."""
    attempt: int = 1
    """The number of attempts; counted by steps with retries or times, and 1 in all others."""
    error: CallError | None = None
    """The error of a call that was given up."""
    begun_at: float = 0.0
    """The start of the latest attempt (s, steady); set in steps with limits."""
    segment: Any = None
    """Its place among watermarks; used by the queue."""
    slot: Any = None
    """The slot that makes the call; used by the runtime."""
    cache_key: Any = None
    """Calls with equal keys share results; used by steps with a cache."""
    company: Any = None
    """The group of the call, and the members of a group; used by steps with groups."""
    is_timer: ClassVar[bool] = False
    """True for the handler of a timer: there is no record, so users' functions of records are not called."""

    @property
    def has_outcome(self) -> bool:
        """True once it has a result or was given up."""
        return self.result is not NO_RESULT or self.error is not None

    def __repr__(self) -> str:
        return (
            f"Call({self.value!r}, timestamp={self.timestamp}, key={self.key!r}, done={self.done})"
        )


def calls_of(batch: Batch[Any], keys: Sequence[Any] | None) -> list[Call]:
    """Return a call for each record of ``batch``."""
    times = repeat(None) if batch.timestamps is None else batch.timestamps
    return list(map(Call, batch.values, times, repeat(None) if keys is None else keys))
