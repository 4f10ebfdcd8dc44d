"""aflow can be imported, and reports the missing locks, on a system without `fcntl`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from aflow.model.file_locks import lock_exclusively

PROJECT: Final = Path(__file__).parents[2]

#: Modules that Python has on Linux and not on Windows.
WITHOUT: Final = """
import asyncio, sys
for module in ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"):
    sys.modules[module] = None
"""


#: Import each module, run a pipeline with files and state on disk, and one with checkpoints. A line of JSON for each.
PROGRAM: Final = """
import importlib, json, pkgutil
import aflow, aflow_connectors.files, aflow_connectors.sqlite
names = [
    module.name
    for package in (aflow, aflow_connectors.files, aflow_connectors.sqlite)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if module.name != "aflow.__main__"
]
for name in names:
    importlib.import_module(name)
import aflow_connectors.spark, aflow_connectors.spark.dataframe.snapshot
print(len(names))

import aflow as af
from pathlib import Path
from aflow_connectors.files import JsonLinesSink
flow = af.Flow("sums")
keyed = flow.source([1, 2, 3]).key_by(lambda n: n % 2)
keyed.fold(int, lambda a, b: a + b, name="sum").to(JsonLinesSink("sums.jsonl"))
state = af.backends.OnDisk(af.backends.DiskEngine.SQLITE, folder=Path("."))
asyncio.run(flow.run(options=af.Options(state=state)))
print(json.dumps([open("sums.jsonl").read().split(), sorted(path.name for path in Path().iterdir())]))

flow = af.Flow("f")
flow.source([1]).to(af.CollectSink())
try:
    asyncio.run(flow.run(checkpointing=af.Checkpointing(storage="state")))
except af.CheckpointError as exc:
    print(json.dumps(str(exc)))
"""


@pytest.fixture(scope="module")
def without_fcntl(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return what ``PROGRAM`` prints on such a system."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT + PROGRAM],
        cwd=tmp_path_factory.mktemp("without-fcntl"),
        env={**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'connectors'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_module_of_the_core_and_of_the_file_connectors_is_imported_without_fcntl(
    without_fcntl: list[Any],
) -> None:
    assert without_fcntl[0] > 200


def test_a_pipeline_runs_without_fcntl_also_with_files_and_state_on_disk(
    without_fcntl: list[Any],
) -> None:
    assert without_fcntl[1] == [["1", "2", "4"], ["sums.jsonl"]]


def test_a_folder_for_checkpoints_says_that_the_system_has_no_locks(
    without_fcntl: list[Any],
) -> None:
    assert "has no fcntl, and so no file locks; use Linux, macOS or WSL" in without_fcntl[2]


def test_a_lock_is_held_by_one_open_file_until_it_is_closed(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))

    lock_exclusively(first)
    with pytest.raises(BlockingIOError):
        lock_exclusively(second)
    os.close(first)
    lock_exclusively(second)
    os.close(second)
