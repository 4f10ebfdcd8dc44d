"""A trigger of a user, with event timers in the middle of windows."""

from __future__ import annotations

from typing import Any

import aflow as af


class FiresAfterEach(af.triggers.Trigger[Any]):
    """Fires ``delay`` ms of event time after each record."""

    def __init__(self, delay: int) -> None:
        self.delay = delay

    def on_element(
        self,
        value: object,
        timestamp: int,
        window: af.TimeWindow,
        ctx: af.triggers.TriggerContext,
    ) -> af.triggers.TriggerResult:
        ctx.set_event_timer(timestamp + self.delay)
        return af.triggers.TriggerResult.CONTINUE

    def on_event_time(
        self, at: int, window: af.TimeWindow, ctx: af.triggers.TriggerContext
    ) -> af.triggers.TriggerResult:
        return af.triggers.TriggerResult.FIRE

    def clear(self, window: af.TimeWindow, ctx: af.triggers.TriggerContext) -> None:
        """Its timers may fire without effect."""
