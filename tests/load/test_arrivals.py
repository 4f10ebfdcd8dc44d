"""Schedules of arrivals: the intended times, and their counts."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.bench import (
    ArrivalSchedule,
    ConstantRate,
    PoissonArrivals,
    RampedRate,
    RecordedArrivals,
    SteppedRate,
)
from aflow.bench.arrivals import OfferedCount, ScheduleCursor
from aflow.errors import FlowDefinitionError

rates = st.floats(0.5, 3000)
durations = st.integers(100, 3000).map(lambda ms: timedelta(milliseconds=ms))
schedules: st.SearchStrategy[ArrivalSchedule] = st.one_of(
    st.builds(ConstantRate, rates),
    st.builds(RampedRate, st.floats(0, 3000), rates, durations),
    st.builds(SteppedRate, st.lists(st.tuples(rates, durations), min_size=1, max_size=3)),
    st.builds(PoissonArrivals, rates, st.integers(0, 9)),
    st.builds(
        RecordedArrivals,
        st.lists(st.floats(0, 5), min_size=1, max_size=50).map(sorted),
        st.floats(0.5, 20),
    ),
)


def times_of(schedule: ArrivalSchedule, seconds: float) -> list[float]:
    return [time for block in schedule.blocks(seconds) for time in block]


def test_a_constant_rate_has_equal_distances() -> None:
    assert times_of(ConstantRate(4), 1.0) == [0.0, 0.25, 0.5, 0.75]


def test_a_ramp_offers_the_mean_of_its_rates_and_then_the_last_one() -> None:
    ramp = RampedRate(0, 100, timedelta(seconds=2))

    times = times_of(ramp, 3.0)

    assert sum(1 for one in times if one < 2) == 100
    assert sum(1 for one in times if one >= 2) == 100
    assert times[25] == pytest.approx(1.0)  # a quarter of the records in half of the time


def test_steps_follow_each_other_and_the_last_one_continues() -> None:
    steps = SteppedRate([(2, timedelta(seconds=1)), (4, timedelta(seconds=1))])

    assert times_of(steps, 2.5) == [0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25]


def test_recorded_times_are_replayed_faster() -> None:
    recorded = RecordedArrivals([100.0, 101.0, 105.0], speed=10)

    assert times_of(recorded, 1.0) == pytest.approx([0.0, 0.1, 0.5])
    assert times_of(recorded, 0.3) == pytest.approx([0.0, 0.1])


def test_poisson_arrivals_have_the_rate_and_exponential_distances() -> None:
    times = times_of(PoissonArrivals(1000, seed=3), 20.0)

    gaps = sorted(following - one for one, following in pairwise(times))
    assert len(times) == pytest.approx(20_000, rel=0.03)
    # Of an exponential distribution: the median is ln 2 times the mean.
    assert gaps[len(gaps) // 2] * 1000 == pytest.approx(0.693, rel=0.05)


def test_poisson_arrivals_of_one_seed_are_the_same() -> None:
    one, other = PoissonArrivals(50, seed=3), PoissonArrivals(50, seed=4)

    assert times_of(one, 5) == times_of(one, 5) != times_of(other, 5)


@given(schedules, st.floats(0.1, 4))
def test_times_ascend_within_the_schedule(schedule: ArrivalSchedule, seconds: float) -> None:
    times = times_of(schedule, seconds)

    assert all(one <= following for one, following in pairwise(times))
    assert all(0 <= one < seconds + 1e-6 for one in times)
    assert all(schedule.blocks(seconds))


@given(schedules, st.floats(0.1, 4), st.lists(st.floats(0, 5), max_size=20), st.integers(1, 2000))
def test_a_cursor_takes_each_time_once_when_it_is_due(
    schedule: ArrivalSchedule, seconds: float, moments: list[float], limit: int
) -> None:
    cursor = ScheduleCursor(schedule, seconds)
    expected = times_of(schedule, seconds)

    taken: list[float] = []
    for now in sorted(moments):
        some = cursor.take(now, limit)
        assert len(some) <= limit
        assert all(one <= now for one in some)
        taken += some
        if len(some) < limit and cursor.next_at is not None:
            assert cursor.next_at > now

    assert taken == expected[: len(taken)]
    assert cursor.taken == len(taken)


@given(schedules, st.floats(0.1, 4), st.floats(0, 5))
def test_the_count_of_due_records_needs_none_to_be_taken(
    schedule: ArrivalSchedule, seconds: float, now: float
) -> None:
    times = times_of(schedule, seconds)

    counted = OfferedCount(schedule, seconds).until(now)

    # A time that is equal but for rounding may count or not.
    least = sum(1 for one in times if one < now - 1e-6)
    most = sum(1 for one in times if one <= now + 1e-6)
    assert least <= counted <= max(most, least)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantRate(0), "above 0"),
        (lambda: ConstantRate(float("inf")), "above 0"),
        (lambda: RampedRate(-1, 5, timedelta(seconds=1)), "from 0 on"),
        (lambda: RampedRate(1, 5, timedelta(0)), "over of RampedRate"),
        (lambda: SteppedRate([]), "at least one pair"),
        (lambda: RecordedArrivals([]), "at least one time"),
        (lambda: RecordedArrivals([2.0, 1.0]), "number 1 is 1.0, after 2.0"),
        (lambda: RecordedArrivals([1.0], speed=-1), "a factor"),
    ],
    ids=range(8),
)
def test_invalid_schedules_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(FlowDefinitionError, match=message):
        make()
