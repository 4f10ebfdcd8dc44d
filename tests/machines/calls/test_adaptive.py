"""A limit that follows what the service can take: what it does after which windows."""

from __future__ import annotations

from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.adaptive import Adaptive, AdaptiveLimit
from aflow.machines.calls.refusals import Ceiling, Failures


class Steady:
    """A service in rounds: all calls begin together and take the same time."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit = limit
        self.now = 0.0

    def rounds(self, count: int, latency: float, *, in_flight: int | None = None) -> None:
        for _ in range(count):
            self.now += latency
            calls = self.limit.limit if in_flight is None else in_flight
            for _ in range(calls):
                self.limit.ended(self.now, latency, True, calls)

    def failing(self, rounds: int, latency: float, share: float) -> None:
        for _ in range(rounds):
            self.now += latency
            calls = self.limit.limit
            for call in range(calls):
                self.limit.ended(self.now, latency, call >= share * calls, calls)

    def refusing(self, latency: float, *, room: int) -> float:
        """One round with room for so many calls; by what the limit was multiplied."""
        before = self.limit.limit
        self.failing(1, latency, max(0.0, 1 - room / before))
        return round(self.limit.limit / before, 2)


def steady(**more: Any) -> Steady:
    return Steady(AdaptiveLimit(Adaptive(**more)))


def test_the_initial_limit_is_start() -> None:
    assert steady(start=7).limit.limit == 7


def test_the_limit_grows_while_latency_is_constant() -> None:
    service = steady()
    service.rounds(200, 0.01)

    assert service.limit.limit > 300


def test_it_grows_no_further_than_it_may() -> None:
    service = steady(most=50)
    service.rounds(100, 0.01)

    assert service.limit.limit in (50, 30, 18)


def test_it_does_not_grow_while_it_is_not_used() -> None:
    service = steady(start=100)
    service.rounds(1000, 0.01, in_flight=50)

    assert service.limit.limit <= 100


def test_latency_that_grows_with_the_limit_brings_it_down() -> None:
    service = steady(start=50)
    service.rounds(60, 0.01)
    before = service.limit.limit

    service.rounds(3, 0.04)

    assert service.limit.limit < before / 2


def test_latency_that_does_not_fall_with_the_limit_is_the_new_baseline() -> None:
    service = steady()
    service.rounds(100, 0.01)
    before = service.limit.limit

    service.rounds(40, 0.03)

    assert service.limit.limit > before / 2


def test_many_failures_cut_the_limit_and_never_below_the_least() -> None:
    service = steady(start=50, least=4)
    service.failing(100, 0.01, 1.0)

    assert service.limit.limit == 4


def test_the_limit_is_cut_by_less_where_the_service_was_found_to_refuse_calls() -> None:
    service = steady(start=1000, most=2000)
    factors = [service.refusing(0.01, room=1000) for _ in range(400)]
    cuts = [factor for factor in factors if 0.9 < factor < 1]

    assert cuts[0] == 0.95
    assert len(cuts) > 5
    assert set(cuts[-5:]) == {0.96}


@pytest.mark.parametrize(("at", "expected"), [(1000, 0.96), (960, 0.95), (1060, 0.95)])
def test_failures_are_expected_near_the_last_cut_only(at: int, expected: float) -> None:
    ceiling = Ceiling()
    ceiling.found(1000, again=False)

    assert Failures().cut(at, 0.1, lowest=False, expected=ceiling.is_at(at)) == expected * at


def test_failures_that_continue_after_an_expected_cut_cut_again() -> None:
    service = steady(start=1000, most=2000)
    assert 0.96 in (service.refusing(0.01, room=1000) for _ in range(400))  # up to that one

    factors = [service.refusing(0.01, room=service.limit.limit // 2) for _ in range(4)]

    assert [factor for factor in factors if factor < 1] == [0.85, 0.7]


def test_a_few_failures_do_not_matter() -> None:
    service = steady(start=100, most=100)
    service.failing(100, 0.01, 0.03)

    assert service.limit.limit in (100, 60)


def test_calls_that_take_no_time_are_accepted() -> None:
    service = steady()
    service.rounds(100, 0.0)

    assert service.limit.limit > 10


def test_calls_that_began_under_another_limit_do_not_count_as_failures() -> None:
    limit = AdaptiveLimit(Adaptive(start=16, least=16, most=16))
    for _ in range(64):
        limit.ended(1.0, 0.1, True, 16)
    limit_before = limit.limit
    for _ in range(100):
        limit.ended(1.0, 0.5, False, 16)

    assert limit.limit == limit_before


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
    assert AdaptiveLimit(Adaptive(**arguments)).limit == first
