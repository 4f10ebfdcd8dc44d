"""A killed program continues with the watermarks and the idleness that its source has given.

Nothing here depends on how long anything takes: a kill waits for checkpoints, and the program cannot end before.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.forked import ForkServer


def written(folder: Path) -> dict[str, list[str]]:
    return {
        name: sorted(
            line for file in (folder / name).glob("[!.]*") for line in file.read_text().splitlines()
        )
        for name in ("windows", "late", "met")
    }


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_output_of_a_killed_program_is_that_of_an_undisturbed_one(
    forked: ForkServer, tmp_path: Path
) -> None:
    program = partial(forked.start, "tests.crash.marked_source")
    may_end = tmp_path / "killed" / "go"
    may_end.parent.mkdir()
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "undisturbed" / "go").touch()
    undisturbed = await program(tmp_path / "undisturbed", 1, 0)
    await undisturbed.communicate()
    for parallelism in (1, 3, 2):
        killed = await program(tmp_path / "killed", parallelism, 0.02)
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
