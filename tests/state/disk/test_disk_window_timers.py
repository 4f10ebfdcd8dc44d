"""Timers of windows in a database are those of a set, whatever is in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import MAX_TIMESTAMP, TimeDomain
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.disk.window_timers import DiskWindowTimers
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec

EARLY = TimeWindow(-5, 10)
#: It begins as the other one, and ends beyond time, as session windows may.
LONG = TimeWindow(-5, MAX_TIMESTAMP + 60_000)

Identity = tuple[int, TimeWindow, Any]


def timers_in(folder: Path, near: int = 4) -> DiskWindowTimers:
    key_codec = KeyGroupCodec(operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4)
    scratch = Scratch(SqliteStore, folder, "step")
    return DiskWindowTimers(
        TimeDomain.EVENT, key_codec, scratch, KeyKinds(), GLOBAL_WINDOW.__eq__, near
    )


class AsASet(RuleBasedStateMachine):
    """Timers that are set, deleted and taken, beside a set; and beside one that only sees changes."""

    TIMES = st.integers(0, 12)
    WINDOWS = st.sampled_from([EARLY, LONG, GLOBAL_WINDOW])
    KEYS = st.sampled_from([1, True, 1.0, "1", ("1",), "a", "b"])

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.timers = timers_in(Path(self.folder.name))
        self.model: set[Identity] = set()
        self.of_windows: set[tuple[int, TimeWindow]] = set()
        self.timers.take_changes()
        self.followed: set[Identity] = set()

    def teardown(self) -> None:
        self.timers._far._scratch.clear()  # pyright: ignore[reportPrivateUsage]
        self.folder.cleanup()

    def times(self) -> list[int]:
        return [timer[0] for timer in self.model] + [timer[0] for timer in self.of_windows]

    @rule(time=TIMES, window=WINDOWS, key=KEYS)
    def set_one(self, time: int, window: TimeWindow, key: Any) -> None:
        there = (time, window, key) in self.model or (time, window) in self.of_windows
        added = self.timers.set(time, window, key)
        assert added or there
        if window == GLOBAL_WINDOW:
            assert added is not there
        if (time, window) not in self.of_windows:
            self.model.add((time, window, key))

    @rule(time=TIMES, window=WINDOWS, key=KEYS)
    def delete_one(self, time: int, window: TimeWindow, key: Any) -> None:
        removed = self.timers.delete(time, window, key)
        assert removed or (time, window, key) not in self.model
        if window == GLOBAL_WINDOW:
            assert removed is ((time, window, key) in self.model)
        self.model.discard((time, window, key))

    @rule(time=TIMES, window=WINDOWS)
    def set_for_all(self, time: int, window: TimeWindow) -> None:
        if not any(timer[:2] == (time, window) for timer in self.model):
            self.timers.set_for_all_keys(time, window)
            self.of_windows.add((time, window))

    @rule(now=TIMES, again=TIMES)
    def take_due(self, now: int, again: int) -> None:
        """Take timers; the first one sets another and deletes one."""
        last, first = -1, True
        for time, window, keys in self.timers.due(now):
            if keys is not None and not keys:
                continue
            # A timer that is set meanwhile for an earlier time is due next.
            assert last <= time <= now or time == again
            last = time
            if keys is None:
                self.of_windows.remove((time, window))
            for key in keys or ():
                self.model.remove((time, window, key))
            if first:
                first = False
                if self.timers.set(again, GLOBAL_WINDOW, "new"):
                    self.model.add((again, GLOBAL_WINDOW, "new"))
                self.timers.delete(now + 1, EARLY, "a")
                self.model.discard((now + 1, EARLY, "a"))
        assert not any(time <= now for time in self.times())

    @rule()
    def follow(self) -> None:
        changes = self.timers.take_changes()
        assert changes is not None
        self.followed.difference_update((at, window, key) for at, key, window in changes.removed)
        self.followed.update((at, window, key) for at, key, window in changes.added)
        assert self.followed == self.model

    @rule()
    def earliest(self) -> None:
        assert self.timers.earliest == min(self.times(), default=None)

    @invariant()
    def the_same(self) -> None:
        found = [(at, window, key) for at, key, window in self.timers.copied()]
        assert len(found) == len(self.model)
        assert set(found) == self.model
        assert len(self.timers) == len(self.model) + len(self.of_windows)


TestAsASet = AsASet.TestCase
TestAsASet.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


def test_timers_of_keys_and_of_windows_are_due_in_the_order_of_time(tmp_path: Path) -> None:
    timers = timers_in(tmp_path)
    for number in range(40):
        timers.set(number * 7 % 40, EARLY, number)
    for at in (5, 17, 60):
        timers.set_for_all_keys(at, LONG)

    found = [(at, keys is None) for at, _, keys in timers.due(MAX_TIMESTAMP) if keys != ()]

    assert found == sorted([(at, False) for at in range(40)] + [(at, True) for at in (5, 17, 60)])


@pytest.mark.parametrize("key", [float("nan"), object()])
def test_a_key_without_bytes_is_an_error_of_the_step(tmp_path: Path, key: object) -> None:
    timers = timers_in(tmp_path, near=1)
    timers.set(1, EARLY, "a")

    with pytest.raises(TypeError, match="cannot be a key"):
        timers.set(2, EARLY, key)
