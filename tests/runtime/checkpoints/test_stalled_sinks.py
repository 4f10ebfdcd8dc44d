"""Checkpoints of a job whose sink does not return from a call for long, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeVar

import pytest

import aflow as af
from aflow.connect import Batch, Committable, Sink, Writer, WriterContext
from aflow.testing import Pause, ScriptedSource, VirtualClock
from aflow.testing.virtual_time import run, virtual_time
from aflow_connectors.files import JsonLinesSink
from tests.runtime.checkpoints.ledger_sink import LedgerSink

T = TypeVar("T")

SOON = timedelta(milliseconds=200)
MODES: dict[str, af.checkpoints.Aligned | af.checkpoints.Unaligned] = {
    "timeout": af.checkpoints.Aligned(timeout=SOON),
    "unaligned": af.checkpoints.Unaligned(),
}
#: Longer than any test.
NEVER = 1e9


class Stalling(Sink[T], Generic[T]):
    """Another sink, whose writers do not return from the call for a record (once) for ``seconds``."""

    def __init__(self, sink: Sink[T], record: T, *, seconds: float, call: str = "write") -> None:
        self.sink = sink
        self.delivery = sink.delivery
        self.record = record
        self.seconds = seconds
        self.call = call
        self.stalled = False

    async def writer(self, context: WriterContext) -> Writer[T]:
        return _StallingWriter(self, await self.sink.writer(context))

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        await self.sink.recover(name, committables)


class _StallingWriter(Writer[T]):
    def __init__(self, stalling: Stalling[T], writer: Writer[T]) -> None:
        self._stalling = stalling
        self._writer = writer
        self._seen = False

    async def write(self, batch: Batch[T]) -> None:
        written = self._writer.write(batch)
        if written is not None:
            await written
        self._seen = self._seen or self._stalling.record in batch.values
        await self._stall("write")

    async def flush(self) -> None:
        await self._writer.flush()

    async def prepare(self, checkpoint: int) -> Committable | None:
        return await self._writer.prepare(checkpoint)

    async def commit(self, committable: Committable) -> None:
        await self._stall("commit")
        await self._writer.commit(committable)

    async def close(self) -> None:
        await self._writer.close()

    async def _stall(self, call: str) -> None:
        stalling = self._stalling
        if self._seen and stalling.call == call and not stalling.stalled:
            stalling.stalled = True
            await asyncio.sleep(stalling.seconds)


def numbers(count: int) -> ScriptedSource[int]:
    lines: list[int | Pause] = []
    for number in range(count):
        lines += [number, Pause(timedelta(milliseconds=100))]
    return ScriptedSource(*lines)


def start(
    source: ScriptedSource[int],
    sink: Sink[int],
    folder: Path,
    mode: str,
    *,
    parallelism: int = 1,
    every: timedelta | None = None,
) -> af.Job:
    flow = af.Flow("stalling")
    stream = flow.source(source, name="numbers")
    (stream.rebalance() if parallelism > 1 else stream).to(sink, name="out")
    return flow.start(
        parallelism=parallelism,
        options=af.Options(clock=VirtualClock(), batch_records=1),
        checkpointing=af.Checkpointing(
            storage=folder / "checkpoints", every=every, barriers=MODES[mode]
        ),
    )


@pytest.mark.parametrize("seconds", [30.0, NEVER])
@pytest.mark.parametrize("call", ["write", "commit"])
@pytest.mark.parametrize("mode", MODES)
@virtual_time
async def test_a_checkpoint_does_not_wait_for_a_stalled_sink(
    mode: str, call: str, seconds: float, tmp_path: Path
) -> None:
    sink = Stalling(LedgerSink[int](), 3, seconds=seconds, call=call)

    async with start(numbers(50), sink, tmp_path, mode) as job:
        await asyncio.sleep(0.35)
        await job.checkpoint()  # its commit may stall
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await job.checkpoint()
        took = asyncio.get_running_loop().time() - began
        await job.cancel()

    assert sink.stalled
    assert took <= 1.3


@pytest.mark.parametrize("kind", ["ledger", "collect", "files"])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("call", ["write", "commit"])
@pytest.mark.parametrize("mode", MODES)
def test_each_record_is_there_once_after_restores_from_checkpoints_of_a_stalled_sink(
    mode: str, call: str, parallelism: int, kind: str, tmp_path: Path
) -> None:
    """The sink stalls for good in up to three attempts, with checkpoints meanwhile. Other subtasks continue."""
    ledger, collected, files = LedgerSink[int](), af.CollectSink[int](), tmp_path / "files"
    sinks: dict[str, Sink[int]] = {
        "ledger": ledger,
        "collect": collected,
        "files": JsonLinesSink[int](files),
    }
    source, stalled = numbers(60), 0

    async def main() -> None:
        nonlocal stalled
        for record in (7, 23, 41):
            sink = Stalling(sinks[kind], record, seconds=NEVER, call=call)
            every = timedelta(milliseconds=700)
            async with start(
                source, sink, tmp_path, mode, parallelism=parallelism, every=every
            ) as job:
                await asyncio.sleep(4.5)
                await job.cancel()
            stalled += sink.stalled
        async with start(source, sinks[kind], tmp_path, mode, parallelism=2) as job:
            await job.wait()

    run(main)

    assert stalled
    found = {
        "ledger": lambda: ledger.values,
        "collect": lambda: collected.values,
        "files": lambda: [
            int(line) for path in files.glob("*.jsonl") for line in path.read_text().splitlines()
        ],
    }
    assert sorted(found[kind]()) == list(range(60))


@virtual_time
async def test_a_stalled_sink_that_continues_writes_each_record_once(tmp_path: Path) -> None:
    ledger = LedgerSink[int]()
    sink = Stalling(ledger, 3, seconds=5)
    every = timedelta(milliseconds=700)

    async with start(numbers(80), sink, tmp_path, "timeout", every=every) as job:
        await job.wait()

    assert ledger.values == list(range(80))
