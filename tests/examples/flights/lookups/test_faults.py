"""Faults are determined by seed, question and number of attempts."""

from __future__ import annotations

from statistics import median

import pytest

from flights.lookups.faults import Ending, Faults, faultless

QUESTIONS = [f"JFK {hour}" for hour in range(5_000)]


def endings(faults: Faults, earlier: int = 0) -> list[Ending]:
    return [faults.outcome(question, earlier).ending for question in QUESTIONS]


def test_the_same_seed_has_the_same_faults() -> None:
    assert [Faults(seed=1).outcome(one, 0) for one in QUESTIONS] == [
        Faults(seed=1).outcome(one, 0) for one in QUESTIONS
    ]


def test_another_seed_and_another_attempt_have_other_faults() -> None:
    first = endings(Faults(seed=1))

    assert endings(Faults(seed=2)) != first
    assert endings(Faults(seed=1), earlier=1) != first


@pytest.mark.parametrize(("ending", "share"), [(Ending.FAILED, 0.02), (Ending.DROPPED, 0.01)])
def test_faults_have_their_configured_shares(ending: Ending, share: float) -> None:
    found = endings(Faults(seed=1)).count(ending)

    assert found == pytest.approx(share * len(QUESTIONS), rel=0.3)


def test_latencies_have_the_configured_median_and_share_of_slow_ones() -> None:
    outcomes = [Faults(seed=1).outcome(question, 0) for question in QUESTIONS]
    slow = [one.seconds for one in outcomes if one.slow]

    assert median(one.seconds for one in outcomes) == pytest.approx(0.010, rel=0.05)
    assert len(slow) == pytest.approx(0.01 * len(QUESTIONS), rel=0.3)
    assert median(slow) == pytest.approx(0.100, rel=0.3)


def test_each_question_is_answered_after_some_attempts() -> None:
    faults = Faults(seed=1)

    for question in QUESTIONS:
        assert any(faults.outcome(question, n).ending is Ending.ANSWERED for n in range(6)), (
            question
        )


def test_without_faults_all_questions_are_answered() -> None:
    assert set(endings(faultless())) == {Ending.ANSWERED}
