"""Backends on disk and in memory are equivalent to a dict under random operations."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.model.key_groups import KeyGroupRange
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk, make_backend
from aflow.state.disk.rocksdb import rocksdb_installed
from aflow.state.keyed_entries import CapturedRows, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import OperatorSnapshot, replay
from aflow.state.specs import ListState, MapState, TtlOn, ValueState

#: Equal keys, and different ones with the same canonical encoding.
KEYS = (1, True, 1.0, "1", b"1", ("1",), "a", "b", None, "", "c", "d")

TTL = 1000

Content = tuple[int | None, tuple[int, ...], tuple[tuple[str, int], ...], int | None]


class Watch:
    time = 10_000

    def now(self) -> int:
        return self.time


class Program:
    """A backend with the declarations of a step."""

    def __init__(self, choice: InMemory | OnDisk, watch: Watch) -> None:
        self.value = ValueState("value", of=int)
        self.list = ListState("list", of=int)
        self.map = MapState("map", key=str, of=int)
        self.timed = ValueState(
            "timed", of=int, ttl=timedelta(milliseconds=TTL), ttl_on=TtlOn.UPDATE
        )
        self.key_codec = KeyGroupCodec(
            operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4
        )
        self.backend: MemoryBackend = make_backend(choice, self.key_codec, watch)
        self.cells: Any = {
            name: self.backend.cell(getattr(self, name))
            for name in ("value", "list", "map", "timed")
        }
        self.chain: list[OperatorSnapshot] = []

    def batch(self, keys: list[Any], number: int, what: str) -> None:
        self.backend.touch(keys)
        for key in keys:
            self.backend.key = key
            getattr(self, what)(number)
        self.backend.leave()

    def write(self, number: int) -> None:
        self.cells["value"].set(number)

    def add(self, number: int) -> None:
        self.cells["list"].add(number)
        self.cells["map"].put(str(number % 3), number)

    def live(self, number: int) -> None:
        self.cells["timed"].set(number)

    def clear(self, number: int) -> None:
        for place, cell in enumerate(self.cells.values()):
            if number >> place & 1:
                cell.clear()

    def content(self, key: Any) -> Content:
        get = self.backend.get
        entries: Any = get("map", key) or {}
        values: Any = get("list", key) or []
        value: Any = get("value", key)
        timed: Any = get("timed", key)
        return value, tuple(values), tuple(sorted(entries.items())), timed

    def capture(self, *, changes: bool) -> CapturedRows:
        return CapturedRows(self.key_codec, self.backend.capture(changes=changes))

    def take(self, snapshot: OperatorSnapshot) -> None:
        self.chain = [snapshot] if snapshot.complete else [*self.chain, snapshot]

    def restored(self, choice: InMemory | OnDisk, watch: Watch) -> Program:
        other = Program(choice, watch)
        other.chain = [replay(self.chain)]
        other.backend.restore(other.chain[0].keyed)
        return other


class Disk(RuleBasedStateMachine):
    engine = DiskEngine.SQLITE

    def __init__(self) -> None:
        super().__init__()
        self.watch = Watch()
        self.folder = tempfile.TemporaryDirectory()
        self.choice = OnDisk(self.engine, Path(self.folder.name), resident=3)
        self.disk = Program(self.choice, self.watch)
        self.memory = Program(InMemory(), self.watch)
        self.waiting: CapturedRows | None = None
        self.then: dict[Any, Content] = {}

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6),
        number=st.integers(0, 15),
        what=st.sampled_from(["write", "add", "live", "clear"]),
    )
    def batch(self, keys: list[Any], number: int, what: str) -> None:
        for program in (self.disk, self.memory):
            program.batch(keys, number, what)

    @rule(by=st.sampled_from([1, 60, TTL - 1, TTL]))
    def time_passes(self, by: int) -> None:
        self.watch.time += by

    @rule(changes=st.booleans())
    def capture(self, changes: bool) -> None:
        """Capture the state; it is read later, so it must not change."""
        self.encode()
        self.waiting = self.disk.capture(changes=changes)
        self.memory.take(self.memory.capture(changes=changes).encoded())
        self.then = {key: self.memory.content(key) for key in KEYS}

    @rule()
    def encode(self) -> None:
        if self.waiting is not None:
            self.disk.take(self.waiting.encoded())
            self.waiting = None

    @rule()
    def restored_elsewhere_it_is_what_it_was(self) -> None:
        self.encode()
        if self.disk.chain:
            for program in (self.disk, self.memory):
                other = program.restored(InMemory(), self.watch)
                for key in KEYS:
                    assert other.content(key)[:3] == self.then[key][:3]

    @rule()
    def restore(self) -> None:
        self.encode()
        if self.disk.chain:
            self.disk.backend.close()
            self.disk = self.disk.restored(self.choice, self.watch)
            self.memory = self.memory.restored(InMemory(), self.watch)

    @invariant()
    def both_hold_the_same(self) -> None:
        for key in KEYS:
            assert self.disk.content(key) == self.memory.content(key)
        for name in ("value", "list", "map", "timed"):
            assert set(self.disk.backend.keys(name)) == set(self.memory.backend.keys(name))

    def teardown(self) -> None:
        self.disk.backend.close()
        assert list(Path(self.folder.name).iterdir()) == []
        self.folder.cleanup()


class DiskInRocksdb(Disk):
    engine = DiskEngine.ROCKSDB


TestInSqlite = Disk.TestCase
TestInSqlite.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestInRocksdb = pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict")(
    DiskInRocksdb.TestCase
)
TestInRocksdb.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
