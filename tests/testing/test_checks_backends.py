"""The backends of aflow keep the contract of backends."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import pytest

from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.model.time import Clock
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk, make_backend
from aflow.state.disk.rocksdb import rocksdb_installed
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.testing import check_backend
from tests.sorted_store import sorted_stores


def test_state_in_memory_is_a_backend() -> None:
    check_backend(lambda key_codec, clock: make_backend(InMemory(), key_codec, clock))


@pytest.mark.slow
@pytest.mark.parametrize("resident", [1, 100_000], ids=["one", "all"])
def test_state_on_disk_is_a_backend(resident: int, tmp_path: Path) -> None:
    with sorted_stores() as engine:
        choice = OnDisk(engine, tmp_path, resident=resident)

        check_backend(lambda key_codec, clock: make_backend(choice, key_codec, clock))


@pytest.mark.slow
@pytest.mark.parametrize("engine", DiskEngine, ids=lambda engine: engine.value)
def test_state_in_each_database_is_a_backend(engine: DiskEngine, tmp_path: Path) -> None:
    if engine is DiskEngine.ROCKSDB and not rocksdb_installed():
        pytest.skip("needs rocksdict")
    choice = OnDisk(engine, tmp_path, resident=10)

    check_backend(lambda key_codec, clock: make_backend(choice, key_codec, clock))


class Forgetful(MemoryBackend):
    """Hides one of its keys."""

    def keys(self, name: str) -> list[Hashable]:
        return [key for key in super().keys(name) if key != "b"]


class Loose(MemoryBackend):
    """Takes the state of all key groups."""

    def __init__(self, key_codec: KeyGroupCodec, clock: Clock) -> None:
        super().__init__(key_codec, clock)
        everything = KeyGroupRange(0, DEFAULT_KEY_GROUPS)
        self.key_codec = KeyGroupCodec(
            operator="step", key_groups=everything, key_group_count=DEFAULT_KEY_GROUPS
        )


class Timeless(MemoryBackend):
    """Keeps expired state."""

    def __init__(self, key_codec: KeyGroupCodec, clock: Clock) -> None:
        super().__init__(key_codec, _Stopped())


class _Stopped:
    def now(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("make", "what"),
    [
        pytest.param(Forgetful, "after clear\\(\\) keys\\(\\) returns", id="forgetful"),
        pytest.param(Loose, "three subtasks have", id="loose"),
        pytest.param(Timeless, "with .*, keys\\(\\) returns", id="timeless"),
    ],
)
def test_a_backend_that_breaks_the_contract_is_found(make: type[MemoryBackend], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        check_backend(make)
