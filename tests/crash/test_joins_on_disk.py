"""A killed program with joins on disk has the results of one that is never killed, with joins in memory.

It is killed twice, and continues with another engine, then in memory, each time with another parallelism. Nothing here
depends on how long anything takes: each kill waits for a number of checkpoints.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aflow.state.disk.rocksdb import rocksdb_installed
from tests.forked import ForkServer

#: Checkpoints before a kill: the first kill interrupts the input.
CHECKPOINTS = 3


PROGRAM = "tests.crash.joins_on_disk"


async def killed_after_checkpoints(
    forked: ForkServer, folder: Path, backend: str, parallelism: int
) -> None:
    process = await forked.start(PROGRAM, folder, backend, parallelism)
    seen = 0
    while seen < CHECKPOINTS:
        line = (await process.stdout.readline()).decode()
        assert line, "the program has ended"
        seen += line.strip() == "CheckpointInfo"
    process.kill()
    await process.wait()


async def ended(forked: ForkServer, folder: Path, backend: str, parallelism: int) -> list[str]:
    """Run the program to its end, and return the lines that it has written."""
    folder.mkdir(exist_ok=True)
    (folder / "go").touch()
    process = await forked.start(PROGRAM, folder, backend, parallelism)
    await process.communicate()
    assert process.returncode == 0
    files = sorted((folder / "out").rglob("*.jsonl"))
    return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.asyncio
async def test_joins_on_disk_have_the_results_of_an_undisturbed_program_after_kills(
    forked: ForkServer, tmp_path: Path
) -> None:
    expected = await ended(forked, tmp_path / "undisturbed", "memory", 1)
    folder = tmp_path / "killed"
    folder.mkdir()

    await killed_after_checkpoints(
        forked, folder, "rocksdb" if rocksdb_installed() else "sqlite", 1
    )
    await killed_after_checkpoints(forked, folder, "sqlite", 3)
    left_over = list((folder / "scratch").iterdir())
    found = await ended(forked, folder, "memory", 2)

    assert left_over  # the databases were in use
    assert found == expected
    assert {line.split('"')[1] for line in found} == {"pair", "version", "session", "timer"}


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_program_that_is_killed_in_memory_continues_on_disk(
    forked: ForkServer, tmp_path: Path
) -> None:
    expected = await ended(forked, tmp_path / "undisturbed", "memory", 1)
    folder = tmp_path / "killed"
    folder.mkdir()

    await killed_after_checkpoints(forked, folder, "memory", 2)
    found = await ended(forked, folder, "sqlite", 1)

    assert found == expected
    assert list((folder / "scratch").iterdir()) == []
