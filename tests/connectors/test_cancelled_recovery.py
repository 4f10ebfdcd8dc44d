"""A job that is cancelled while its sink recovers ends after the recovery, so that the next job does not meet it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

import aflow as af
from aflow_connectors.files import JsonLinesSink
from aflow_connectors.files.output.pieces import FolderRecovery
from aflow_connectors.s3 import JsonLinesObjectSink
from aflow_connectors.s3.output import ObjectFolder

SINKS: dict[str, tuple[type, str, Callable[[Path], af.connect.Sink[Any]]]] = {
    "files": (FolderRecovery, "recover", lambda folder: JsonLinesSink(folder / "out")),
    "objects": (
        ObjectFolder,
        "begin",
        lambda folder: JsonLinesObjectSink("memory:///out", store=MemoryStore()),
    ),
}


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.asyncio
async def test_the_recovery_of_a_sink_has_ended_when_the_job_has(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    owner, name, new_sink = SINKS[kind]
    recover, may_recover = getattr(owner, name), threading.Event()
    begun, ended = asyncio.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def recover_late(*arguments: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert may_recover.wait(30)
        result = recover(*arguments, **options)
        ended.append("recovered")
        return result

    monkeypatch.setattr(owner, name, recover_late)
    flow = af.Flow("recovery")
    flow.source([1]).to(new_sink(tmp_path), name="out")
    checkpointing = af.Checkpointing(storage=tmp_path / "state")
    running = asyncio.create_task(flow.run(checkpointing=checkpointing))
    await begun.wait()

    running.cancel()
    loop.call_later(0.05, may_recover.set)
    await asyncio.wait([running])

    assert running.cancelled()
    assert ended == ["recovered"]
