"""The limit after which rounds: a service in rounds, in which all calls begin together."""

from __future__ import annotations

from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.adaptive_limiter import BETA, BETA_REFUSED, AdaptiveLimiter


class Steady:
    """The step makes as many calls as the limit allows, or ``in_flight``."""

    def __init__(self, limiter: AdaptiveLimiter) -> None:
        self.limiter = limiter
        self.now = 0.0

    @property
    def limit(self) -> int:
        return self.limiter.limit

    def rounds(
        self, count: int, latency: float, *, in_flight: int | None = None, failing: float = 0.0
    ) -> None:
        for _ in range(count):
            self.now += latency
            calls = self.limit if in_flight is None else in_flight
            for call in range(calls):
                self.limiter.ended(self.now, latency, call >= failing * calls, calls)

    def queueing(self, count: int, latency: float, *, room: int) -> None:
        """Calls beyond ``room`` wait, so latency is proportional to the calls."""
        for _ in range(count):
            self.rounds(1, latency * max(1.0, self.limit / room))

    def refusing(self, count: int, latency: float, *, room: int) -> None:
        """Calls beyond ``room`` fail."""
        for _ in range(count):
            self.rounds(1, latency, failing=max(0.0, 1 - room / self.limit))


def steady(start: int = 10, least: int = 1, most: int = 1000) -> Steady:
    return Steady(AdaptiveLimiter(start=start, least=least, most=most))


def test_the_initial_limit_is_start() -> None:
    assert steady(start=7).limit == 7


def test_the_limit_grows_while_latency_is_constant() -> None:
    service = steady()
    service.rounds(200, 0.01)

    assert service.limit > 300


def test_it_grows_no_further_than_it_may() -> None:
    service = steady(most=50)
    service.rounds(100, 0.01)

    assert service.limit == 50


def test_it_does_not_grow_while_it_is_not_used() -> None:
    service = steady(start=100)
    service.rounds(1000, 0.01, in_flight=50)

    assert service.limit <= 100


def test_slow_start_doubles_the_limit() -> None:
    service = steady(start=16)
    found: list[int] = []
    while service.limit < 256:
        if not found or found[-1] != service.limit:
            found.append(service.limit)
        service.rounds(1, 0.01)

    # The first decrease verifies that no calls queued.
    assert found == [16, 11, 16, 32, 64, 128]


def test_a_queue_multiplies_the_limit_by_beta() -> None:
    service = steady(start=50, most=50)
    service.rounds(40, 0.01)
    while service.limit == 50:
        service.rounds(1, 0.04)

    assert service.limit == int(50 * BETA)


def test_refused_calls_multiply_the_limit_by_the_beta_of_the_paper() -> None:
    service = steady(start=50, most=50)
    service.rounds(40, 0.01)
    while service.limit == 50:
        service.refusing(1, 0.01, room=25)

    assert service.limit == int(50 * BETA_REFUSED)


def test_after_a_decrease_it_returns_to_where_it_was_and_stays_there_for_a_while() -> None:
    service = steady(start=100)
    found: list[int] = []
    for _ in range(300):
        service.refusing(1, 0.01, room=200)
        found.append(service.limit)

    # Near 200 for most of the time, and never far beyond.
    assert sum(190 <= limit <= 210 for limit in found[100:]) > 0.4 * 200
    assert max(found[100:]) < 230


def test_latency_that_does_not_fall_with_the_limit_is_the_new_usual_one() -> None:
    service = steady()
    service.rounds(100, 0.01)
    before = service.limit

    service.rounds(40, 0.03)

    assert service.limit >= before


def test_failures_that_do_not_fall_with_the_limit_are_usual() -> None:
    service = steady()
    service.rounds(100, 0.01)
    before = service.limit

    service.rounds(40, 0.01, failing=0.2)

    assert service.limit >= before


def test_many_failures_cut_the_limit_and_never_below_the_least() -> None:
    service = steady(start=50, least=4)
    service.rounds(100, 0.01, failing=1.0)

    assert service.limit == 4


def test_a_service_that_recovers_from_an_outage_is_found_again() -> None:
    service = steady()
    service.rounds(30, 0.01)
    service.rounds(300, 0.01, failing=1.0)
    assert service.limit == 1

    service.queueing(300, 0.01, room=100)

    assert 65 <= service.limit <= 160


def test_a_few_failures_do_not_matter() -> None:
    service = steady(start=100, most=100)
    service.rounds(100, 0.01, failing=0.03)

    assert service.limit == 100


def test_one_slow_call_is_no_reason_to_decrease() -> None:
    service = steady(start=10, most=10)
    service.rounds(20, 0.01)
    found: set[int] = set()
    for _ in range(100):
        service.rounds(1, 0.01)
        service.limiter.ended(service.now, 0.009, True, 10)
        service.now += 1.0
        service.limiter.ended(service.now, 1.0, True, 10)
        found.add(service.limit)

    assert found == {10}


def test_calls_that_take_no_time_are_accepted() -> None:
    service = steady()
    service.rounds(100, 0.0)

    assert service.limit > 10


def test_calls_that_began_under_another_limit_do_not_count() -> None:
    service = steady(start=16)
    service.rounds(20, 0.01)
    before = service.limit
    for _ in range(1000):
        service.limiter.ended(service.now, 0.5, False, 16)

    assert service.limit == before


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1e-4, 0.02, 30.0]), st.booleans())
# Half of 16 calls fail at a limit of 8 and, since the last round is cut, at 7: taken for the usual share.
@example(room=4, start=34, latency=1e-4, refuses=True)
def test_it_converges_to_the_room_of_a_service_wherever_it_starts(
    room: int, start: int, latency: float, refuses: bool
) -> None:
    service = steady(start=start)
    found: list[int] = []
    for _ in range(500):
        if refuses:
            service.refusing(1, latency, room=room)
        else:
            service.queueing(1, latency, room=room)
        found.append(service.limit)

    # One more call than there is room for is found out by trying it.
    late = found[-200:]
    assert min(late) >= max(1, int(0.4 * room))
    assert max(late) <= 1.7 * room + 4


def mean_limit(room: int, share: float, random: Random) -> float:
    """Return the mean limit for a queue with ``room``, of whose answers a share are errors in any case."""
    service = steady()
    found: list[int] = []
    for _ in range(400):
        limit = service.limit
        latency = 0.02 * max(1.0, limit / room)
        service.now += latency
        for _ in range(limit):
            service.limiter.ended(service.now, latency, random.random() >= share, limit)
        found.append(limit)
    return fmean(found[-300:])


@pytest.mark.parametrize("room", [8, 30])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.4])
def test_failures_that_do_not_depend_on_the_limit_do_not_hide_the_room_of_a_queue(
    room: int, share: float
) -> None:
    # A few chance drops in a row can halve the limit of a small service for some time.
    limits = [mean_limit(room, share, Random(seed)) for seed in range(5)]

    assert min(limits) >= 0.4 * room
    assert 0.75 * room <= fmean(limits) <= 1.3 * room


class AnyService(RuleBasedStateMachine):
    """A service that changes in any way."""

    @initialize(least=st.integers(1, 20), start=st.integers(0, 50), more=st.integers(0, 500))
    def begin(self, least: int, start: int, more: int) -> None:
        self.least, self.most = least, least + start + more
        self.service = steady(least + start, least, self.most)

    @rule(latency=st.sampled_from([0.0, 1e-6, 0.01, 0.012, 0.05, 7.0]), rounds=st.integers(1, 9))
    def answer(self, latency: float, rounds: int) -> None:
        self.service.rounds(rounds, latency)

    @rule(share=st.floats(0.0, 1.0), rounds=st.integers(1, 9))
    def fail(self, share: float, rounds: int) -> None:
        self.service.rounds(rounds, 0.01, failing=share)

    @rule(room=st.integers(1, 200), rounds=st.integers(1, 9))
    def queue(self, room: int, rounds: int) -> None:
        self.service.queueing(rounds, 0.01, room=room)

    @rule(share=st.floats(0.0, 0.5), rounds=st.integers(1, 9))
    def idle(self, share: float, rounds: int) -> None:
        """Less than half of the limit is used: it does not grow, except back to where a decrease began."""
        in_flight = int(share * self.service.limit)
        self.service.rounds(9, 0.01, in_flight=in_flight)
        before = self.service.limit
        self.service.rounds(rounds, 0.01, in_flight=in_flight)
        after = self.service.limit
        assert after <= before or after <= before / BETA**3

    @invariant()
    def within_the_bounds(self) -> None:
        if hasattr(self, "service"):
            assert type(self.service.limit) is int
            assert self.least <= self.service.limit <= self.most


TestAnyService = AnyService.TestCase
TestAnyService.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"start": 0}, "Adaptive.start"),
        ({"least": 1.5}, "Adaptive.least"),
        ({"most": True}, "Adaptive.most"),
        ({"start": 2000}, "between the 1 and the 1000"),
        ({"start": 5, "least": 20}, "between the 20 and the 1000"),
        ({"least": 20, "most": 10}, "Adaptive.least is 20 .*Adaptive.most, 10"),
        ({"on": "errors"}, "Adaptive.on"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(FlowDefinitionError, match=named):
        Adaptive(**arguments)


@pytest.mark.parametrize(
    ("arguments", "first"),
    [({}, 10), ({"most": 7}, 7), ({"least": 20}, 20), ({"least": 2, "most": 50}, 10)],
    ids=str,
)
def test_without_a_start_it_begins_with_the_number_nearest_to_ten(
    arguments: dict[str, Any], first: int
) -> None:
    assert Adaptive(**arguments).new_limiter().limit == first
