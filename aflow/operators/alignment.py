"""Alignment of sources by event time: its setting, and the member that the runtime gives to ``event_time``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Timestamp, to_millis


@dataclass(frozen=True, slots=True)
class Alignment:
    """A group of sources of one job of which none runs ahead of the slowest by more than ``max_drift``.

    Each subtask with the same ``group`` in its ``event_time`` is a member. A member with a watermark more than
    ``max_drift`` of event time ahead of the slowest one stops reading until that one has caught up. A bound on the
    drift bounds the state of joins and windows downstream.

    - The bound is checked between batches, so a source exceeds it by at most one batch (``Options.batch_records``);
      with a periodic generator, by the records of one period.
    - A member without a watermark counts as one at the beginning of time. So does a member without records, unless
      ``idle_after`` makes it idle. Idle members and those that have ended are ignored.
    - Splits of one subtask do not wait for each other: their common watermark is that of the slowest.

    Raises ``FlowDefinitionError`` for an empty group and for a drift that is negative or no whole ms. Zero is allowed:
    then only the slowest reads.
    """

    group: str
    max_drift: timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.group, str) or not self.group:
            raise FlowDefinitionError(
                f"Alignment needs the name of a group, not {shown(self.group)}; "
                f'for example Alignment("flights", max_drift=timedelta(hours=1))'
            )
        if to_millis(self.max_drift, what="max_drift") < 0:
            raise FlowDefinitionError(
                f"max_drift must not be negative, and it is {self.max_drift!r}"
            )


class AlignmentMember(Protocol):
    """The membership of an ``event_time`` step in its group, provided by the runtime."""

    def on_watermark(self, watermark: Timestamp) -> None:
        """Report the watermark of this member (epoch ms)."""
        ...

    def on_idle(self) -> None:
        """Report that this member is idle: the group ignores it."""
        ...

    def on_active(self) -> None:
        """Report that this member is active again."""
        ...

    def leave(self) -> None:
        """Leave the group: it ignores this member, which may read again. Can be called again."""
        ...
