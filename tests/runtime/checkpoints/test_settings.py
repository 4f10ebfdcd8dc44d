"""Invalid settings of checkpoints are refused when they are made, with name and value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af

SECOND = timedelta(seconds=1)


def checkpointing(**chosen: Any) -> af.Checkpointing:
    arguments: dict[str, Any] = {"storage": "state", **chosen}
    return af.Checkpointing(**arguments)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"storage": ""}, "Checkpointing.storage needs a folder, not ''"),
        ({"storage": None}, "Checkpointing.storage takes a folder.*not None"),
        ({"storage": 5}, r"Checkpointing.storage takes a folder.*not 5, which has no open\(\)"),
        ({"storage": b"state"}, "Checkpointing.storage takes a folder.*not b'state'"),
        ({"every": 10}, r"Checkpointing.every must be a timedelta, not int: 10"),
        ({"every": timedelta(0)}, "Checkpointing.every must be longer than zero"),
        ({"timeout": None}, "Checkpointing.timeout must be a timedelta"),
        ({"timeout": timedelta(0)}, "Checkpointing.timeout must be longer than zero"),
        ({"min_pause": 1}, "Checkpointing.min_pause must be a timedelta"),
        ({"min_pause": -SECOND}, "Checkpointing.min_pause must not be negative"),
        ({"keep": 0}, "Checkpointing.keep must be a whole number from 1 on, not 0"),
        ({"keep": True}, "Checkpointing.keep must be a whole number from 1 on, not True"),
        ({"max_concurrent": 0}, "Checkpointing.max_concurrent must be a whole number from 1 on"),
        ({"tolerable_failures": -1}, "Checkpointing.tolerable_failures must be a whole number"),
        ({"incremental": "no"}, "Checkpointing.incremental takes True or False, not 'no'"),
        ({"barriers": "unaligned"}, r"Checkpointing.barriers takes Aligned\(\) or Unaligned\(\)"),
        (
            {"barriers": af.checkpoints.Unaligned},
            r"Checkpointing.barriers takes Aligned\(\) or Unaligned\(\)",
        ),
        (
            {"guarantee": "exactly once"},
            "Checkpointing.guarantee takes a member of ProcessingGuarantee",
        ),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(chosen: dict[str, Any], sentence: str) -> None:
    with pytest.raises(af.FlowDefinitionError, match=f"^{sentence}"):
        checkpointing(**chosen)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: af.checkpoints.Aligned(timeout=2),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            "Aligned.timeout must be a timedelta, not int: 2",
        ),
        (lambda: af.checkpoints.Aligned(timeout=-SECOND), "Aligned.timeout must not be negative"),
        (
            lambda: af.checkpoints.Unaligned(pickle="yes"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            "Unaligned.pickle takes True or False, not 'yes'",
        ),
    ],
)
def test_barriers_that_make_no_sense_are_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(af.FlowDefinitionError, match=f"^{sentence}"):
        make()


@pytest.mark.parametrize(
    "barriers", [af.checkpoints.Unaligned(), af.checkpoints.Aligned(timeout=SECOND)]
)
def test_barriers_that_overtake_are_for_exactly_once(
    barriers: af.checkpoints.Aligned | af.checkpoints.Unaligned,
) -> None:
    with pytest.raises(af.FlowDefinitionError, match="leave barriers out"):
        checkpointing(barriers=barriers, guarantee=af.checkpoints.ProcessingGuarantee.AT_LEAST_ONCE)


async def told(event: object) -> None:
    """A coroutine function, which is no valid ``on_event``."""


@pytest.mark.parametrize(
    ("argument", "value", "sentence"),
    [
        ("checkpointing", "state", r"checkpointing takes Checkpointing\(storage=…\), not 'state'"),
        ("checkpointing", af.Checkpointing, r"checkpointing takes Checkpointing\(storage=…\), not"),
        ("restart", 3, r"restart takes .*FixedDelay\(…\).*, not 3"),
        (
            "restart",
            af.restart.ExponentialDelay,
            r"restart takes .*ExponentialDelay\(…\).*, not <class",
        ),
        ("restore", 5, "restore takes 'latest', 'fresh' or the path of a savepoint, not 5"),
        ("restore", None, "restore takes 'latest', 'fresh' or the path of a savepoint, not None"),
        ("restore", "", "restore takes 'latest', 'fresh' or the path of a savepoint, not ''"),
        ("restore", b"sp", "restore takes 'latest', 'fresh' or the path of a savepoint, not b'"),
        ("restore", "savepoints/1", "restore='savepoints/1' needs checkpointing=Checkpointing"),
        ("allow_dropped_state", "yes", "allow_dropped_state takes True or False, not 'yes'"),
        ("on_event", 5, "on_event takes a function, not 5"),
        ("on_event", told, "on_event takes a plain function.*is a coroutine function"),
    ],
)
def test_an_argument_of_start_that_makes_no_sense_is_refused_before_anything_runs(
    argument: str, value: object, sentence: str
) -> None:
    flow = af.Flow("flow")
    flow.source([1]).to(af.CallbackSink(print))
    arguments: dict[str, Any] = {argument: value}

    with pytest.raises(af.FlowDefinitionError, match=f"^{sentence}"):
        flow.start(**arguments)


def job(folder: Path, source: af.PushSource[int]) -> Any:
    flow = af.Flow("flow")
    flow.source(source, name="numbers").to(af.DiscardSink(), name="out")
    return flow.start(checkpointing=af.Checkpointing(storage=folder / "state", every=None))


@pytest.mark.asyncio
async def test_a_job_is_not_stopped_for_a_savepoint_with_an_existing_name(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    source = af.PushSource[int]()

    async with job(tmp_path, source) as running:
        with pytest.raises(af.CheckpointError, match="taken already: a savepoint needs a name"):
            await running.stop(savepoint=tmp_path / "taken")
        await source.send(1)
        await running.stop(savepoint=tmp_path / "free")

    assert (tmp_path / "free").is_dir()


@pytest.mark.asyncio
async def test_a_savepoint_with_an_existing_name_costs_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("notes")

    async with job(tmp_path, af.PushSource[int]()) as running:
        with pytest.raises(af.CheckpointError, match="taken already: a savepoint needs a name"):
            await running.savepoint(tmp_path / "taken")
        taken = running.checkpoints

    assert taken == []


@pytest.mark.asyncio
async def test_a_savepoint_below_a_file_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("notes")

    async with job(tmp_path, af.PushSource[int]()) as running:
        with pytest.raises(
            af.CheckpointError, match=r"cannot write .*file/here: .*file is no folder"
        ):
            await running.savepoint(tmp_path / "file" / "here")


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["", None, 5, b"here"])
async def test_a_savepoint_needs_a_folder(tmp_path: Path, path: Any) -> None:
    async with job(tmp_path, af.PushSource[int]()) as running:
        with pytest.raises(af.FlowDefinitionError, match="takes the path of a new folder, not"):
            await running.savepoint(path)


@pytest.mark.asyncio
async def test_stopping_an_ended_job_with_a_savepoint_raises(
    tmp_path: Path,
) -> None:
    source = af.PushSource[int]()

    async with job(tmp_path, source) as running:
        source.close()
        await running.wait()
        with pytest.raises(af.JobStopped, match=r"ended before .*late could be written"):
            await running.stop(savepoint=tmp_path / "late")

    assert not (tmp_path / "late").exists()


@pytest.mark.asyncio
async def test_an_event_names_the_savepoint_that_a_job_continues_from(tmp_path: Path) -> None:
    async with job(tmp_path, af.PushSource[int]()) as running:
        await running.stop(savepoint=tmp_path / "sp")
    events: list[af.JobEvent] = []
    flow = af.Flow("flow")
    flow.source(af.PushSource[int](), name="numbers").to(af.CallbackSink(print), name="out")

    settings = af.Checkpointing(storage=tmp_path / "other", every=None)
    async with flow.start(
        checkpointing=settings, restore=tmp_path / "sp", on_event=events.append
    ) as running:
        await running.stop()
    async with flow.start(checkpointing=settings, on_event=events.append) as running:
        await running.stop()

    restored = [one.path for one in events if isinstance(one, af.restart.JobRestored)]
    assert restored == [str(tmp_path / "sp"), ""]
