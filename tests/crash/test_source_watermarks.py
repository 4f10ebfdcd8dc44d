"""A killed program continues with the watermarks and the idleness that its source has given.

Nothing here depends on how long anything takes: a kill waits for checkpoints, and the program cannot end before.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest


async def program(folder: Path, parallelism: int, pause: float) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.marked_source", str(folder), str(parallelism)),
        str(pause),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )


def written(folder: Path) -> dict[str, list[str]]:
    return {
        name: sorted(
            line for file in (folder / name).glob("[!.]*") for line in file.read_text().splitlines()
        )
        for name in ("windows", "late", "met")
    }


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_output_of_a_killed_program_is_that_of_an_undisturbed_one(tmp_path: Path) -> None:
    may_end = tmp_path / "killed" / "go"
    may_end.parent.mkdir()
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "undisturbed" / "go").touch()
    undisturbed = await program(tmp_path / "undisturbed", 1, 0)
    await undisturbed.communicate()
    for parallelism in (1, 3, 2):
        killed = await program(tmp_path / "killed", parallelism, 0.02)
        assert killed.stdout is not None
        checkpoints = 0
        while checkpoints < 4:
            checkpoints += json.loads(await killed.stdout.readline()) == "CheckpointInfo"
        killed.kill()
        await killed.communicate()
        assert killed.returncode == -9
    may_end.touch()
    last = await program(tmp_path / "killed", 2, 0)
    await last.communicate()

    expected = written(tmp_path / "undisturbed")
    assert expected["late"]
    assert written(tmp_path / "killed") == expected
