"""The best of each key: straight and with a restore after each step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import OperatorError
from aflow.operators.base import StateSize
from aflow.operators.top import TopOperator
from aflow.testing import Mode, OperatorHarness

all_modes = pytest.mark.parametrize("mode", Mode)


@dataclass(frozen=True)
class Score:
    player: str
    points: int


Harness = OperatorHarness[Score, tuple[Score, ...]]


def harness(mode: Mode = Mode.STRAIGHT, n: int = 2) -> Harness:
    return OperatorHarness(
        lambda: TopOperator(n, lambda score: score.points, of=Score),
        key=lambda score: score.player,
        mode=mode,
    )


@all_modes
def test_the_ranking_is_emitted_whenever_it_changes(mode: Mode) -> None:
    step = harness(mode)

    for points in (3, 5, 1, 4):
        step.push(Score("ann", points), points)

    assert [[score.points for score in ranking] for ranking in step.values] == [
        [3],
        [5, 3],
        [5, 4],
    ]


@all_modes
def test_each_key_has_a_ranking_of_its_own_and_no_more_than_n_records(mode: Mode) -> None:
    step = harness(mode, n=1)

    for points in range(20):
        step.push(Score("ann", points))
        step.push(Score("bob", -points))

    assert step.values[-1] == (Score("ann", 19),)
    assert step.values.count((Score("bob", 0),)) == 1
    assert step.size == StateSize(2)


def test_of_equals_the_earlier_is_better() -> None:
    step: OperatorHarness[tuple[str, int], tuple[tuple[str, int], ...]] = OperatorHarness(
        lambda: TopOperator(2, lambda pair: pair[1]), key=lambda pair: 0
    )

    step.push_batch([("first", 1), ("second", 1), ("third", 1)])

    assert step.values == [(("first", 1),), (("first", 1), ("second", 1))]


def test_a_function_that_fails_is_named_with_its_record() -> None:
    step: OperatorHarness[str, tuple[str, ...]] = OperatorHarness(
        lambda: TopOperator(2, int), key=lambda value: 0, name="best"
    )

    with pytest.raises(OperatorError, match="best") as caught:
        step.push_batch(["1", "two"])

    assert caught.value.record == "two"


@given(
    points=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    n=st.integers(1, 5),
    mode=st.sampled_from(Mode),
)
def test_the_last_ranking_is_that_of_a_stable_sort(points: list[int], n: int, mode: Mode) -> None:
    step: OperatorHarness[tuple[int, int], tuple[tuple[int, int], ...]] = OperatorHarness(
        lambda: TopOperator(n, lambda pair: pair[1]), key=lambda pair: 0, mode=mode
    )
    numbered = list(enumerate(points))

    for pair in numbered:
        step.push(pair)

    assert step.values[-1] == tuple(sorted(numbered, key=lambda pair: -pair[1])[:n])


@all_modes
@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([math.nan, 1.0, 2.0, 3.0], [3.0, 2.0]),
        ([1.0, math.nan, 2.0, 3.0], [3.0, 2.0]),
        ([2.0, 3.0, math.nan], [3.0, 2.0]),
        ([math.nan, 1.0], [1.0, math.nan]),
    ],
    ids=["first", "between", "last", "there is nothing else"],
)
def test_nan_is_below_everything_else_at_any_position(
    mode: Mode, scores: list[float], best: list[float]
) -> None:
    step: OperatorHarness[float, tuple[float, ...]] = OperatorHarness(
        lambda: TopOperator(2, lambda score: score), key=lambda score: 0, mode=mode
    )

    for score in scores:
        step.push(score)

    assert list(map(str, step.values[-1])) == list(map(str, best))


def test_a_shorter_ranking_continues_with_the_best_of_a_longer_one() -> None:
    old = harness(n=3)
    old.push_batch([Score("ann", points) for points in (5, 4, 3)])
    snapshot = old.snapshot()
    assert snapshot is not None
    new = harness(n=2)

    new.restore(snapshot)
    new.push_batch([Score("ann", points) for points in (1, 6)])

    assert new.values == [(Score("ann", 6), Score("ann", 5))]
