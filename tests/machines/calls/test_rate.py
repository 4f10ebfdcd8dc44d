"""A rate limit: how many units calls take, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.rate import RateLimit, SharedBuckets, TokenBucket

SECOND = timedelta(seconds=1)


def bucket(count: int = 10, per: timedelta = SECOND, burst: int | None = 1) -> TokenBucket:
    return TokenBucket(RateLimit[Any](count, per, burst=burst))


def taken_until(limit: TokenBucket, end: float, *, now: float = 0.0, cost: float = 1.0) -> int:
    """Return the number of units granted to a taker that asks again exactly at the returned times."""
    times = 0
    while now <= end:
        wait = limit.take("a", now, cost)
        times += wait == 0
        now += wait
    return times


def test_after_a_pause_a_burst_begins_at_once() -> None:
    limit = bucket(burst=3)

    waits = [limit.take("a", 100.0) for _ in range(4)]

    assert waits == [0, 0, 0, pytest.approx(0.1)]


def test_a_request_at_the_returned_time_is_granted() -> None:
    limit = bucket()
    limit.take("a", 0.0)
    wait = limit.take("a", 0.03)

    assert wait == pytest.approx(0.07)
    assert limit.take("a", 0.03 + wait) == 0


def test_a_pause_fills_no_more_than_the_burst() -> None:
    limit = bucket(burst=2)
    limit.take("a", 0.0)

    assert limit.level(1e6) == 2


def test_a_million_seconds_of_a_third_of_a_call_do_not_drift() -> None:
    limit = bucket(1, timedelta(seconds=3))
    now, interval = 1e6, 3.0
    for number in range(100_000):
        assert limit.take("a", now + number * interval) == 0

    assert limit.take("a", now + 100_000 * interval - 0.001) == pytest.approx(0.001, abs=1e-6)


def test_the_rate_holds_for_calls_that_cost_more_than_the_burst() -> None:
    limit = bucket(100, burst=5)

    assert taken_until(limit, 100.0, cost=50) == pytest.approx(200, abs=1)


def test_a_call_that_costs_more_than_the_burst_begins_when_the_bucket_is_full() -> None:
    limit = bucket(10, burst=5)
    limit.take("a", 0.0, 2)

    assert limit.take("a", 0.0, 50) == pytest.approx(0.2)
    assert limit.take("a", 0.2, 50) == 0
    assert limit.level(0.2) == pytest.approx(-45)
    assert limit.take("a", 0.2, 1) == pytest.approx(4.6)


def test_a_call_that_costs_nothing_never_waits() -> None:
    limit = bucket()
    limit.take("a", 0.0)
    limit.take("a", 0.0)

    assert limit.take("b", 0.0, 0) == 0


def test_frequent_requests_do_not_starve_a_waiting_one() -> None:
    limit = bucket()
    limit.take("greedy", 0.0)
    wait = limit.take("patient", 0.05)
    greedy = [limit.take("greedy", 0.05 + step / 1000) for step in range(60)]

    assert 0 not in greedy
    assert limit.take("patient", 0.05 + wait + 0.02) == 0


def test_takers_take_turns() -> None:
    limit = bucket()
    asks = {"a": 0.0, "b": 0.0, "c": 0.0}
    got = dict.fromkeys(asks, 0)
    while min(asks.values()) <= 10:
        taker = min(asks, key=lambda one: asks[one])
        wait = limit.take(taker, asks[taker])
        got[taker] += wait == 0
        asks[taker] += wait

    assert sum(got.values()) == pytest.approx(101, abs=1)
    assert max(got.values()) - min(got.values()) <= 1


def test_a_turn_that_is_not_used_expires_after_a_quarter_of_a_second() -> None:
    limit = bucket()
    limit.take("a", 0.0)
    limit.take("gone", 0.0)

    assert limit.take("a", 0.3) > 0
    assert limit.take("a", 0.36) == 0


def test_a_withdrawn_request_makes_room_for_the_next_one() -> None:
    limit = bucket()
    limit.take("a", 0.0)
    limit.take("gone", 0.0)
    limit.take("b", 0.0)

    limit.leave("gone")

    assert limit.take("b", 0.1) == 0
    assert limit.waiting == 0


def test_a_request_queued_after_a_huge_one_does_not_wait_for_its_units() -> None:
    limit = bucket(burst=10)
    limit.take("a", 0.0, 10)
    limit.take("b", 0.0, 1_000_000)
    wait = limit.take("c", 0.0)

    assert wait < 2


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1, -0.5, "3", None, 10**400, 1j])
def test_a_cost_that_is_no_finite_number_from_0_on_is_named(cost: Any) -> None:
    limit = RateLimit[object](10, SECOND, cost=lambda _value: cost)

    with pytest.raises(ValueError, match=r"RateLimit.cost must give a finite number of units"):
        limit.cost_of("record")


def test_a_bucket_is_not_spoilt_by_a_cost_that_is_no_number() -> None:
    limit = bucket()

    with pytest.raises(ValueError, match="finite number"):
        limit.take("a", 0.0, float("nan"))

    assert limit.take("a", 0.0) == 0


@pytest.mark.parametrize(
    ("count", "per", "burst"),
    [
        (100, SECOND, 10),
        (10, SECOND, 1),
        (15, SECOND, 2),
        (60, timedelta(minutes=1), 1),
        (3, timedelta(milliseconds=1), 3),
        (100_000, SECOND, 10_000),
    ],
)
def test_the_default_burst_is_the_units_of_a_tenth_of_a_second(
    count: int, per: timedelta, burst: int
) -> None:
    assert RateLimit[object](count, per).units_at_once == burst


def wrong(count: Any = 1, per: Any = SECOND, **more: Any) -> None:
    RateLimit[object](count, per, **more)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"count": 0}, "RateLimit.count"),
        ({"count": 1.5}, "RateLimit.count"),
        ({"count": 10**16}, "RateLimit.count"),
        ({"count": True}, "RateLimit.count"),
        ({"per": timedelta(0)}, "RateLimit.per"),
        ({"per": 1}, "RateLimit.per"),
        ({"burst": 0}, "RateLimit.burst"),
        ({"shared": ""}, "RateLimit.shared"),
        ({"cost": 2}, "RateLimit.cost"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(FlowDefinitionError, match=named):
        wrong(**arguments)


def test_limits_with_the_same_name_share_a_bucket() -> None:
    buckets = SharedBuckets()
    one = buckets.bucket(RateLimit[int](10, SECOND, shared="api"))
    other = buckets.bucket(RateLimit[str](10, SECOND, shared="api", cost=len))

    assert one is other


def test_limits_without_a_name_share_nothing() -> None:
    buckets = SharedBuckets()
    limit = RateLimit[int](10, SECOND)

    assert buckets.bucket(limit) is not buckets.bucket(limit)


def test_one_name_for_two_rates_is_refused() -> None:
    buckets = SharedBuckets()
    buckets.bucket(RateLimit[int](10, SECOND, shared="api"))

    with pytest.raises(FlowDefinitionError, match=r"shared='api'.* 10 per .* 20 per"):
        buckets.bucket(RateLimit[int](20, SECOND, shared="api"))
