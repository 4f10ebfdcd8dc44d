"""Chains of captures equal the state of their backend, also after restores in between."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aflow.model.codecs import codec_for
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.state.disk.backend import DiskBackend
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.keyed_entries import CapturedRows, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import Entry, OperatorSnapshot, replay
from aflow.state.specs import StateSpec, ValueState

MINUTE = timedelta(minutes=1)

Make = Callable[[], MemoryBackend]


class Watch:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.time = 1_000_000

    def now(self) -> int:
        return self.time


class Chain:
    """The chain of stored snapshots."""

    def __init__(self) -> None:
        self._links: list[OperatorSnapshot] = []

    def add(self, backend: MemoryBackend, *, changes: bool = True) -> None:
        snapshot = CapturedRows(backend.key_codec, backend.capture(changes=changes)).encoded()
        if snapshot.complete:
            self._links.clear()
        self._links.append(snapshot)

    def restore(self, backend: MemoryBackend, *specs: StateSpec[Any]) -> None:
        for spec in specs:
            backend.cell(spec)
        backend.restore(replay(self._links).keyed)

    def rows(self, name: str) -> list[Entry]:
        return [row for names in replay(self._links).keyed.values() for row in names.get(name, ())]


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture(params=["memory", "disk"])
def make(request: pytest.FixtureRequest, watch: Watch, tmp_path: Path) -> Make:
    everything = KeyGroupRange(0, DEFAULT_KEY_GROUPS)
    key_codec = KeyGroupCodec(
        operator="step", key_groups=everything, key_group_count=DEFAULT_KEY_GROUPS
    )
    if request.param == "memory":
        return lambda: MemoryBackend(key_codec, watch)
    return lambda: DiskBackend(key_codec, watch, Scratch(SqliteStore, tmp_path, "step"), 4)


def put(backend: MemoryBackend, spec: ValueState[int], key: Hashable, value: int | None) -> None:
    cell = backend.cell(spec)
    backend.key = key
    if value is None:
        cell.clear()
    else:
        cell.set(value)


def test_equal_keys_of_different_types_are_one_key_in_a_table(make: Make) -> None:
    chain, last = Chain(), ValueState("last", of=int)
    backend = make()
    backend.cell(last)
    chain.add(backend)
    backend.touch([1, True])
    put(backend, last, True, 5)
    chain.add(backend, changes=False)

    backend.touch([1])
    put(backend, last, 1, 6)
    chain.add(backend)

    assert [data for _, data in chain.rows("last")] == [b"\x06"]


def test_an_emptied_state_need_not_be_declared(make: Make) -> None:
    chain, gone, stays = Chain(), ValueState("gone", of=int), ValueState("stays", of=int)
    backend = make()
    backend.touch(["a"])
    for spec in (gone, stays):
        put(backend, spec, "a", 1)
    chain.add(backend)
    backend.touch(["a"])
    put(backend, gone, "a", None)
    chain.add(backend)

    backend = make()
    chain.restore(backend, stays)

    assert backend.get("stays", "a") == 1


def test_a_new_ttl_counts_from_the_first_restore_with_it(make: Make, watch: Watch) -> None:
    chain = Chain()
    backend = make()
    backend.touch(["a"])
    put(backend, ValueState("last", of=int), "a", 1)
    chain.add(backend)

    for _ in range(3):
        backend = make()
        chain.restore(backend, ValueState("last", of=int, ttl=MINUTE))
        chain.add(backend)
        watch.time += 30_000

    assert backend.get("last", "a") is None


def test_rows_that_expired_while_no_job_ran_are_removed_from_the_chain(
    make: Make, watch: Watch
) -> None:
    chain = Chain()
    backend = make()
    backend.touch(["a"])
    put(backend, ValueState("last", of=int, ttl=MINUTE), "a", 1)
    chain.add(backend)
    watch.time += 60_000

    backend = make()
    chain.restore(backend, ValueState("last", of=int, ttl=MINUTE))
    chain.add(backend)

    assert chain.rows("last") == []
    assert chain.rows("@touched last") == []


def test_a_moment_in_the_future_is_stored_as_the_moment_of_the_restore(
    make: Make, watch: Watch
) -> None:
    """Otherwise a row written by a clock that was far ahead would live until that moment, over all restarts."""
    chain = Chain()
    backend = make()
    watch.time += 1_000_000
    backend.touch(["a"])
    put(backend, ValueState("last", of=int, ttl=MINUTE), "a", 1)
    chain.add(backend)
    watch.time -= 1_000_000

    for _ in range(3):
        backend = make()
        chain.restore(backend, ValueState("last", of=int, ttl=MINUTE))
        chain.add(backend)
        watch.time += 30_000

    assert backend.get("last", "a") is None


def test_rows_that_were_not_touched_without_a_ttl_have_their_former_age(
    make: Make, watch: Watch
) -> None:
    chain, timed = Chain(), ValueState("last", of=int, ttl=MINUTE)
    backend = make()
    backend.touch(["a", "b"])
    put(backend, timed, "a", 1)
    put(backend, timed, "b", 1)
    chain.add(backend)
    watch.time += 60_000
    backend, untimed = make(), ValueState("last", of=int)
    backend.cell(untimed)
    chain.restore(backend, untimed)
    backend.touch(["b"])
    put(backend, untimed, "b", 2)
    chain.add(backend)

    backend = make()
    chain.restore(backend, ValueState("last", of=int, ttl=MINUTE))

    assert backend.get("last", "a") is None
    assert backend.get("last", "b") == 2


def test_rows_stored_as_another_type_are_stored_again(make: Make) -> None:
    """A third type may be compatible with the second and not with the first."""
    chain = Chain()
    backend = make()
    backend.touch(["a"])
    put(backend, ValueState("last", of=int), "a", 1)
    chain.add(backend)

    backend = make()
    chain.restore(backend, ValueState("last", of=float))
    chain.add(backend)

    assert [data for _, data in chain.rows("last")] == [codec_for(float).encode(1.0)]
