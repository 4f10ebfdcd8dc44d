"""What goes wrong is known before: by seed, question, and how often it was asked."""

from __future__ import annotations

from statistics import median

import pytest

from flights.lookups.faults import Ending, Faults, faultless

QUESTIONS = [f"JFK {hour}" for hour in range(5_000)]


def endings(faults: Faults, asked_before: int = 0) -> list[Ending]:
    return [faults.outcome(question, asked_before).ending for question in QUESTIONS]


def test_the_same_seed_has_the_same_faults() -> None:
    assert [Faults(seed=1).outcome(one, 0) for one in QUESTIONS] == [
        Faults(seed=1).outcome(one, 0) for one in QUESTIONS
    ]


def test_another_seed_and_another_attempt_have_other_faults() -> None:
    first = endings(Faults(seed=1))

    assert endings(Faults(seed=2)) != first
    assert endings(Faults(seed=1), asked_before=1) != first


@pytest.mark.parametrize(("ending", "share"), [(Ending.FAILED, 0.02), (Ending.DROPPED, 0.01)])
def test_faults_are_as_frequent_as_is_said(ending: Ending, share: float) -> None:
    found = endings(Faults(seed=1)).count(ending)

    assert found == pytest.approx(share * len(QUESTIONS), rel=0.3)


def test_answers_take_about_as_long_as_is_said_and_a_few_are_slow() -> None:
    fates = [Faults(seed=1).outcome(question, 0) for question in QUESTIONS]
    slow = [fate.seconds for fate in fates if fate.slow]

    assert median(fate.seconds for fate in fates) == pytest.approx(0.010, rel=0.05)
    assert len(slow) == pytest.approx(0.01 * len(QUESTIONS), rel=0.3)
    assert median(slow) == pytest.approx(0.100, rel=0.3)


def test_a_question_that_is_asked_again_and_again_is_answered_at_last() -> None:
    faults = Faults(seed=1)

    for question in QUESTIONS:
        assert any(faults.outcome(question, n).ending is Ending.ANSWERED for n in range(6)), (
            question
        )


def test_a_service_without_faults_answers_all() -> None:
    assert set(endings(faultless())) == {Ending.ANSWERED}
