"""A capture in pieces has the state of its moment, whatever happens between the pieces, in each kind of operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.state.backend_choice import DiskEngine
from aflow.state.snapshot import Captured, OperatorSnapshot, replay
from tests.gradual import gradual_captures
from tests.operators.backends import close_harnesses, using
from tests.operators.driver import Driver
from tests.operators.test_captures import (
    OPERATORS,
    READ_ANEW,
    Advance,
    Life,
    Records,
    descriptions,
    entries,
)


@pytest.fixture(
    autouse=True,
    scope="module",
    params=[pytest.param(None, id="memory"), pytest.param(DiskEngine.SQLITE, id="sqlite")],
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
        chain: list[OperatorSnapshot] = []
        for captured in self._captured:
            snapshot = captured.encoded()
            if snapshot.complete:
                chain.clear()
            chain.append(snapshot)
        return replay(chain)


#: A row that expires between two pieces may be missing.
EXPIRING = {"general, ttl"}


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in EXPIRING])
@given(before=STORIES, between=STORIES, after=STORIES)
@settings(max_examples=15, deadline=None)
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
    if name in READ_ANEW:
        stored = Driver(OPERATORS[name]).restored(stored).snapshot()
        expected = Driver(OPERATORS[name]).restored(expected).snapshot()
    assert entries(stored) == entries(expected)
    assert descriptions(stored) >= descriptions(expected)
    assert stored.operator == expected.operator
    assert stored.members == expected.members
