"""Behaviour of a backend on disk beyond that of all backends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.key_groups import KeyGroupRange
from aflow.state.backend_choice import DiskEngine, OnDisk, make_backend
from aflow.state.disk.scratch import claimed_folder
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MOST, MemoryBackend
from aflow.state.specs import ValueState


class Stopped:
    def now(self) -> int:
        return 0


def on_disk(folder: Path, resident: int = 2) -> MemoryBackend:
    key_codec = KeyGroupCodec(operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4)
    return make_backend(OnDisk(DiskEngine.SQLITE, folder, resident=resident), key_codec, Stopped())


def test_a_change_after_a_write_is_written_again(tmp_path: Path) -> None:
    backend = on_disk(tmp_path)
    table = backend.table(ValueState("last", of=int))
    backend.touch(["a", "b"])
    table["a"] = 1
    backend.keys("last")  # writes resident keys

    table["a"] = 2

    backend.touch(["c", "d", "e"])
    assert backend.get("last", "a") == 2
    backend.close()


def test_the_number_of_noted_keys_is_bounded(tmp_path: Path) -> None:
    """Otherwise they would fill the memory of a restored job without checkpoints."""
    backend = on_disk(tmp_path)
    backend.restore({})

    backend.touch(range(MOST))
    backend.touch([-1])

    assert backend.capture(changes=True).keys is None


def test_a_backend_removes_folders_of_killed_programs(tmp_path: Path) -> None:
    killed = claimed_folder(tmp_path)
    os.close(killed.lock)  # as at the end of the process that held it
    backend = on_disk(tmp_path)
    backend.table(ValueState("last", of=int))

    backend.touch(["a"])

    assert len(list(tmp_path.iterdir())) == 1
    assert not killed.path.exists()
    backend.close()


def test_a_step_without_state_makes_no_folder(tmp_path: Path) -> None:
    backend = on_disk(tmp_path)

    backend.touch(["a"])

    assert list(tmp_path.iterdir()) == []


def test_a_value_that_cannot_be_evicted_is_named(tmp_path: Path) -> None:
    backend = on_disk(tmp_path, resident=1)
    cell = backend.cell(ValueState[object]("last"))
    backend.touch(["a"])
    backend.key = "a"
    cell.set(object())

    with pytest.raises(
        OperatorError, match="state 'last' of step 'step' cannot be kept on disk for key 'a'"
    ):
        backend.touch(["b", "c"])

    backend.close()


def test_a_key_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    key_codec = KeyGroupCodec(
        operator="step", key_type=int, key_groups=KeyGroupRange(0, 4), key_group_count=4
    )
    backend = make_backend(OnDisk(DiskEngine.SQLITE, tmp_path), key_codec, Stopped())
    backend.cell(ValueState("last", of=int))

    with pytest.raises(OperatorError, match=f"for key {2**70}"):
        backend.touch([2**70])

    backend.close()


def test_less_than_one_resident_key_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="resident must be a number of keys, at least 1"):
        OnDisk(DiskEngine.SQLITE, resident=0)
