"""State with a time to live is removed after it expires."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError, InternalError
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.state.keyed_entries import CapturedRows, Keyed, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.specs import ListState, MapState, TtlOn, ValueState

MINUTE = timedelta(minutes=1)


class Watch:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.time = 1_000_000

    def now(self) -> int:
        return self.time


@pytest.fixture
def watch() -> Watch:
    return Watch()


def key_codec() -> KeyGroupCodec:
    everything = KeyGroupRange(0, DEFAULT_KEY_GROUPS)
    return KeyGroupCodec(operator="step", key_groups=everything, key_group_count=DEFAULT_KEY_GROUPS)


def at(backend: MemoryBackend, key: str) -> None:
    backend.touch([key])
    backend.key = key


def stored(backend: MemoryBackend, *, changes: bool = False) -> CapturedRows:
    return CapturedRows(key_codec(), backend.capture(changes=changes))


def restored(keyed: Keyed, watch: Watch, spec: ValueState[Any]) -> MemoryBackend:
    backend = MemoryBackend(key_codec(), watch)
    backend.cell(spec)
    backend.restore(keyed)
    return backend


def test_a_value_expires_after_its_time_to_live(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(ValueState("last", of=int, ttl=MINUTE))
    at(backend, "a")
    cell.set(1)

    watch.time += 59_999
    assert cell.get() == 1
    watch.time += 1
    assert cell.get() is None
    assert backend.get("last", "a") is None


def test_writes_restart_the_time_to_live_and_reads_do_not(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(ValueState("last", of=int, ttl=MINUTE))
    at(backend, "a")
    cell.set(1)
    watch.time += 40_000
    cell.set(2)
    watch.time += 40_000
    assert cell.get() == 2

    watch.time += 20_000

    assert cell.get() is None


def test_reads_restart_the_time_to_live_if_declared(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(ValueState("last", of=int, ttl=MINUTE, ttl_on=TtlOn.READ))
    at(backend, "a")
    cell.set(1)
    for _ in range(3):
        watch.time += 40_000
        assert cell.get() == 1

    watch.time += 60_000

    assert cell.get() is None


def test_an_expired_row_is_not_updated(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    values = backend.cell(ListState("values", of=int, ttl=MINUTE))
    entries = backend.cell(MapState("entries", key=str, of=int, ttl=MINUTE))
    backend.key = "a"
    values.add(1)
    entries.put("x", 1)
    watch.time += 60_000

    values.add(2)
    entries.put("y", 2)

    assert values.get() == [2]
    assert entries.items() == [("y", 2)]


def test_a_map_expires_as_a_whole(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    entries = backend.cell(MapState("entries", key=str, of=int, ttl=MINUTE))
    backend.key = "a"
    entries.put("x", 1)
    watch.time += 40_000
    entries.put("y", 2)
    watch.time += 40_000

    assert entries.get("x") == 1
    watch.time += 20_000
    assert len(entries) == 0


def test_touching_other_keys_removes_expired_rows(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    spec = ValueState("last", of=int, ttl=MINUTE)
    cell = backend.cell(spec)
    for key in "abc":
        at(backend, key)
        cell.set(1)
        watch.time += 20_000

    at(backend, "d")

    assert list(backend.keys("last")) == ["b", "c"]
    assert list(stored(backend).keyed.rows["last"]) == [("b", b"\x01"), ("c", b"\x01")]


def test_an_expired_row_is_a_change(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(ValueState("last", of=int, ttl=MINUTE))
    at(backend, "a")
    cell.set(1)
    backend.capture(changes=False)
    watch.time += 60_000

    changes = backend.capture(changes=True)

    assert changes.keys == {"a"}
    assert not any(list(rows) for rows in changes.rows.values())


def test_a_clock_that_is_set_back_does_not_change_the_order(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(ValueState("last", of=int, ttl=MINUTE))
    at(backend, "a")
    cell.set(1)
    watch.time -= 500_000
    at(backend, "b")
    cell.set(2)

    watch.time += 559_999
    assert cell.get() == 2
    watch.time += 1
    assert cell.get() is None


def test_a_snapshot_holds_the_time_of_the_last_touch(watch: Watch) -> None:
    spec = ValueState("last", of=int, ttl=MINUTE)
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(spec)
    for key in "ab":
        at(backend, key)
        cell.set(1)
        watch.time += 30_000
    keyed = stored(backend).encoded().keyed

    again = restored(keyed, watch, spec)

    assert list(again.keys("last")) == ["b"]
    watch.time += 29_999
    assert list(again.keys("last")) == ["b"]
    watch.time += 1
    assert list(again.keys("last")) == []


def test_state_stored_without_a_ttl_lives_from_the_restore_on(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(ValueState("last", of=int))
    at(backend, "a")
    cell.set(1)
    keyed = backend.snapshot()
    watch.time += 500_000

    again = restored(keyed, watch, ValueState("last", of=int, ttl=MINUTE))

    watch.time += 59_999
    assert again.get("last", "a") == 1
    watch.time += 1
    assert again.get("last", "a") is None


def test_state_stored_with_a_ttl_is_restored_without_one(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(ValueState("last", of=int, ttl=MINUTE))
    at(backend, "a")
    cell.set(1)

    again = restored(backend.snapshot(), watch, ValueState("last", of=int))

    watch.time += 500_000
    assert again.get("last", "a") == 1


def test_a_touch_by_a_clock_that_was_ahead_counts_as_now(watch: Watch) -> None:
    spec = ValueState("last", of=int, ttl=MINUTE)
    backend = MemoryBackend(key_codec(), watch)
    cell = backend.cell(spec)
    at(backend, "a")
    cell.set(1)
    keyed = backend.snapshot()
    watch.time -= 500_000

    again = restored(keyed, watch, spec)

    watch.time += 60_000
    assert again.get("last", "a") is None


def test_a_table_of_all_keys_has_no_ttl(watch: Watch) -> None:
    backend = MemoryBackend(key_codec(), watch)

    with pytest.raises(FlowDefinitionError, match="which only cells support"):
        backend.table(ValueState("last", of=int, ttl=MINUTE))


def test_a_ttl_needs_a_clock() -> None:
    with pytest.raises(InternalError, match="no clock"):
        MemoryBackend(key_codec()).cell(ValueState("last", of=int, ttl=MINUTE))
