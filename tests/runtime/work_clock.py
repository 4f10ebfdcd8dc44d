"""A clock for tests of the loop budget: work advances it, and the time of the loop does."""

from __future__ import annotations

import asyncio

from aflow.model.time import Timestamp


class WorkClock:
    """The time of the loop, and the work that was done while it stood still."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.worked = 0.0

    def work(self, seconds: float) -> None:
        self.worked += seconds

    def steady(self) -> float:
        return self._loop.time() + self.worked

    def now(self) -> Timestamp:
        return int(self.steady() * 1000)
