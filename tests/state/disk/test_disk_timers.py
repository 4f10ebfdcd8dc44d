"""Timers in a database are those of a set, whatever is in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.machines.timer_queue import Timer
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain
from aflow.state.disk import timer_database
from aflow.state.disk.rocksdb import RocksdbStore, rocksdb_installed
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.disk.store import Engine
from aflow.state.disk.timers import DiskTimerQueue
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from tests.sorted_store import SortedStore

#: Equal keys, and different ones with the same canonical encoding.
KEYS = (1, True, 1.0, "1", b"1", ("1",), "a", "b", None, "")

Identity = tuple[int, Any]


def queue_in(folder: Path, engine: Engine, near: int = 4) -> DiskTimerQueue:
    key_codec = KeyGroupCodec(operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4)
    scratch = Scratch(engine, folder, "step")
    return DiskTimerQueue(TimeDomain.EVENT, key_codec, scratch, KeyKinds(), near)


def due(queue: DiskTimerQueue, now: int) -> Iterator[Timer[Any, None]]:
    return (timer for timer in queue.due_in_pieces(now) if timer is not None)


def identities(timers: Any) -> list[Identity]:
    return [(time, key) for time, key, _ in timers]


def test_timers_of_more_keys_with_equal_bytes_than_are_read_at_once_fire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_database, "_AT_ONCE", 3)
    keys: list[Any] = ["a"]
    for _ in range(10):
        keys.append((keys[-1],))  # nesting does not change the bytes
    queue = queue_in(tmp_path, SortedStore, near=2)
    for key in keys:
        queue.register(5, key)
    queue.register(6, "b")

    fired = identities(due(queue, 9))

    assert sorted(map(repr, fired)) == sorted(map(repr, [*((5, key) for key in keys), (6, "b")]))


class AsASet(RuleBasedStateMachine):
    """Registered, deleted and fired timers, beside a set; and beside one that only sees changes."""

    engine: Engine = SqliteStore
    keys: tuple[Any, ...] = KEYS

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.queue = queue_in(Path(self.folder.name), self.engine)
        self.expected: set[Identity] = set()
        self.queue.take_changes()
        self.followed: set[Identity] = set()

    def teardown(self) -> None:
        self.queue._far._scratch.clear()  # pyright: ignore[reportPrivateUsage]
        self.folder.cleanup()

    @rule(time=st.integers(0, 12), index=st.integers(0, 100))
    def register(self, time: int, index: int) -> None:
        key = self.keys[index % len(self.keys)]
        self.queue.register(time, key)
        self.expected.add((time, key))

    @rule(time=st.integers(0, 12), index=st.integers(0, 100))
    def delete(self, time: int, index: int) -> None:
        key = self.keys[index % len(self.keys)]
        self.queue.delete(time, key)
        self.expected.discard((time, key))

    @rule(now=st.integers(0, 12), again=st.integers(0, 12))
    def fire(self, now: int, again: int) -> None:
        """Fire timers; the handler of the first one registers one and deletes another."""
        any_due = any(at <= now for at, _ in self.expected)
        fired: list[Identity] = []
        for time, key, _ in due(self.queue, now):
            assert (time, key) in self.expected
            fired.append((time, key))
            self.expected.discard((time, key))
            if len(fired) == 1:
                self.queue.register(again, "new")
                self.expected.add((again, "new"))
                self.queue.delete(now, "a")
                self.expected.discard((now, "a"))
        assert bool(fired) == any_due
        assert not any(time <= now for time, _ in self.expected)

    @rule()
    def follow(self) -> None:
        changes = self.queue.take_changes()
        assert changes is not None
        self.followed.difference_update(identities(changes.removed))
        self.followed.update(identities(changes.added))
        assert self.followed == self.expected

    @invariant()
    def the_same(self) -> None:
        found = identities(self.queue.copied())
        assert len(found) == len(self.queue) == len(self.expected)
        assert set(found) == self.expected

    @rule()
    def earliest(self) -> None:
        assert self.queue.earliest == min((time for time, _ in self.expected), default=None)


class OfOneKind(AsASet):
    """Keys of which equal ones have equal bytes."""

    keys = ("a", "b", "c", "d", "e", "f")


TestMixedKeys = AsASet.TestCase
TestMixedKeys.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOneKind = OfOneKind.TestCase
TestOneKind.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


ENGINES = [
    SqliteStore,
    pytest.param(
        RocksdbStore,
        marks=pytest.mark.skipif(not rocksdb_installed(), reason="rocksdict is not installed"),
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_many_timers_fire_in_time_order(tmp_path: Path, engine: Engine) -> None:
    queue = queue_in(tmp_path, engine, near=64)
    expected = {(number * 7_919 % 10_007, f"key {number}") for number in range(5_000)}
    for time, key in expected:
        queue.register(time, key)

    early = identities(due(queue, 5_000))
    rest = identities(due(queue, MAX_TIMESTAMP))

    assert [time for time, _ in early + rest] == sorted(time for time, _ in expected)
    assert set(early + rest) == expected
    assert all(time <= 5_000 for time, _ in early)
    assert len(queue) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_copy_does_not_change_with_the_queue(tmp_path: Path, engine: Engine) -> None:
    queue = queue_in(tmp_path, engine, near=4)
    for time in range(20):
        queue.register(time, "a")

    copied = queue.copied()
    list(due(queue, 7))
    for time in range(30, 40):
        queue.register(time, "b")

    assert sorted(identities(copied)) == [(time, "a") for time in range(20)]


def test_times_at_both_ends_have_their_order(tmp_path: Path) -> None:
    queue = queue_in(tmp_path, SqliteStore, near=2)
    times = [MAX_TIMESTAMP, -1, 0, MIN_TIMESTAMP, 1, -(2**40), 2**40]
    for time in times:
        queue.register(time, "a")

    assert list(due(queue, MAX_TIMESTAMP)) == [Timer(time, "a", None) for time in sorted(times)]


def test_many_timers_of_one_time_are_read_in_parts(tmp_path: Path) -> None:
    queue = queue_in(tmp_path, SqliteStore, near=4)
    for number in range(3_000):
        queue.register(5, number)

    assert queue.earliest == 5
    assert sorted(key for _, key in identities(due(queue, 5))) == list(range(3_000))
