"""The watermark options of ``event_time``, checked and converted for its operator."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from aflow.api.checks import check_function
from aflow.errors import FlowDefinitionError, shown
from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    FromSource,
    WatermarkGenerator,
)
from aflow.model.time import positive_millis, to_millis
from aflow.operators.alignment import Alignment
from aflow.operators.time_strategy import TimeStrategy

T = TypeVar("T")

Generators: TypeAlias = Callable[[], WatermarkGenerator[T]]
"""A factory of watermark generators, called once for each split: a generator has state."""


def time_strategy(
    max_delay: timedelta | None,
    generator: Callable[[], WatermarkGenerator[Any]] | None,
    idle_after: timedelta | None,
    align: Alignment | None = None,
    watermark_interval: timedelta | None = None,
    *,
    advance_when_idle: bool = False,
    source_watermarks: bool = False,
) -> TimeStrategy:
    """Return the strategy for the arguments of ``event_time``. Raises ``FlowDefinitionError``."""
    idle = None if idle_after is None else positive_millis(idle_after, what="idle_after")
    if type(advance_when_idle) is not bool:
        raise FlowDefinitionError(
            f"advance_when_idle is True or False, not {shown(advance_when_idle)}"
        )
    if type(source_watermarks) is not bool:
        raise FlowDefinitionError(
            f"source_watermarks is True or False, not {shown(source_watermarks)}"
        )
    # The source itself may call its splits idle.
    if advance_when_idle and idle is None and not source_watermarks:
        raise FlowDefinitionError(
            "advance_when_idle advances event time while all splits are idle, and no split is idle without idle_after; "
            "add idle_after=timedelta(…)"
        )
    if align is not None and not isinstance(align, Alignment):
        raise FlowDefinitionError(
            f"align takes an aflow.watermarks.Alignment, not {shown(align)}; "
            f'for example align=af.watermarks.Alignment("flights", max_drift=timedelta(hours=1))'
        )
    if source_watermarks:
        _refuse_others(max_delay, generator, watermark_interval)
        return TimeStrategy(FromSource, idle, align, None, advance_when_idle, from_source=True)
    if generator is not None:
        if max_delay is not None:
            raise FlowDefinitionError(
                "event_time() takes max_delay or a generator, not both: a generator has its own delay"
            )
        check_function(generator, "event_time(generator=…)")
        period = watermark_period(watermark_interval)
        return TimeStrategy(generator, idle, align, period, advance_when_idle)
    if watermark_interval is not None:
        raise FlowDefinitionError(
            "watermark_interval is the interval of a custom generator, and event_time() has none: "
            "without generator=… a watermark follows each batch; leave watermark_interval out"
        )
    delay = 0 if max_delay is None else to_millis(max_delay, what="max_delay")
    if delay < 0:
        raise FlowDefinitionError(f"max_delay must not be negative, and it is {max_delay!r}")
    return TimeStrategy(
        lambda: BoundedOutOfOrderness(delay), idle, align, advance_when_idle=advance_when_idle
    )


def _refuse_others(max_delay: object, generator: object, watermark_interval: object) -> None:
    """Raise ``FlowDefinitionError`` if one of the options of generated watermarks is given."""
    options = {
        "max_delay": max_delay,
        "generator": generator,
        "watermark_interval": watermark_interval,
    }
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise FlowDefinitionError(
            f"event_time(source_watermarks=True) takes the watermarks of the source and generates none, so it does not "
            f"take {' or '.join(given)}; omit one of them"
        )


def watermark_period(interval: timedelta | None) -> int | None:
    """Return the interval of periodic watermarks in ms. Raises ``FlowDefinitionError`` unless it is above zero."""
    return None if interval is None else positive_millis(interval, what="watermark_interval")
