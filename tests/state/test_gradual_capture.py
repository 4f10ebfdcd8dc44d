"""A complete capture of many rows is collected in pieces, and has the state of its moment."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import CheckpointError
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.state.disk.backend import DiskBackend
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.gradual_capture import GradualCapture
from aflow.state.keyed_entries import CapturedRows, KeyedRows, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import STATES, OperatorSnapshot, replay
from aflow.state.specs import ListState, MapState, ValueState
from aflow.testing.backend_checks import check_backend
from tests.gradual import gradual_captures
from tests.state.test_chains_of_backends import Watch

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    """Collect every complete capture in pieces of three rows."""
    with gradual_captures(piece=3):
        yield


def _backend(watch: Watch | None = None, folder: Path | None = None) -> MemoryBackend:
    """Return a backend with four resident keys and a database in ``folder``; None: all keys are in memory."""
    everything = KeyGroupRange(0, DEFAULT_KEY_GROUPS)
    codec = KeyGroupCodec(
        operator="step", key_groups=everything, key_group_count=DEFAULT_KEY_GROUPS
    )
    if folder is None:
        return MemoryBackend(codec, watch)
    return DiskBackend(codec, watch, Scratch(SqliteStore, folder, "step"), 4)


class Step:
    """A backend with a value, a list and a map, which one operation changes for some keys."""

    def __init__(self, ttl: timedelta | None = None, folder: Path | None = None) -> None:
        self.watch = Watch()
        self.backend = _backend(self.watch, folder)
        self.value = self.backend.cell(ValueState[int]("value", of=int))
        self.list = self.backend.cell(ListState[int]("list", of=int, ttl=ttl))
        self.map = self.backend.cell(MapState[str, int]("map", key=str, of=int))

    def change(self, operation: str, keys: list[int], number: int) -> None:
        self.backend.touch(keys)
        for key in keys:
            self.backend.key = key
            if operation == "set":
                self.value.set(number)
                self.list.add(number)
                self.map.put(str(number), number)
            elif operation == "add":
                self.list.add(number)
            elif operation == "clear":
                self.value.clear()
                self.list.clear()
                self.map.clear()
        self.backend.leave()

    def live(self, operations: Any, first: int, captured: KeyedRows | None = None) -> None:
        """Change state; some operations collect a piece of ``captured``."""
        pieces = iter(()) if captured is None else captured.gather()
        for number, (operation, keys) in enumerate(operations, first):
            if operation == "gather":
                next(pieces, None)
            else:
                self.change(operation, keys, number)

    def close(self) -> None:
        self.backend.close()

    def encoded(self, captured: KeyedRows) -> OperatorSnapshot:
        return CapturedRows(self.backend.key_codec, captured).encoded()


def _sorted(snapshot: OperatorSnapshot) -> dict[int, dict[str, list[Any]]]:
    """Return the rows without the descriptions, which also remain in key groups without rows."""
    found = {
        group: {
            name: sorted(entries) for name, entries in names.items() if entries and name != STATES
        }
        for group, names in snapshot.keyed.items()
    }
    return {group: names for group, names in found.items() if names}


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["set", "add", "clear", "gather", "wait"]),
        st.lists(st.integers(0, 12), max_size=6),
    ),
    max_size=25,
)


@contextmanager
def folder_of(where: str) -> Generator[Path | None]:
    """Return a folder for a database; None for a backend in memory."""
    if where == "memory":
        yield None
        return
    parent = Path("/dev/shm")
    with TemporaryDirectory(dir=parent if parent.is_dir() else None) as folder:
        yield Path(folder)


each_backend = pytest.mark.parametrize("where", ["memory", "disk"])

#: A database takes some milliseconds to open.
few = settings(max_examples=30, deadline=None)


@each_backend
@pytest.mark.parametrize("ttl", [None, MINUTE], ids=["for ever", "with a ttl"])
def test_changes_between_pieces_are_not_in_the_capture(ttl: timedelta | None, where: str) -> None:
    @few
    @given(before=OPERATIONS, after=OPERATIONS)
    def check(before: Any, after: Any) -> None:
        with folder_of(where) as folder, closing(Step(ttl, folder)) as step:
            compare(step, before, after)

    def compare(step: Step, before: Any, after: Any) -> None:
        step.live(before, 0)
        expected = _sorted(step.encoded(step.backend.capture(changes=False)))

        captured = step.backend.capture(changes=False)
        step.live(after, 1000, captured)

        assert _sorted(step.encoded(captured)) == expected

    check()


@each_backend
@pytest.mark.parametrize("ttl", [None, MINUTE], ids=["for ever", "with a ttl"])
def test_changes_are_captured_in_pieces_and_continue_their_chain(
    ttl: timedelta | None, where: str
) -> None:
    @few
    @given(before=OPERATIONS, between=OPERATIONS, after=OPERATIONS)
    def check(before: Any, between: Any, after: Any) -> None:
        with folder_of(where) as folder, closing(Step(ttl, folder)) as step:
            step.live(before, 0)
            base = step.backend.capture(changes=True)
            step.live(between, 1000, base)
            changes = step.backend.capture(changes=True)
            step.live(after, 2000, changes)

            chain = replay([step.encoded(base), step.encoded(changes)])

        assert _sorted(chain) == expected(before, between)

    def expected(before: Any, between: Any) -> dict[int, dict[str, list[Any]]]:
        step = Step(ttl)
        step.live(before, 0)
        step.live(between, 1000)
        return _sorted(step.encoded(step.backend.capture(changes=False)))

    check()


def test_a_capture_has_its_own_moment_if_another_one_follows_at_once() -> None:
    step = Step()
    step.change("set", list(range(20)), 1)
    first = step.backend.capture(changes=False)
    step.change("set", list(range(10)), 2)
    second = step.backend.capture(changes=False)
    assert not list(first.gather())  # the second one has completed it
    step.change("clear", list(range(20)), 3)

    later, earlier = step.encoded(second), step.encoded(first)

    assert _value_of(earlier, 5) == [1]
    assert _value_of(later, 5) == [2]
    assert _value_of(earlier, 15) == _value_of(later, 15) == [1]


def _value_of(snapshot: OperatorSnapshot, key: int) -> list[object]:
    step = Step()
    step.backend.restore(snapshot.keyed)
    return [step.backend.get("value", key)]


def test_a_row_that_expires_between_pieces_may_be_missing_and_no_other() -> None:
    step = Step(MINUTE)
    step.change("set", list(range(20)), 1)
    captured = step.backend.capture(changes=False)
    step.watch.time += 61_000
    step.change("set", [30], 2)  # sweeps

    restored = Step()
    restored.backend.restore(step.encoded(captured).keyed)

    assert set(restored.backend.keys("value")) == set(range(20))
    assert len(restored.backend.keys("list")) <= 20


def test_a_dropped_capture_collects_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[list[object]] = []

    def save(_: object, keys: list[object]) -> None:
        saved.append(keys)

    monkeypatch.setattr(GradualCapture, "save", save)
    step = Step()
    step.change("set", list(range(20)), 1)
    captured = step.backend.capture(changes=False)
    step.change("set", [1], 2)
    assert saved == [[1]]
    del captured
    gc.collect()

    step.change("set", [2], 3)

    assert saved == [[1]]


def test_a_capture_outlives_its_backend() -> None:
    step = Step()
    step.change("set", list(range(20)), 1)
    captured = step.backend.capture(changes=False)
    step.backend.close()

    restored = Step()
    restored.backend.restore(step.encoded(captured).keyed)

    assert set(restored.backend.keys("value")) == set(range(20))


DECLARED = ValueState[Any]("value", of=int)


def _put(backend: MemoryBackend, keys: range, value: Callable[[int], object]) -> None:
    cell = backend.cell(DECLARED)
    backend.touch(keys)
    for key in keys:
        backend.key = key
        cell.set(value(key))


def test_a_value_that_cannot_be_stored_is_an_error_of_each_use_of_the_capture() -> None:
    backend = _backend()
    _put(backend, range(10), lambda key: key)
    _put(backend, range(1), lambda _: {"not": "an int"})
    captured = backend.capture(changes=False)

    with pytest.raises(CheckpointError, match=r"state 'value'.*key 0"):
        list(captured.gather())
    with pytest.raises(CheckpointError, match=r"state 'value'.*key 0"):
        list(captured.rows["value"])


def test_a_value_of_the_first_piece_that_cannot_be_stored_is_an_error_of_the_capture() -> None:
    backend = _backend()
    _put(backend, range(10), lambda _: {"not": "an int"})

    with pytest.raises(CheckpointError, match="state 'value'"):
        backend.capture(changes=False)


def test_a_backend_that_captures_gradually_keeps_the_contract() -> None:
    check_backend(MemoryBackend)
