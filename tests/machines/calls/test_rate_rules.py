"""Rules of a bucket: takers never take too much, and each gets a turn."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aflow.machines.calls.rate import RateLimit, TokenBucket

GREEDY = "greedy"
TAKERS = ("a", "b", "c")

#: The longest that a taker is late for what it was told (seconds); less than what costs it its place.
LATEST = 0.2

#: Shortage (seconds) that the bucket takes for rounding, and rounding errors of times.
ROUNDING = 1e-6


class Taking(RuleBasedStateMachine):
    """Takers that ask at the returned times, one that asks all the time, and one that withdraws."""

    @initialize(
        count=st.integers(1, 1000),
        per=st.integers(1, 100_000),
        burst=st.integers(1, 50),
        begin=st.floats(0, 1e7),
    )
    def begin(self, count: int, per: int, burst: int, begin: float) -> None:
        self.rate = count / per * 1000
        self.burst = burst
        self.bucket = TokenBucket(RateLimit[Any](count, timedelta(milliseconds=per), burst=burst))
        self.now = begin
        #: Times of grants, and their units.
        self.given: list[tuple[float, int]] = []
        #: For each waiting taker: the time of its next request, its units, and the takers served since.
        self.told: dict[str, tuple[float, int]] = {}
        self.overtaken: dict[str, set[str]] = {}

    def ask(self, taker: str, cost: int) -> bool:
        wait = self.bucket.take(taker, self.now, cost)
        if wait:
            assert 0 < wait < float("inf")
            self.told[taker] = (self.now + wait, cost)
            self.overtaken.setdefault(taker, set())
            return False
        self.given.append((self.now, cost))
        self.told.pop(taker, None)
        self.overtaken.pop(taker, None)
        for waiting, by in self.overtaken.items():
            if waiting != GREEDY:
                assert taker not in by, f"{taker} was served twice while {waiting} waited"
            by.add(taker)
        return True

    @rule(after=st.floats(0, 10))
    def time_passes(self, after: float) -> None:
        """Advance to the next moment for which a taker was told to ask."""
        moments = [at for taker, (at, _) in self.told.items() if taker != GREEDY]
        self.now = max(self.now, min([self.now + after, *moments]))

    @rule(taker=st.sampled_from(TAKERS), cost=st.integers(1, 80))
    def take(self, taker: str, cost: int) -> None:
        if taker not in self.told:
            self.ask(taker, cost)

    @rule(cost=st.integers(1, 10))
    def take_all_the_time(self, cost: int) -> None:
        self.ask(GREEDY, cost)

    @rule(late=st.floats(0, LATEST))
    @precondition(lambda self: any(taker != GREEDY for taker in self.told))
    def come_when_told(self, late: float) -> None:
        at, taker, cost = min(
            (at, taker, cost) for taker, (at, cost) in self.told.items() if taker != GREEDY
        )
        others = [other for one, (other, _) in self.told.items() if one not in (taker, GREEDY)]
        self.now = max(self.now, min([at + late, *others]), at)
        for _ in range(3):
            self.ask(GREEDY, 1)
        self.ask(taker, cost)

    @rule(taker=st.sampled_from(TAKERS))
    def go_away(self, taker: str) -> None:
        self.bucket.leave(taker)
        self.told.pop(taker, None)
        self.overtaken.pop(taker, None)

    @rule()
    def everybody_gets_a_turn(self) -> None:
        """Within as many asks as there are takers and turns before them."""
        for _ in range(500):
            waiting = [
                (at, taker, cost) for taker, (at, cost) in self.told.items() if taker != GREEDY
            ]
            if not waiting:
                return
            at, taker, cost = min(waiting)
            self.now = max(self.now, at)
            self.ask(GREEDY, 1)
            self.ask(taker, cost)
        raise AssertionError(f"no taker is served any more: {self.told}")

    @invariant()
    def never_too_much(self) -> None:
        """In each time from one moment at which units were given to another."""
        rate = Fraction(self.rate) if self.given else Fraction(1)
        end = self.given[-1][0] if self.given else 0.0
        units, most = 0, self.burst
        for at, cost in reversed(self.given):
            units += cost
            most = max(most, cost)
            length = Fraction(end) - Fraction(at) + Fraction(ROUNDING)
            assert units <= most + rate * length


Taking.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTaking = Taking.TestCase
