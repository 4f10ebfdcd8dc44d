"""An adaptive limit against simulated services, measured against the best fixed limit of each.

The best fixed limit is as many calls as there are servers: all are busy, and no call waits. Calls take about 10 ms; for
each capacity the limit has a second to find it (a hundred round trips), and is measured for two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp
from random import Random

import pytest

from aflow.machines.calls.adaptive_limiter import AdaptiveLimiter
from tests.machines.calls.simulated_service import Fixed, Seen, Service, Simulation

Takes = Callable[[float, Random], float]

#: Simulations of up to 12 seconds.
pytestmark = pytest.mark.slow

SEEDS = (1, 2)
EACH, SETTLED = 3.0, 1.0

#: Good answers, as a share of those with the best fixed limit.
SHARE = 0.85


def constant(_now: float, _random: Random) -> float:
    return 0.01


def noisy(_now: float, random: Random) -> float:
    return 0.01 * exp(random.gauss(0, 0.3))


def very_noisy(_now: float, random: Random) -> float:
    return 0.01 * exp(random.gauss(0, 1))


def with_slow_ones(now: float, random: Random) -> float:
    return noisy(now, random) * (50 if random.random() < 0.01 else 1)


def slower_then_faster(now: float, random: Random) -> float:
    return noisy(now, random) * (1 if now < EACH else 3 if now < 2 * EACH else 0.5)


def phases(*servers: int, each: float = EACH) -> Callable[[float], int]:
    """So many servers, for ``each`` seconds each."""
    return lambda now: servers[min(int(now / each), len(servers) - 1)]


def adapted(
    service: Service, seed: int, phase_count: int = 3, start: int = 10, each: float = EACH
) -> Seen:
    limit = AdaptiveLimiter(start=start, least=1, most=1000)
    return Simulation(service, limit, seed).run(each * phase_count)


@cache
def best(takes: Takes, servers: int, at: float) -> tuple[float, float]:
    """Good answers per second and their latency (s) with the best fixed limit."""
    service = Service(
        servers=lambda _now: servers, takes=lambda now, random: takes(now + at, random)
    )
    seen = Simulation(service, Fixed(servers), seed=99).run(2.0)
    return seen.answered(0.5, 2.0), seen.latency(0.5, 2.0)


def settled(phase: int, each: float = EACH) -> tuple[float, float]:
    return phase * each + SETTLED, (phase + 1) * each


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "takes", [constant, noisy, very_noisy, with_slow_ones], ids=lambda takes: takes.__name__
)
def test_a_service_that_queues_is_kept_busy_as_its_capacity_halves_and_doubles(
    takes: Takes, seed: int
) -> None:
    seen = adapted(Service(servers=phases(100, 50, 200), takes=takes), seed)

    for phase, servers in enumerate((100, 50, 200)):
        answered, latency = best(takes, servers, 0.0)
        assert seen.answered(*settled(phase)) > SHARE * answered
        assert seen.latency(*settled(phase)) < 2 * latency


@pytest.mark.parametrize(("reject_after", "seed"), [(0.001, 1), (0.01, 2)])
@pytest.mark.parametrize(
    "takes", [constant, noisy, with_slow_ones], ids=lambda takes: takes.__name__
)
def test_a_service_that_rejects_is_kept_busy_and_rejects_little(
    takes: Takes, reject_after: float, seed: int
) -> None:
    service = Service(
        servers=phases(100, 50, 200), takes=takes, rejects=True, reject_after=reject_after
    )
    seen = adapted(service, seed)

    for phase, servers in enumerate((100, 50, 200)):
        assert seen.answered(*settled(phase)) > SHARE * best(takes, servers, 0.0)[0]
        assert seen.rejected(*settled(phase)) < 0.05


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rejects", [False, True])
def test_a_service_that_becomes_slower_or_faster_for_good_is_kept_busy(
    rejects: bool, seed: int
) -> None:
    service = Service(servers=lambda _now: 100, takes=slower_then_faster, rejects=rejects)
    seen = adapted(service, seed)

    for phase in range(3):
        answered, latency = best(slower_then_faster, 100, phase * EACH)
        assert seen.answered(*settled(phase)) > SHARE * answered
        assert seen.latency(*settled(phase)) < 2 * latency


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rejects", [False, True])
def test_a_service_that_breaks_down_to_a_tenth_is_followed_down_and_up_again(
    rejects: bool, seed: int
) -> None:
    seen = adapted(Service(servers=phases(200, 20, 200), takes=noisy, rejects=rejects), seed)

    for phase, servers in enumerate((200, 20, 200)):
        answered, latency = best(noisy, servers, 0.0)
        assert seen.answered(*settled(phase)) > SHARE * answered
        assert seen.latency(*settled(phase)) < 2 * latency


@pytest.mark.parametrize("seed", SEEDS)
def test_a_small_service_is_kept_busy_with_a_short_queue(seed: int) -> None:
    each = 5.0  # a small service answers too few calls in less
    seen = adapted(Service(servers=phases(4, 2, 8, each=each), takes=noisy), seed, each=each)

    for phase, servers in enumerate((4, 2, 8)):
        answered, latency = best(noisy, servers, 0.0)
        assert seen.answered(*settled(phase, each)) > SHARE * answered
        assert seen.latency(*settled(phase, each)) < 3 * latency


@pytest.mark.parametrize("seed", SEEDS)
def test_a_start_that_is_far_too_high_is_corrected(seed: int) -> None:
    seen = adapted(Service(servers=lambda _now: 5, takes=noisy), seed, 2, start=100)

    answered, latency = best(noisy, 5, 0.0)
    assert seen.answered(*settled(1)) > SHARE * answered
    assert seen.latency(*settled(1)) < 2 * latency


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_that_do_not_depend_on_the_load_keep_most_of_the_throughput(seed: int) -> None:
    seen = adapted(Service(servers=lambda _now: 100, takes=noisy, fails=0.1), seed, 2)

    assert seen.answered(*settled(1)) > SHARE * 0.9 * best(noisy, 100, 0.0)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_limit_does_not_grow_beyond_what_the_step_uses(seed: int) -> None:
    limit = AdaptiveLimiter(start=10, least=1, most=1000)
    service = Service(servers=lambda _now: 100, takes=noisy)
    seen = Simulation(service, limit, seed, wanted=20).run(5.0)

    assert max(seen.limits(0, 5)) < 50


def uniform(_now: float, random: Random) -> float:
    return random.uniform(0.01, 0.03)


@pytest.mark.parametrize("rejects", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_services_of_the_benchmark_are_kept_busy_including_the_search(
    rejects: bool, seed: int
) -> None:
    each, servers = 4.0, (100, 50, 200)
    service = Service(
        servers=lambda now: servers[min(int(now / each), 2)],
        takes=uniform,
        rejects=rejects,
        reject_after=0.005,
    )
    limit = AdaptiveLimiter(start=10, least=1, most=1000)
    seen = Simulation(service, limit, seed).run(3 * each)

    assert seen.answered(0, 3 * each) > SHARE * sum(servers) / 3 / 0.02
    assert seen.rejected(0, 3 * each) < 0.05
