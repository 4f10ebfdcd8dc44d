"""A record with its timestamp, in the input and the output of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from aflow.model.time import Instant, to_timestamp

T_co = TypeVar("T_co", covariant=True)


# Not slotted: on Python 3.11 At[int](…) of a frozen, slotted generic raises.
@dataclass(frozen=True)
class At(Generic[T_co]):
    """``value`` with an event time: an aware ``datetime`` or epoch ms, kept as epoch ms; None: without one.

    Raises ``FlowDefinitionError`` for a ``datetime`` without time zone.
    """

    value: T_co
    timestamp: Instant | None = None

    def __post_init__(self) -> None:
        if self.timestamp is not None:
            object.__setattr__(self, "timestamp", to_timestamp(self.timestamp, what="timestamp"))
