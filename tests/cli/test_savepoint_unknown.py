"""A plan of a pipeline with window state of unknown type: it promises nothing that a restore does not keep."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.restoration import changes_of
from tests.cli.conftest import Aflow, Write

PIPELINE = """
    from datetime import timedelta
    import aflow as af

    def build() -> af.Flow:
        flow = af.Flow("sums")
        cards = flow.source([1], name="numbers").event_time(lambda n: n).key_by(lambda n: 1)
        sums = cards.window(af.Tumbling(timedelta(minutes=1)))
        sums.fold({initial}, lambda total, n: total, name="sums", of={initial}).to(af.CollectSink(), name="out")
        return flow
"""


def windows(initial: type[Any], source: af.Source[int]) -> af.Flow:
    flow = af.Flow("sums")
    cards = flow.source(source, name="numbers").event_time(lambda n: n).key_by(lambda n: 1)
    sums = cards.window(af.Tumbling(timedelta(minutes=1)))
    if initial is int:
        sums.fold(int, lambda total, n: total, name="sums", of=int).to(af.CollectSink(), name="out")
    else:
        sums.fold(str, lambda total, n: total, name="sums", of=str).to(af.CollectSink(), name="out")
    return flow


async def save(path: Path) -> None:
    numbers: af.PushSource[int] = af.PushSource()
    settings = af.Checkpointing(storage=path.parent / "state", every=None)
    async with windows(int, numbers).start(checkpointing=settings) as job:
        await numbers.send(1)
        await job.stop(savepoint=str(path))


@pytest.mark.parametrize("initial", ["int", "str"])
def test_windows_are_unknown_until_restored_and_the_exit_status_says_so(
    aflow: Aflow, write: Write, tmp_path: Path, initial: str
) -> None:
    asyncio.run(save(tmp_path / "sp"))
    write("shop", PIPELINE.format(initial=initial))

    result = aflow("savepoint", "plan", str(tmp_path / "sp"), "shop:build")

    assert (result.exit_code, result.stderr) == (3, "")
    assert "  step 'numbers' (source): kept" in result.stdout
    assert "  step 'sums' (window.fold): unknown until restored" in result.stdout
    assert "types are compared when the step is restored: panes" in result.stdout


@pytest.mark.asyncio
async def test_a_job_restores_unknown_state_or_rejects_its_type(
    tmp_path: Path,
) -> None:
    await save(tmp_path / "sp")
    numbers: af.PushSource[int] = af.PushSource()
    settings = af.Checkpointing(storage=tmp_path / "after", every=None)

    with pytest.raises(af.RestoreError, match="sums"):
        await windows(str, numbers).run(checkpointing=settings, restore=str(tmp_path / "sp"))

    plan = changes_of(
        windows(int, af.PushSource[int]()).plan(), await read_checkpoint(tmp_path / "sp")
    )
    assert (plan.unknown, plan.refused, plan.dropped) == (True, False, False)


@pytest.mark.asyncio
async def test_empty_windows_are_kept(tmp_path: Path) -> None:
    numbers: af.PushSource[int] = af.PushSource()
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    async with windows(int, numbers).start(checkpointing=settings) as job:
        await job.stop(savepoint=str(tmp_path / "sp"))

    plan = changes_of(
        windows(str, af.PushSource[int]()).plan(), await read_checkpoint(tmp_path / "sp")
    )

    assert not plan.unknown
