"""The records that evictors keep when a window fires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow.machines.windows.evictors import Count, Delta, Element, Evictor, Time
from aflow.model.windows import TimeWindow

WINDOW = TimeWindow(-100, 100)
FIVE = timedelta(milliseconds=5)


def above(value: float, newest: float) -> float:
    return newest - value


def elements(*times: int) -> list[Element[int]]:
    """Return records whose values are their timestamps."""
    return [Element(at, at) for at in times]


class Now:
    """An ``EvictorContext``, which no evictor of aflow uses."""

    key = "key"
    watermark = 0
    processing_time = 0


def times(kept: Sequence[Element[Any]]) -> list[int]:
    return [element.timestamp for element in kept]


def before(evictor: Evictor[Any], *at: int) -> list[int]:
    return times(evictor.before(elements(*at), WINDOW, Now()))


def test_count_keeps_the_last_in_order_of_arrival_whatever_their_timestamps() -> None:
    assert before(Count(2), 9, 1, 5, 3) == [5, 3]


def test_count_keeps_all_if_there_are_no_more() -> None:
    assert before(Count(3), 3, 1, 2) == [3, 1, 2]
    assert before(Count(3), 3) == [3]


def test_time_keeps_records_less_than_its_size_older_than_the_newest() -> None:
    assert before(Time(FIVE), 4, 5, 6, 10) == [6, 10]


def test_time_takes_the_newest_record_not_the_last_to_arrive() -> None:
    assert before(Time(FIVE), 4, 10, 6, 5) == [10, 6]


def test_time_keeps_all_records_of_the_newest_moment() -> None:
    assert before(Time(timedelta(milliseconds=1)), 7, 7, 6, 7) == [7, 7, 7]


def test_time_supports_timestamps_before_1970() -> None:
    assert before(Time(FIVE), -10, -4, -6, -5, -9) == [-4, -6, -5]
    assert before(Time(FIVE), -4, 0, 1) == [0, 1]
    assert before(Time(FIVE), -3, 0, 1) == [-3, 0, 1]


def test_delta_keeps_records_below_its_threshold_from_the_last_to_arrive() -> None:
    evictor = Delta[float](3, above)

    assert before(evictor, 1, 7, 8, 9, 10) == [8, 9, 10]


def test_delta_drops_records_at_its_threshold() -> None:
    assert before(Delta[float](3, above), 7, 10) == [10]


def test_delta_measures_from_the_last_to_arrive_not_from_the_newest_or_greatest() -> None:
    assert before(Delta[float](3, above), 10, 1, 4) == [10, 4]


def test_delta_drops_the_last_record_too_if_it_is_not_below_the_threshold_itself() -> None:
    assert before(Delta[float](0, above), 5, 5) == []


def test_delta_compares_values_not_timestamps() -> None:
    some = [Element("long", 1), Element("no", 2), Element("it", 3)]
    evictor = Delta[str](1, lambda value, newest: abs(len(value) - len(newest)))

    assert times(evictor.before(some, WINDOW, Now())) == [2, 3]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "make",
    [partial(Count, 1), partial(Time, FIVE), partial(Delta[float], 5, above)],
    ids=["Count", "Time", "Delta"],
)
def test_records_are_dropped_on_one_side_of_the_function_only(
    make: Callable[..., Evictor[Any]], after: bool
) -> None:
    evictor, some = make(after_function=after), elements(1, 10)

    shown = evictor.before(some, WINDOW, Now())
    left = evictor.after(shown, WINDOW, Now())

    assert times(shown) == ([1, 10] if after else [10])
    assert times(left) == [10]
    assert times(some) == [1, 10]
    # The other method keeps all records.
    assert times((evictor.before if after else evictor.after)(some, WINDOW, Now())) == [1, 10]
    assert evictor.before([], WINDOW, Now()) == []
    assert evictor.after([], WINDOW, Now()) == []


def test_an_evictor_without_methods_keeps_all() -> None:
    class Keeps(Evictor[int]):
        pass

    some = elements(3, 1)

    assert Keeps().before(some, WINDOW, Now()) == Keeps().after(some, WINDOW, Now()) == some


@given(
    st.lists(st.integers(-20, 20)).map(lambda at: elements(*at)),
    st.sampled_from(
        [
            *(Count(n) for n in (1, 2, 5)),
            *(Time(timedelta(milliseconds=size)) for size in (1, 3, 50)),
            *(Delta[float](threshold, above) for threshold in (-3, 0.5, 4)),
        ]
    ),
)
def test_kept_records_are_in_order_and_a_second_eviction_drops_no_more(
    some: list[Element[int]], evictor: Evictor[Any]
) -> None:
    kept = evictor.before(some, WINDOW, Now())

    left = iter(some)
    assert all(any(element is one for one in left) for element in kept)
    # Delta may drop the newest record; then it compares with another one.
    if not isinstance(evictor, Delta) or not some or (kept and kept[-1] is some[-1]):
        assert list(evictor.before(kept, WINDOW, Now())) == list(kept)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Count(0), r"evictors.Count keeps a number of records from 1 on, not 0"),
        (lambda: Count(-1), r"evictors.Count keeps a number of records from 1 on, not -1"),
        (lambda: Count(True), r"evictors.Count keeps .*, not True"),
        (lambda: Count(cast("int", "2")), r"evictors.Count keeps .*, not '2'"),
        (lambda: Time(timedelta(0)), r"evictors.Time size must be longer than zero"),
        (lambda: Time(-FIVE), r"evictors.Time size must be longer than zero"),
        (lambda: Time(cast("Any", 5)), r"evictors.Time size must be a timedelta, not int: 5"),
        (lambda: Delta(cast("Any", None), above), r"threshold of evictors.Delta is .*, not None"),
        (lambda: Delta(float("nan"), above), r"threshold of evictors.Delta is .*, not nan"),
        (lambda: Delta(3, cast("Any", 3)), r"delta of evictors.Delta is a function .*, not 3"),
    ],
    ids=range(10),
)
def test_invalid_arguments_of_evictors_are_refused_by_name(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        make()
