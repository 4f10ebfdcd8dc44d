"""What ``event_time`` is told about sources that wait for each other, and whom it tells how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Timestamp, to_millis


@dataclass(frozen=True, slots=True)
class Alignment:
    """Sources of one job that wait for each other, so that none runs ahead of the slowest by more than ``max_drift``.

    Every subtask whose ``event_time`` names the same ``group`` is a member. One whose watermark is further than
    ``max_drift`` of event time ahead of the slowest member stops reading until that one has caught up. What bounds the
    drift bounds the state that joins and windows behind the sources must keep.

    - The bound is looked at between batches, so a source goes beyond by what is in one batch at most
      (``Options.batch_records``); with a generator that speaks periodically, by what is read in one of its periods.
    - A member that has not come to a watermark yet is waited for, as one at the beginning of time. So is a silent
      one, unless ``idle_after`` makes it idle. Idle members are not waited for, and neither are those that have ended.
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
    """The place of an ``event_time`` in its group, which the runtime gives it."""

    def advanced(self, watermark: Timestamp) -> None:
        """Tell the group how far this member is (epoch ms)."""
        ...

    def silent(self) -> None:
        """Tell the group not to wait for this member, which is idle."""
        ...

    def speaking(self) -> None:
        """Tell the group that the member is active again."""
        ...

    def leave(self) -> None:
        """Be waited for no more, and wait no more. Can be called again."""
        ...
