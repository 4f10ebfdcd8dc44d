"""The strategy of an ``event_time`` step, and the event time of one split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aflow.machines.watermarks.generators import Idleness, WatermarkGenerator
from aflow.operators.alignment import Alignment
from aflow.operators.time_unit import UnitCheck

#: Default interval of periodic watermarks (ms of processing time).
PERIOD: Final = 200


@dataclass(frozen=True, slots=True)
class TimeStrategy:
    """Strategy of event time: a generator for each split, and the ms without a record after which a split is idle.

    ``period`` is the time between two calls of a generator's ``on_periodic`` (ms of processing time); None for
    ``PERIOD``.
    """

    generator: Callable[[], WatermarkGenerator[Any]]
    idle_after: int | None = None
    align: Alignment | None = None
    period: int | None = None
    advance_when_idle: bool = False
    """True if event time advances by the clock while all splits are idle."""
    from_source: bool = False
    """True if the source emits the watermarks, and not the generator."""
    unit: UnitCheck = field(default_factory=UnitCheck, compare=False)
    """Checks the first record of any subtask."""


@dataclass(slots=True)
class SplitTime:
    """Event time in one split."""

    id: str
    generator: WatermarkGenerator[Any]
    idleness: Idleness | None
    idle: bool = False
    """True while the other splits do not wait for this one."""
    silent: bool = False
    """True while the split is idle because its source has said so."""
