"""Copies of timers in pieces have the timers of the moment at which they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines import timer_copy
from aflow.machines.timer_copy import TimerCopy
from aflow.machines.timer_queue import TimerQueue
from aflow.machines.windows.window_timers import WindowTimers
from aflow.model.windows import TimeWindow

WINDOWS = (TimeWindow(0, 10), TimeWindow(10, 20))

Operation = tuple[str, int, str, int]
"""An action, a time, a key, and the number of a namespace or window."""

operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "due", "gather", "gather", "all"]),
        st.integers(0, 3),
        st.sampled_from("abcde"),
        st.integers(0, 1),
    ),
    max_size=60,
)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_copy, "_PIECE", 2)


class KeyQueue:
    """The queue of process functions."""

    def __init__(self) -> None:
        self.timers: TimerQueue[str, int] = TimerQueue()

    def apply(self, operation: Operation) -> None:
        """Change the queue."""
        what, time, key, number = operation
        if what == "add":
            self.timers.register(time, key, number)
        elif what == "remove":
            self.timers.delete(time, key, number)
        elif what == "due":
            list(self.timers.due(time))

    def present(self) -> list[tuple[Any, ...]]:
        """Return all timers."""
        return [tuple(timer) for timer in self.timers.entries()]


class WindowQueue:
    """The queue of windows; a window may get a timer for all its keys."""

    def __init__(self) -> None:
        self.timers: WindowTimers[str] = WindowTimers()

    def apply(self, operation: Operation) -> None:
        """Change the queue."""
        what, time, key, number = operation
        window = WINDOWS[number]
        if what == "add":
            self.timers.set(time, window, key)
        elif what == "remove":
            self.timers.delete(time, window, key)
        elif what == "due":
            list(self.timers.due(time))
        elif what == "all" and not self.timers.is_set_for_all_keys(time, window):
            self.timers.set_for_all_keys(time, window)

    def present(self) -> list[tuple[Any, ...]]:
        """Return all timers of single keys."""
        return list(self.timers.copied())


def started(queue: KeyQueue | WindowQueue) -> tuple[TimerCopy[str, Any], Iterator[Sequence[str]]]:
    queue.timers.take_changes()
    copy = queue.timers.copied_in_pieces()
    return copy, copy.gather()


@pytest.mark.parametrize("kind", [KeyQueue, WindowQueue])
@given(before=operations, after=operations)
@settings(deadline=None)
def test_a_copy_has_the_timers_of_its_moment_whatever_happens_between_its_pieces(
    kind: type[KeyQueue | WindowQueue], before: list[Operation], after: list[Operation]
) -> None:
    queue = kind()
    for operation in before:
        queue.apply(operation)
    expected = queue.present()
    copy, pieces = started(queue)
    observed: list[str] = []

    for operation in after:
        if operation[0] == "gather":
            observed += next(pieces, ())
        else:
            queue.apply(operation)
    for keys in pieces:
        observed += keys

    assert Counter(map(tuple, copy)) == Counter(expected)
    assert {key for _, key, _ in expected} <= set(observed)


@pytest.mark.parametrize("kind", [KeyQueue, WindowQueue])
def test_a_second_copy_has_the_changes_since_the_first(kind: type[KeyQueue | WindowQueue]) -> None:
    queue = kind()
    queue.apply(("add", 1, "a", 0))
    first, pieces = started(queue)
    queue.apply(("add", 1, "b", 0))
    list(pieces)

    second, pieces = started(queue)
    queue.apply(("remove", 1, "a", 0))
    list(pieces)

    assert [key for _, key, _ in first] == ["a"]
    assert sorted(key for _, key, _ in second) == ["a", "b"]
    assert sorted(key for _, key, _ in second) == ["a", "b"]  # a copy may be read repeatedly


def test_timers_of_one_time_keep_their_order() -> None:
    queue = KeyQueue()
    for key in "edcba":
        queue.apply(("add", 1, key, 0))
    copy, pieces = started(queue)
    next(pieces)
    queue.apply(("add", 1, "f", 0))
    list(pieces)

    assert [key for _, key, _ in copy] == list("edcba")


def test_a_piece_is_bounded_also_if_all_timers_have_one_time() -> None:
    queue = KeyQueue()
    for number in range(9):
        queue.timers.register(1, str(number), 0)
    _, pieces = started(queue)

    assert max(map(len, pieces)) <= 2
