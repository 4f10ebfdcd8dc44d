"""Verdict of a complete run, and of a run that was stopped."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

import aflow as af
from flights.lookups.pipeline import AHEAD, COMPARISON, LOOKUP, MISMATCH
from flights.lookups.report import Summary
from flights.lookups.service import Counts

CALLS = af.metrics.CallMetrics(**{one.name: 0 for one in fields(af.metrics.CallMetrics)})


def step(
    name: str, records_in: int = 0, records_out: int = 0, **sides: int
) -> af.metrics.StepMetrics:
    return af.metrics.StepMetrics(
        name=name,
        records_in=records_in,
        batches_in=0,
        records_out=records_out,
        sides=sides,
        watermark=None,
        lag_ms=None,
        calls=CALLS if name == LOOKUP else None,
    )


def outcome(
    *, answered: int = 10, unanswered: int = 0, weather_read: int = 5, **sides: int
) -> Summary:
    """Return the summary of ten flights and five lines of weather, one of them malformed."""
    steps = [
        step("flights", records_out=10),
        step("weather", records_out=weather_read - 1, malformed=1),
        step(LOOKUP),
        step(COMPARISON, records_in=answered, **sides),
        step("unanswered", records_in=unanswered),
        step("malformed", records_in=1),
    ]
    metrics = af.metrics.JobMetrics(steps={one.name: one for one in steps}, tasks=[])
    return Summary.of(metrics, Counts(), Counter(), weather=5)


def test_a_run_is_right_if_all_answers_equal_the_join() -> None:
    assert outcome().is_correct


@pytest.mark.parametrize("name", [MISMATCH.name, AHEAD.name])
def test_a_run_with_a_different_answer_is_wrong(name: str) -> None:
    found = outcome(**{name: 1})

    assert (found.mismatches, found.ahead) == (1, 0)
    assert not found.is_correct


def test_a_run_with_an_unanswered_flight_is_wrong() -> None:
    assert not outcome(answered=9, unanswered=1).is_correct


def test_a_run_with_a_missing_flight_is_wrong() -> None:
    assert not outcome(answered=9).is_correct


def test_after_a_stop_flights_ahead_of_the_weather_are_not_compared() -> None:
    found = outcome(weather_read=4, **{AHEAD.name: 3})

    assert (found.mismatches, found.ahead) == (0, 3)
    assert found.is_correct


def test_after_a_stop_other_mismatches_still_count() -> None:
    found = outcome(weather_read=4, **{AHEAD.name: 3, MISMATCH.name: 2})

    assert (found.mismatches, found.ahead) == (2, 3)
    assert not found.is_correct
