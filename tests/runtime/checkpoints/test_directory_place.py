"""The owner of a folder of checkpoints: one live job, of the flow that it belongs to."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aflow.errors import CheckpointError
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from tests.runtime.checkpoints.faulty_files import FaultyFiles

#: Opens the folder named by its argument, prints that, and runs until it is killed.
HOLDER = """
import asyncio, sys
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage

async def hold():
    await DirectoryStorage(sys.argv[1]).open("flow")
    print("open", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


@pytest.mark.asyncio
async def test_a_second_job_is_refused_naming_the_first(tmp_path: Path) -> None:
    first, second = DirectoryStorage(tmp_path), DirectoryStorage(tmp_path)
    await first.open("flow")

    with pytest.raises(CheckpointError) as refused:
        await second.open("flow")

    assert f"process {os.getpid()} on host {socket.gethostname()}" in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    await first.close()


@pytest.mark.asyncio
async def test_a_refused_job_leaves_the_first_one_its_lock(tmp_path: Path) -> None:
    first, second = DirectoryStorage(tmp_path), DirectoryStorage(tmp_path)
    await first.open("flow")

    for _ in range(2):
        with pytest.raises(CheckpointError, match="in use by another live job"):
            await second.open("flow")
        await second.close()

    await first.close()


@pytest.mark.asyncio
async def test_a_closed_storage_gives_its_folder_back(tmp_path: Path) -> None:
    first, second = DirectoryStorage(tmp_path), DirectoryStorage(tmp_path)
    await first.open("flow")
    await first.close()

    await second.open("flow")
    await second.close()
    await first.open("flow")
    await first.close()


@pytest.mark.asyncio
async def test_a_storage_is_opened_once_only(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")

    with pytest.raises(CheckpointError, match="is open already"):
        await storage.open("flow")

    assert await storage.next_id() == 1
    await storage.close()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:  # noqa: ASYNC220 - a test may wait
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(CheckpointError, match=f"process {holder.pid} on host"):
            await storage.open("flow")
        holder.send_signal(signal.SIGKILL)

    await storage.open("flow")
    await storage.close()


@pytest.mark.asyncio
async def test_a_lock_without_a_named_holder_refuses_nevertheless(tmp_path: Path) -> None:
    first, second = DirectoryStorage(tmp_path), DirectoryStorage(tmp_path)
    await first.open("flow")
    (tmp_path / "lock").write_bytes(b"\xff")

    with pytest.raises(CheckpointError, match="which has not said who it is"):
        await second.open("flow")

    await first.close()


@pytest.mark.asyncio
async def test_the_folder_of_another_flow_is_refused(tmp_path: Path) -> None:
    former = DirectoryStorage(tmp_path)
    await former.open("totals")
    await former.close()

    storage = DirectoryStorage(tmp_path)
    with pytest.raises(CheckpointError, match=r"flow 'totals', and this is 'alerts'"):
        await storage.open("alerts")

    await former.open("totals")
    await former.close()


@pytest.mark.asyncio
async def test_a_folder_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    place = {"format": 99, "aflow": "9.9", "flow": "flow"}
    (tmp_path / "flow.json").write_text(json.dumps(place))

    with pytest.raises(CheckpointError, match=r"format 99, written by aflow 9\.9"):
        await DirectoryStorage(tmp_path).open("flow")


@pytest.mark.asyncio
async def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path / "a" / "b")

    await storage.open("flow")
    await storage.close()

    place = json.loads((tmp_path / "a" / "b" / "flow.json").read_text())
    assert place["flow"] == "flow"


@pytest.mark.asyncio
async def test_a_folder_that_cannot_be_written_is_refused_with_the_next_step(
    tmp_path: Path,
) -> None:
    files = FaultyFiles(fails_at=1, error=errno.EROFS, for_good=True)
    storage = DirectoryStorage(tmp_path / "state", files=files)

    with pytest.raises(
        CheckpointError, match=r"state/.*Read-only file system; the folder must be writable"
    ):
        await storage.open("flow")


@pytest.mark.asyncio
async def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("notes")

    with pytest.raises(CheckpointError, match="state/lock: "):
        await DirectoryStorage(tmp_path / "state").open("flow")
