"""A committed transaction has the effect of the same operations without a transaction."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from aflow.model.key_groups import KeyGroupRange
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk, StateBackend, make_backend
from aflow.state.disk.rocksdb import rocksdb_installed
from aflow.state.keyed_entries import CapturedRows, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import OperatorSnapshot, replay
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateSpec,
    ValueState,
)
from aflow.state.transactions import Transaction, Transactions
from tests.state.transaction_states import TTL, Gathered, Watch, joined

#: Keys, some of which are equal.
KEYS = (1, True, "1", ("c",))


def declared(ttl: timedelta | None) -> dict[str, StateSpec[Any]]:
    of = "" if ttl is None else "timed "
    return {
        "value": ValueState(f"{of}value", of=list[int], ttl=ttl),
        "list": ListState(f"{of}list", of=int, ttl=ttl),
        "map": MapState(f"{of}map", key=str, of=list[int], ttl=ttl),
        "reducing": ReducingState(f"{of}reducing", joined, of=list[int], ttl=ttl),
        "aggregating": AggregatingState(f"{of}aggregating", Gathered(), of=list[int], ttl=ttl),
    }


def put_back(cell: Any, number: int) -> None:
    values: list[int] = cell.get() or []
    values.append(number)
    cell.set(values)


def put_entry_back(cell: Any, number: int) -> None:
    entry: list[int] = cell.get(str(number % 4), None) or []
    entry.append(number)
    cell.put(str(number % 4), entry)


Operation = Callable[[Any, int], Any]

OPERATIONS: dict[str, list[Operation]] = {
    "value": [
        lambda cell, number: cell.get([number]),
        lambda cell, number: cell.set([number]),
        lambda cell, number: cell.clear(),
        put_back,
    ],
    "list": [
        lambda cell, number: cell.get(),
        lambda cell, number: len(cell),
        lambda cell, number: list(cell),
        lambda cell, number: cell.add(number),
        lambda cell, number: cell.extend(range(number % 3)),
        lambda cell, number: cell.set(range(number % 3)),
        lambda cell, number: cell.clear(),
    ],
    "map": [
        lambda cell, number: (cell.get(str(number % 4)), str(number % 4) in cell),
        lambda cell, number: (cell.items(), cell.keys(), cell.values(), list(cell), len(cell)),
        lambda cell, number: cell.put(str(number % 4), [number]),
        lambda cell, number: cell.remove(str(number % 4)),
        lambda cell, number: cell.clear(),
        put_entry_back,
    ],
    "reducing": [
        lambda cell, number: cell.get(),
        lambda cell, number: cell.add([number]),
        lambda cell, number: cell.clear(),
    ],
    "aggregating": [
        lambda cell, number: cell.get(),
        lambda cell, number: cell.add(number),
        lambda cell, number: cell.clear(),
    ],
}


class Program:
    """A backend with the declarations of a step."""

    def __init__(self, choice: StateBackend, watch: Watch) -> None:
        self.specs = {None: declared(None), TTL: declared(TTL)}
        key_codec = KeyGroupCodec(
            operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4
        )
        self.backend: MemoryBackend = make_backend(choice, key_codec, watch)
        self.all_specs = [spec for several in self.specs.values() for spec in several.values()]
        self.cells: dict[StateSpec[Any], Any] = {
            spec: self.backend.cell(spec) for spec in self.all_specs
        }
        self.chain: list[OperatorSnapshot] = []

    def capture(self, *, changes: bool) -> None:
        rows = self.backend.capture(changes=changes)
        taken = CapturedRows(self.backend.key_codec, rows).encoded()
        self.chain = [taken] if taken.complete else [*self.chain, taken]

    def content(self) -> dict[str, Any]:
        """Return the state of each key, with the entries of maps in their order."""
        found: dict[str, Any] = {}
        for spec in self.all_specs:
            for key in KEYS:
                stored: Any = self.backend.get(spec.name, key)
                if spec.name.endswith("map") and stored is not None:
                    stored = list(stored.items())
                found[f"{spec.name} of {key!r}"] = stored
        return found


class Open:
    """A transaction with its operations and their results."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.done: list[tuple[timedelta | None, str, Operation, int, Any]] = []


class Run:
    """Random operations of a step, with transactions of one backend and directly on another one."""

    def __init__(self, choice: StateBackend, chance: Random) -> None:
        self.chance = chance
        self.watch = Watch()
        self.tried = Program(choice, self.watch)
        self.direct = Program(InMemory(), self.watch)
        self.transactions = Transactions(self.tried.backend, self.tried.all_specs)
        self.open: dict[Any, Open] = {}

    def go_on(self) -> None:
        chance = self.chance
        match chance.randrange(10):
            case 0:
                self.tried.capture(changes=chance.random() < 0.8)
            case 1 if not self.open:
                # Expiry differs from that without transactions while one is open.
                self.watch.time += chance.choice([1, 600, 1000])
            case _:
                self.use(chance.choice(KEYS))
        # Open transactions have no effect.
        assert self.tried.content() == self.direct.content()

    def use(self, key: Any) -> None:
        if key not in self.open:
            self.open[key] = Open(self.transactions.open(key))
        for _ in range(self.chance.randrange(1, 5)):
            self.used(self.open[key])
        match self.chance.randrange(6):
            case 0:
                self.open.pop(key).transaction.drop()
            case 1:
                del self.open[key]
            case 2:
                pass  # it stays open
            case _:
                self.commit(key)

    def used(self, at: Open) -> None:
        chance = self.chance
        ttl, kind = chance.choice([None, TTL]), chance.choice(list(OPERATIONS))
        cell = at.transaction.cell(self.tried.specs[ttl][kind])
        for operation in chance.choices(OPERATIONS[kind], k=chance.randrange(1, 4)):
            number = chance.randrange(12)
            at.done.append((ttl, kind, operation, number, deepcopy(operation(cell, number))))

    def commit(self, key: Any) -> None:
        one, backend = self.open.pop(key), self.direct.backend
        one.transaction.commit()
        backend.touch((key,))
        backend.key = key
        for ttl, kind, operation, number, gave in one.done:
            cell = self.direct.cells[self.direct.specs[ttl][kind]]
            assert operation(cell, number) == gave, kind
        backend.leave()

    def restored(self) -> Program:
        self.tried.capture(changes=True)
        program = Program(InMemory(), self.watch)
        program.backend.restore(replay(self.tried.chain).keyed)
        return program


def check(choice: StateBackend, seed: int) -> None:
    run = Run(choice, Random(seed))
    for _ in range(100):
        run.go_on()

    assert run.restored().content() == run.direct.content()
    run.tried.backend.close()


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_in_memory_transactions_have_the_effect_of_their_operations(seed: int) -> None:
    check(InMemory(), seed)


@given(st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_in_sqlite_transactions_have_the_effect_of_their_operations(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(OnDisk(DiskEngine.SQLITE, Path(folder), resident=1), seed)


@pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict")
@given(st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_in_rocksdb_transactions_have_the_effect_of_their_operations(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(OnDisk(DiskEngine.ROCKSDB, Path(folder), resident=1), seed)
