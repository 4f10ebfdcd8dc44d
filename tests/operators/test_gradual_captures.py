"""A capture in pieces has the state of its moment, whatever happens between the pieces, in each kind of operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aflow.errors import CheckpointError
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedProcess, KeyedProcessOperator
from aflow.state.backend_choice import OnDisk
from aflow.state.snapshot import Captured, OperatorSnapshot
from aflow.state.specs import ValueState
from tests.gradual import gradual_captures
from tests.operators.backends import backend, close_harnesses, using
from tests.operators.driver import Driver
from tests.operators.test_captures import (
    OPERATORS,
    READ_ANEW,
    Advance,
    Life,
    Records,
    descriptions,
    entries,
    replayed,
)


@pytest.fixture(
    autouse=True,
    scope="module",
    params=[pytest.param("memory"), pytest.param("disk")],
)
def small_pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect every capture in pieces of one row, in memory or above a database."""
    with gradual_captures(), using(request.param, resident=4):
        yield


@dataclass(frozen=True)
class Gather:
    """Collect a piece of the last capture."""


Step = Records | Advance | Gather

EVENTS = st.tuples(st.sampled_from("abcdefg"), st.integers(0, 40), st.integers(-6, 12))
STORIES = st.lists(
    st.one_of(
        st.builds(Records, st.lists(EVENTS, min_size=1, max_size=5), st.booleans()),
        st.builds(Records, st.lists(EVENTS, min_size=1, max_size=5), st.booleans()),
        st.builds(Advance, st.integers(1, 9)),
        st.just(Gather()),
    ),
    max_size=8,
)


class Captures:
    """An operator that goes through stories, with a capture after each, which is collected in the following one."""

    def __init__(self, name: str) -> None:
        self.life = Life(OPERATORS[name])
        self._pieces: Iterator[None] = iter(())
        self._captured: list[Captured] = []

    def live(self, story: Sequence[Step]) -> None:
        for step in story:
            if isinstance(step, Gather):
                next(self._pieces, None)
            else:
                self.life.live(step)

    def capture(self, *, changes: bool) -> None:
        captured = self.life.driver.operator.capture(changes=changes)
        assert captured is not None
        self._captured.append(captured)
        self._pieces = captured.gather()

    def stored(self) -> OperatorSnapshot:
        """Return the chain of all captures, of which the last is not collected to its end."""
        return replayed(self._captured)


#: A row that expires between two pieces may be missing.
EXPIRING = {"general, ttl"}


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in EXPIRING])
@given(before=STORIES, between=STORIES, after=STORIES)
@settings(max_examples=15, deadline=None)
@example(
    before=[Records([("a", 0, 0)], right=False), Records([("a", 0, 0)], right=True)],
    between=[Advance(2)],
    after=[],
)
def test_captures_have_the_state_of_their_moment(
    name: str, before: list[Step], between: list[Step], after: list[Step]
) -> None:
    close_harnesses()  # of the former example
    captures, expected = Captures(name), Captures(name)
    captures.live(before)
    captures.capture(changes=False)
    captures.live(between)
    captures.capture(changes=True)
    captures.live(after)

    expected.live(before)
    expected.live(between)
    expected.capture(changes=False)

    assert_equal(name, captures.stored(), expected.stored())


def assert_equal(name: str, stored: OperatorSnapshot, expected: OperatorSnapshot) -> None:
    # Joins on disk leave expired records in the chain of changes; a restore drops them.
    if name in READ_ANEW or isinstance(backend(), OnDisk):
        stored = Driver(OPERATORS[name]).restored(stored).snapshot()
        expected = Driver(OPERATORS[name]).restored(expected).snapshot()
    assert entries(stored) == entries(expected)
    assert descriptions(stored) >= descriptions(expected)
    assert stored.operator == expected.operator
    assert stored.members == expected.members


class Latest(KeyedProcess[str, list[int], int]):
    """Stores the last value."""

    last = ValueState("last", of=list[int])

    def process(self, value: list[int], ctx: Context[str]) -> None:
        ctx.state(self.last).set(value)


def with_a_value_that_cannot_be_stored() -> Driver:
    """Return a step whose state of ``key 10`` cannot be encoded; it is not in the first piece of a capture."""
    driver = Driver(lambda: KeyedProcessOperator(Latest()))
    for number in range(12):
        driver.push([number], at=[0], keys=[f"key {number}"])
    driver.push([object()], at=[0], keys=["key 10"])
    driver.push([11], at=[0], keys=["key 11"])
    return driver


def test_a_capture_of_which_a_piece_failed_never_completes() -> None:
    driver = with_a_value_that_cannot_be_stored()

    captured = driver.operator.capture(changes=False)
    assert captured is not None

    with pytest.raises(CheckpointError, match="key 10"):
        driver.operator.capture(changes=False)
    with pytest.raises(CheckpointError, match="key 10"):
        captured.encoded()


def test_an_operator_whose_capture_fails_at_its_close_removes_its_database() -> None:
    with using("disk", resident=4) as chosen:
        assert isinstance(chosen, OnDisk)
        assert chosen.folder is not None
        driver = with_a_value_that_cannot_be_stored()
        captured = driver.operator.capture(changes=False)
        assert captured is not None
        assert len(list(chosen.folder.iterdir())) == 1

        with pytest.raises(CheckpointError, match="key 10"):
            driver.operator.close()

        assert list(chosen.folder.iterdir()) == []
