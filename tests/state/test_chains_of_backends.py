"""What a backend has captured by and by says what it has, no more and no less, whatever was restored in between."""

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
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.time = 1_000_000

    def now(self) -> int:
        return self.time


class Chain:
    """What was stored so far."""

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


def test_a_key_that_stands_in_a_table_as_another_that_is_equal_is_one_key(make: Make) -> None:
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


def test_a_state_that_has_nothing_any_more_need_not_be_declared(make: Make) -> None:
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


def test_a_ttl_that_is_new_counts_from_the_first_restore_with_it(make: Make, watch: Watch) -> None:
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


def test_what_went_out_of_date_while_nothing_ran_goes_from_what_is_stored(
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


def test_a_moment_to_come_is_stored_as_the_moment_of_the_restore(make: Make, watch: Watch) -> None:
    """Otherwise a row written by a clock that was far ahead would live until that comes, restart after restart."""
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


def test_what_was_not_touched_while_there_was_no_ttl_is_as_old_as_it_is(
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


def test_what_was_stored_as_another_type_is_stored_anew(make: Make) -> None:
    """A third type may go with the second and not with the first."""
    chain = Chain()
    backend = make()
    backend.touch(["a"])
    put(backend, ValueState("last", of=int), "a", 1)
    chain.add(backend)

    backend = make()
    chain.restore(backend, ValueState("last", of=float))
    chain.add(backend)

    assert [data for _, data in chain.rows("last")] == [codec_for(float).encode(1.0)]
