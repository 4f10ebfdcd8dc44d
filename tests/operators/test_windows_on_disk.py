"""Windows on disk: captures, restores with another parallelism, and snapshots that another backend continues."""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.windows.triggers import Count
from aflow.model.time import MAX_TIMESTAMP, TimeDomain
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk, StateBackend
from aflow.state.disk.window_timers import DiskWindowTimers
from aflow.state.snapshot import replay
from tests.operators import test_captures as captures
from tests.operators.backends import ENGINES, using
from tests.operators.driver import Driver
from tests.operators.test_captures import (
    NOON,
    OPERATORS,
    SAME_NOON,
    Advance,
    Life,
    OfKeyAndWindow,
    Records,
    Restart,
    Step,
    check_changes_replayed,
    entries,
    stories,
)
from tests.operators.test_uneven_restores import OPERATORS as UNEVEN
from tests.operators.test_uneven_restores import STORIES, check_restored
from tests.operators.test_uneven_restores import Step as UnevenStep

#: Steps whose windows may be on disk.
ON_DISK = ("tumbling", "sliding", "panes", "sessions", "general", "co-group")


@pytest.fixture(autouse=True, scope="module")
def on_disk() -> Iterator[OnDisk]:
    with using("disk") as chosen:
        assert isinstance(chosen, OnDisk)
        yield chosen


STEPS = [one for one in OPERATORS if one.startswith(ON_DISK)]
every_step = pytest.mark.parametrize("name", STEPS)


@pytest.mark.slow
# Changes remove expired rows on disk some time after the expiry, and not at once.
@pytest.mark.parametrize("name", [one for one in STEPS if one != "general, ttl"])
@given(
    story=st.one_of(
        stories("abcde"), stories([1, True, 1.0, 2]), stories([NOON, SAME_NOON, ("a", True)])
    )
)
@settings(max_examples=30, deadline=None)
def test_replayed_changes_are_complete(name: str, story: list[Step]) -> None:
    check_changes_replayed(name, story)


@every_step
def test_only_changed_keys_are_captured(name: str) -> None:
    captures.test_only_changed_keys_are_captured(name)


@every_step
def test_a_capture_does_not_change_with_the_operator(name: str) -> None:
    captures.test_a_capture_does_not_change_with_the_operator(name)


@every_step
def test_a_checkpoint_after_a_snapshot_holds_the_changes_before_the_snapshot(name: str) -> None:
    captures.test_a_checkpoint_after_a_snapshot_holds_the_changes_before_the_snapshot(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in UNEVEN if one.startswith(ON_DISK)])
@given(
    before=STORIES,
    between=STORIES,
    after=STORIES,
    parallelism=st.tuples(st.integers(2, 3), st.integers(1, 4), st.integers(1, 4)),
)
@settings(max_examples=20, deadline=None)
def test_a_step_restored_from_subtasks_with_different_watermarks_emits_the_same_results(
    name: str,
    before: list[UnevenStep],
    between: list[UnevenStep],
    after: list[UnevenStep],
    parallelism: tuple[int, int, int],
) -> None:
    check_restored(name, before, between, after, parallelism)


class Switched(Life):
    """Operators that replace each other, each with the other backend."""

    def __init__(self, name: str, first: StateBackend, second: StateBackend) -> None:
        self._backends = [second, first]
        super().__init__(lambda: OPERATORS[name]())
        self.driver = self._next()

    def live(self, step: Step) -> None:
        if isinstance(step, Restart):
            self.capture()
            clock = self.driver.time
            stored = self.stored()
            self.driver.close()
            self.driver = self._next().restored(stored)
            self.driver.time.at = clock.at
        else:
            super().live(step)

    def _next(self) -> Driver:
        self._backends.reverse()
        return Driver(self._make, backend=self._backends[0])


@pytest.mark.slow
@every_step
@given(story=stories("abcde"))
@settings(max_examples=25, deadline=None)
def test_a_snapshot_is_continued_by_another_backend(
    name: str, on_disk: OnDisk, story: list[Step]
) -> None:
    check_continued(name, on_disk, story)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@every_step
@given(story=stories("abcde"))
@settings(max_examples=6, deadline=None)
def test_each_database_stores_the_same(name: str, engine: DiskEngine, story: list[Step]) -> None:
    with using(engine) as chosen:
        check_continued(name, chosen, story)


def check_continued(name: str, engine: StateBackend, story: list[Step]) -> None:
    in_memory = Switched(name, InMemory(), InMemory())
    others = [Switched(name, InMemory(), engine), Switched(name, engine, InMemory())]

    for step in [*story, Restart(), Advance(3), Restart(), Records([("a", 1, 5)], right=False)]:
        expected, state = lived(in_memory, step), entries(in_memory.driver.snapshot())
        for other in others:
            assert lived(other, step) == expected
            assert entries(other.driver.snapshot()) == state

    expected = lived(in_memory, Advance(MAX_TIMESTAMP - in_memory.now))
    assert [lived(one, Advance(MAX_TIMESTAMP - one.now)) for one in others] == [expected] * 2


def lived(life: Switched, step: Step) -> tuple[Bag[Any], Bag[Any]]:
    """Return the results of a step, and its late records."""
    if isinstance(step, Advance) and life.now + step.by == MAX_TIMESTAMP:
        life.driver.watermark(MAX_TIMESTAMP)
    else:
        life.live(step)
    late = Bag(life.driver.side_records("late"))
    life.driver.recorder.sides.clear()
    return Bag(map(repr, life.driver.new_records())), late


@pytest.mark.parametrize("name", ["general, records", "general, merging", "co-group, sessions"])
def test_few_windows_and_timers_of_many_keys_are_in_memory(name: str) -> None:
    life = Life(OPERATORS[name])
    keys = [f"key {number}" for number in range(400)]
    for start in range(0, len(keys), 4):
        life.live(Records([(key, 1, 3) for key in keys[start : start + 4]], right=False))
    operator = life.driver.operator
    assert isinstance(operator, WindowOperator)

    in_memory = list(operator._windows.of(None))  # pyright: ignore[reportPrivateUsage]
    timers = operator._timers.queues[TimeDomain.EVENT]  # pyright: ignore[reportPrivateUsage]
    assert isinstance(timers, DiskWindowTimers)
    near = timers._near.keys()  # pyright: ignore[reportPrivateUsage]

    assert len(in_memory) <= 8
    assert len(near) <= 2
    assert operator.size().event_timers >= len(keys)
    life.driver.watermark(MAX_TIMESTAMP)
    assert {one.key for one in life.driver.new_values()} == set(keys)


def test_changed_state_of_windows_is_captured_beside_windows_on_disk() -> None:
    life = Life(captures.windows(function=OfKeyAndWindow(), trigger=Count(2), key_type=str))
    for number in range(100):
        life.live(Records([(f"key {number}", 1, 1)] * 2, right=False))
    whole = life.driver.operator.checkpoint(changes=True)
    life.live(Records([("key 3", 7, 2)] * 2, right=False))
    changes = life.driver.operator.checkpoint(changes=True)
    assert whole is not None
    assert changes is not None

    chain = [whole.encoded(), changes.encoded()]

    assert [one.complete for one in chain] == [True, False]
    assert entries(replay(chain)) == entries(life.driver.snapshot())


def test_the_folder_of_a_closed_step_is_removed(on_disk: OnDisk) -> None:
    assert on_disk.folder is not None
    before = set(on_disk.folder.iterdir())
    life = Life(OPERATORS["sessions"])
    life.live(Records([(key, 1, 0) for key in "abcd"], right=False))
    during = set(on_disk.folder.iterdir()) - before

    life.driver.close()

    assert len(during) == 1
    assert not any(folder.exists() for folder in during)
