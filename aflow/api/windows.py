"""How users say which windows they want."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows
from aflow.model.time import positive_millis, short, to_millis

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of ``size`` that touch and do not overlap: each record is in exactly one.

    Windows start at multiples of ``size`` since 1970-01-01T00:00Z, shifted by ``offset`` (which may be negative
    and must be shorter than ``size``): ``Tumbling(timedelta(days=1), offset=timedelta(hours=5))`` gives days from
    05:00 UTC. Raises ``FlowDefinitionError`` for a size that is not above zero, an offset out of bounds, or parts
    of a millisecond.
    """

    size: timedelta
    offset: timedelta = _NONE

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> TumblingWindows:
        """The machine that assigns timestamps to these windows."""
        size = positive_millis(self.size, what="Tumbling size")
        return TumblingWindows(size, to_millis(self.offset, what="Tumbling offset"))

    def __str__(self) -> str:
        made = self.assigner()
        return f"Tumbling({short(made.size)}{_shift(made.offset)})"


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of ``size`` of which a new one begins every ``slide``: each record is in about ``size / slide`` of them.

    Windows start at multiples of ``slide`` since 1970-01-01T00:00Z, shifted by ``offset`` (shorter than
    ``slide``). With a ``slide`` longer than ``size`` there are gaps, and records in them are in no window. A
    record is folded into each of its windows, so the cost of a record grows with ``size / slide``. Raises
    ``FlowDefinitionError`` as ``Tumbling`` does.
    """

    size: timedelta
    slide: timedelta
    offset: timedelta = _NONE

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> SlidingWindows:
        """The machine that assigns timestamps to these windows."""
        size = positive_millis(self.size, what="Sliding size")
        slide = positive_millis(self.slide, what="Sliding slide")
        return SlidingWindows(size, slide, to_millis(self.offset, what="Sliding offset"))

    def __str__(self) -> str:
        made = self.assigner()
        return f"Sliding({short(made.size)} every {short(made.slide)}{_shift(made.offset)})"


def _shift(offset: int) -> str:
    return f", offset {short(offset)}" if offset else ""


Windows: TypeAlias = Tumbling | Sliding
