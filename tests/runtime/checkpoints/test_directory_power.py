"""After a loss of power at any moment, with any unsynced content lost, completed checkpoints are there."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from aflow.errors import RestoreError
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.state.manifest import FileRef, Link
from tests.runtime.checkpoints.faulty_files import Killed
from tests.runtime.checkpoints.power_loss import PowerFiles
from tests.runtime.checkpoints.sample_checkpoints import TASK, changes, complete, manifest

FOLDER = Path("/state")


async def run_job(files: PowerFiles, completed: list[int]) -> None:
    """Take four incremental checkpoints, keeping one; ``completed`` gets those that are completed."""
    storage = DirectoryStorage(FOLDER, files=files)
    await storage.open("flow")
    chain: list[FileRef] = []
    for number in (1, 2, 3, 4):
        row = {0: [("a", str(number))]}
        step = complete(row) if number == 1 else changes(row)
        chain.append(await storage.write_part(number, TASK, 0, {"sums": step}))
        if number == 3:
            links = [Link(file, 0, 4) for file in chain]
            chain = [await storage.compact(number, TASK, 0, "sums", links)]
        await storage.complete(manifest(number, {"sums": [chain]}))
        completed.append(number)
        if number > 1:
            await storage.discard(number - 1)
        await storage.sweep(chain)
    await storage.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(6), ids=lambda seed: f"seed {seed}")
async def test_completed_checkpoints_survive_a_loss_of_power(seed: int) -> None:
    random = Random(seed)
    for moment in range(1, 500):
        files, completed = PowerFiles(fails_at=moment), [0]
        try:
            await run_job(files, completed)
        except Killed:
            pass
        else:
            return

        storage = DirectoryStorage(FOLDER, files=files.after_power_cut(random))
        await storage.open("flow")
        restored = await storage.latest()
        await storage.close()

        number = 0 if restored is None else restored.manifest.id
        assert number in {completed[-1], completed[-1] + 1}
        if restored is not None:
            assert restored.states["sums"] == complete({0: [("a", str(number))]})
    raise AssertionError("it never came to an end")


@pytest.mark.asyncio
async def test_the_model_of_the_disk_loses_unsynced_content() -> None:
    class Careless(PowerFiles):
        def sync_folder(self, path: Path) -> None:
            self.count()

    lost = 0
    for seed in range(10):
        files, completed = Careless(), [0]
        await run_job(files, completed)
        storage = DirectoryStorage(FOLDER, files=files.after_power_cut(Random(seed)))
        await storage.open("flow")
        try:
            restored = await storage.latest()
            lost += restored is None or restored.manifest.id < 4
        except RestoreError:
            lost += 1
        await storage.close()

    assert lost > 0
