"""Retries of failed calls, and their delays."""

from __future__ import annotations

from asyncio import CancelledError
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.retry import Attempt, Retry, RetryPolicy, pause

RANDOM_NUMBERS = st.floats(0, 1)
DELAYS = st.timedeltas(timedelta(0), timedelta(days=400)).map(
    lambda delay: timedelta(milliseconds=delay // timedelta(milliseconds=1))
)
FACTORS = st.floats(1, 1e308) | st.integers(1, 10**400)
#: Floats know delays to a microsecond, which is what a timedelta rounds to.
ROUNDING = timedelta(microseconds=20)


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=count)


def failed(number: int = 1, error: BaseException | None = None) -> Attempt:
    return Attempt(number=number, error=error or RuntimeError("no"))


def delays(retry: Retry, attempts: int, random: float = 0.5) -> list[timedelta | None]:
    return [retry.again(failed(number), random) for number in range(1, attempts + 1)]


def test_attempts_count_the_first_call() -> None:
    assert delays(Retry(attempts=3, delay=ms(10)), 3) == [ms(10), ms(10), None]


def test_with_one_attempt_nothing_is_called_again() -> None:
    assert delays(Retry(attempts=1), 1) == [None]


def test_each_delay_is_the_factor_longer_than_the_one_before() -> None:
    retry = Retry(attempts=5, delay=ms(10), factor=3)

    assert delays(retry, 4) == [ms(10), ms(30), ms(90), ms(270)]


def test_delays_grow_up_to_the_longest_one() -> None:
    retry = Retry(attempts=5, delay=ms(10), factor=3, max_delay=ms(50))

    assert delays(retry, 4) == [ms(10), ms(30), ms(50), ms(50)]


def test_jitter_makes_a_delay_shorter_or_longer_by_that_share_of_it() -> None:
    retry = Retry(delay=ms(100), jitter=0.2)

    assert [retry.again(failed(), random) for random in (0, 0.25, 0.5, 1)] == [
        ms(80),
        ms(90),
        ms(100),
        ms(120),
    ]


def test_without_a_longest_delay_delays_grow_up_to_a_day() -> None:
    retry = Retry(attempts=10**6, delay=ms(1), factor=10)

    assert retry.again(failed(10**5), 0.5) == timedelta(days=1)


def test_a_delay_of_more_than_a_day_is_kept() -> None:
    retry = Retry(delay=timedelta(days=3))

    assert retry.again(failed(), 0.5) == timedelta(days=3)


def test_no_delay_stays_none_however_often_it_is_multiplied() -> None:
    retry = Retry(attempts=10**6, delay=ms(0), factor=10)

    assert retry.again(failed(10**5), 0.5) == ms(0)


def test_the_longest_delay_there_is_has_room_for_jitter() -> None:
    longest = timedelta.max // ms(1) * ms(1)
    retry = Retry(delay=longest, max_delay=longest, jitter=1)

    assert retry.again(failed(), 1) == timedelta.max


@pytest.mark.slow
@settings(deadline=None)
@given(
    delay=DELAYS, factor=FACTORS, most=st.none() | DELAYS, jitter=st.floats(0, 1), data=st.data()
)
def test_a_delay_is_never_further_from_its_middle_than_jitter_allows(
    delay: timedelta,
    factor: float,
    most: timedelta | None,
    jitter: float,
    data: st.DataObject,
) -> None:
    most = most or None
    number, random = data.draw(st.integers(1, 2000)), data.draw(RANDOM_NUMBERS)
    retry = Retry(attempts=2001, delay=delay, factor=factor, max_delay=most, jitter=jitter)

    found = retry.again(failed(number), random)

    middle = Retry(attempts=2001, delay=delay, factor=factor, max_delay=most).again(
        failed(number), random
    )
    assert found is not None
    assert middle is not None
    assert min(delay, most or delay) - ROUNDING <= middle
    assert middle <= (most or max(delay, timedelta(days=1)))
    assert middle * (1 - jitter) - ROUNDING <= found <= middle * (1 + jitter) + ROUNDING


def test_only_errors_that_are_worth_it_are_tried_again() -> None:
    retry = Retry(on=(ConnectionError, TimeoutError))

    assert retry.again(failed(error=ConnectionResetError()), 0.5) is not None
    assert retry.again(failed(error=ValueError()), 0.5) is None


def test_a_function_may_say_which_errors_are_worth_it() -> None:
    retry = Retry(on=lambda error: "again" in str(error))

    assert retry.again(failed(error=ValueError("come again")), 0.5) is not None
    assert retry.again(failed(error=ValueError("no")), 0.5) is None


def test_a_cancelled_call_is_not_made_again_unless_that_is_said() -> None:
    assert Retry().again(failed(error=CancelledError()), 0.5) is None
    assert Retry(on=CancelledError).again(failed(error=CancelledError()), 0.5) is not None


def test_a_result_is_good_unless_it_is_said_to_be_none() -> None:
    nothing = Attempt(number=1, error=None, result=[])

    assert Retry().again(nothing, 0.5) is None
    assert Retry(on_result=lambda result: not result).again(nothing, 0.5) is not None


def test_a_result_of_the_last_attempt_is_taken_as_it_is() -> None:
    retry = Retry(attempts=2, on_result=lambda result: not result)

    assert retry.again(Attempt(number=2, error=None, result=[]), 0.5) is None


def test_on_result_is_not_called_for_an_error() -> None:
    def never(result: object) -> bool:
        raise AssertionError(result)

    assert Retry(on=ValueError, on_result=never).again(failed(error=KeyError()), 0.5) is None


def test_an_object_with_the_method_again_is_a_retry_policy() -> None:
    class Twice:
        # A policy may have its own names of the parameters: they are passed by position.
        def again(self, last: Attempt, chance: float) -> timedelta | None:
            return None if last.number > 1 else ms(1 + chance)

    policy: RetryPolicy = Twice()

    assert isinstance(Retry(), RetryPolicy)
    assert isinstance(policy, RetryPolicy)
    assert pause(policy, failed(), 1) == 2
    assert not isinstance(object(), RetryPolicy)


def test_the_former_keyword_of_the_random_number_is_refused() -> None:
    again: Any = Retry().again

    assert again(failed(), random=0.5) is not None
    with pytest.raises(TypeError, match="chance"):
        again(failed(), chance=0.5)


NAN = float("nan")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attempts": 0}, "Retry.attempts must be a whole number from 1 on .*, not 0"),
        ({"attempts": True}, "Retry.attempts must be a whole number from 1 on .*, not True"),
        ({"attempts": 2.0}, r"Retry.attempts must be a whole number from 1 on .*, not 2\.0"),
        ({"delay": 5}, "Retry.delay must be a timedelta, not int: 5"),
        ({"delay": ms(-1)}, "Retry.delay must not be negative"),
        ({"delay": ms(0.5)}, "Retry.delay must be whole milliseconds"),
        ({"max_delay": ms(0)}, "Retry.max_delay must be longer than zero"),
        ({"max_delay": 5}, "Retry.max_delay must be a timedelta, not int: 5"),
        ({"factor": 0.5}, r"Retry.factor must be a number from 1 on, not 0\.5"),
        ({"factor": NAN}, "Retry.factor must be a number from 1 on, not nan"),
        ({"factor": "2"}, "Retry.factor must be a number from 1 on, not '2'"),
        ({"factor": True}, "Retry.factor must be a number from 1 on, not True"),
        ({"jitter": 1.1}, r"Retry.jitter must be a share from 0 to 1, not 1\.1"),
        ({"jitter": -0.1}, r"Retry.jitter must be a share from 0 to 1, not -0\.1"),
        ({"jitter": NAN}, "Retry.jitter must be a share from 0 to 1, not nan"),
        ({"on": "TimeoutError"}, "Retry.on takes a class of errors.*not 'TimeoutError'"),
        ({"on": ()}, r"Retry.on takes a class of errors.*not \(\)"),
        ({"on": int}, "Retry.on takes a class of errors.*not <class 'int'>"),
        ({"on": (ValueError, int)}, "Retry.on takes a class of errors.*<class 'int'>"),
        ({"on": (callable,)}, r"Retry.on takes a class of errors.*not \(.*callable"),
        ({"on_result": []}, r"Retry.on_result takes a function, not \[\]"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=message):
        Retry(**wrong)
