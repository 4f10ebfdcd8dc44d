"""A clock by which the loop budget is always spent."""

from __future__ import annotations

from aflow.testing import VirtualClock

#: Seconds; more than the loop budget.
_STEP = 0.01


class ImpatientClock(VirtualClock):
    """Virtual time in which each look at ``steady`` takes longer than the loop budget.

    So a task yields after each piece, and a piece has one result as soon as the first one is measured, or two in a
    rare trial (``machines/batch_size``). Batches of a task grow with ``batch_records`` above 1, since the number of
    records makes no difference.
    """

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def steady(self) -> float:
        self._looks += 1
        return super().steady() + self._looks * _STEP
