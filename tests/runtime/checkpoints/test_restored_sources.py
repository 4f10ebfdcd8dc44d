"""Restored sources: splits that were partly read, ended, not started or new, and partly processed chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

import aflow as af
import aflow.operators.sink as sink_operator
from aflow.connect import BadRecord, Chunk, Position, Reader, Source, Split
from aflow.testing import Crash, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.virtual_time import virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

SECOND = timedelta(seconds=1)
AT_ONCE = af.restart.FixedDelay(10, timedelta(0))
BAD = af.Tag[BadRecord]("bad")


def every_second(folder: Path) -> af.Checkpointing:
    return af.Checkpointing(every=SECOND, storage=folder)


def virtual() -> af.Options:
    return af.Options(clock=VirtualClock())


def through(source: Source[int], sink: af.Sink[int]) -> af.Flow:
    flow = af.Flow("through")
    flow.source(source, name="numbers").to(sink, name="out")
    return flow


Content: TypeAlias = Mapping[str, Sequence[Sequence[int] | float]]
"""By split: chunks, and pauses in seconds."""


class Splits(Source[int]):
    """Splits that are lists of chunks, and of pauses in seconds.

    ``opened`` lists where readers have begun.
    """

    def __init__(
        self,
        splits: Content,
        *,
        concurrency: int | None = 1,
        discover_every: timedelta | None = None,
    ) -> None:
        self.content = dict(splits)
        self.concurrency = concurrency
        self.discover_every = discover_every
        self.bounded = discover_every is None
        self.opened: list[tuple[str, Position | None]] = []

    async def splits(self) -> Sequence[Split]:
        return [Split(name) for name in self.content]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        self.opened.append((split.id, position))
        return _SplitReader(self.content[split.id], position if isinstance(position, int) else 0)


class _SplitReader(Reader[int]):
    def __init__(self, chunks: Sequence[Sequence[int] | float], start: int) -> None:
        self._chunks = chunks
        self._next = start

    async def read(self, limit: int) -> Chunk[int] | None:
        while self._next < len(self._chunks):
            chunk = self._chunks[self._next]
            self._next += 1
            if not isinstance(chunk, Sequence):
                await asyncio.sleep(chunk)
                continue
            return Chunk(chunk, self._next)
        return None


async def first_run(flow: af.Flow, folder: Path, seconds: float, parallelism: int = 1) -> None:
    """Run for so long, take a last checkpoint and cancel."""
    async with flow.start(
        parallelism=parallelism, options=virtual(), checkpointing=every_second(folder)
    ) as job:
        await asyncio.sleep(seconds)
        await job.savepoint(folder.parent / "savepoint")
        await job.cancel()


async def from_savepoint(flow: af.Flow, tmp_path: Path, parallelism: int = 1) -> None:
    async with flow.start(
        parallelism=parallelism,
        options=virtual(),
        checkpointing=every_second(tmp_path / "second"),
        restore=tmp_path / "savepoint",
    ) as job:
        await job.wait()


@virtual_time
async def test_ended_splits_are_not_opened_partly_read_ones_continue_and_others_start(
    tmp_path: Path,
) -> None:
    content: Content = {"ended": [[1, 2]], "half": [[3], [4], 5.0, [5]], "never begun": [[6]]}
    sink = LedgerSink[int]()

    await first_run(through(Splits(content), sink), tmp_path / "first", 2)
    again = Splits(content)
    await from_savepoint(through(again, sink), tmp_path)

    assert again.opened == [("half", 2), ("never begun", None)]
    assert sorted(sink.values) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 1), (1, 3), (2, 3)])
@virtual_time
async def test_half_read_splits_are_shared_out_among_another_number_of_subtasks(
    tmp_path: Path, before: int, after: int
) -> None:
    content: Content = {f"split {n}": [[10 * n, 10 * n + 1], 5.0, [10 * n + 2]] for n in range(4)}
    sink = LedgerSink[int]()

    await first_run(through(Splits(content), sink), tmp_path / "first", 2, before)
    await from_savepoint(through(Splits(content), sink), tmp_path, after)

    assert sorted(sink.values) == sorted(10 * n + m for n in range(4) for m in range(3))


@virtual_time
async def test_event_time_waits_for_all_half_read_splits_though_one_is_read_at_a_time(
    tmp_path: Path,
) -> None:
    # Each subtask has read the begin of its split; the ends of all are read by one subtask, one after the other.
    content: Content = {f"split {n}": [[1_000 + n], 5.0, [4_000 + n, 21_000 + n]] for n in range(3)}
    sink = LedgerSink[tuple[int, int]]()

    def windows(source: Source[int]) -> af.Flow:
        flow = af.Flow("windows")
        timed = flow.source(source, name="records").event_time(lambda at: at, name="time")
        counts = timed.key_by(lambda at: "all").window(af.Tumbling(timedelta(seconds=10)))
        counted = counts.fold(int, lambda count, _: count + 1, name="count")
        counted.map(lambda one: (one.window.start, one.value)).to(sink, name="out")
        return flow

    await first_run(windows(Splits(content)), tmp_path / "first", 2, 3)
    await from_savepoint(windows(Splits(content)), tmp_path, 1)

    assert sink.values == [(0, 6), (20_000, 3)]


@virtual_time
async def test_splits_that_are_discovered_after_a_restore_are_read_and_old_ones_are_not(
    tmp_path: Path,
) -> None:
    content: Content = {"a": [[1]], "b": [[2], 5.0, [3]]}
    sink = LedgerSink[int]()
    first = Splits(content, concurrency=None, discover_every=SECOND)
    await first_run(through(first, sink), tmp_path / "first", 2)

    second = Splits(content, concurrency=None, discover_every=SECOND)
    async with through(second, sink).start(
        options=virtual(),
        checkpointing=every_second(tmp_path / "second"),
        restore=tmp_path / "savepoint",
    ) as job:
        await asyncio.sleep(3)
        second.content["c"] = [[4]]
        await asyncio.sleep(10)
        await job.stop()

    assert second.opened == [("b", 1), ("c", None)]
    assert sorted(sink.values) == [1, 2, 3, 4]


@virtual_time
async def test_a_checkpoint_of_a_job_that_has_gone_on_knows_the_splits_that_it_has_not_reached(
    tmp_path: Path,
) -> None:
    content: Content = {f"split {n}": [[10 * n], 9.0, [10 * n + 1]] for n in range(3)}
    sink = LedgerSink[int]()
    await first_run(through(Splits(content), sink), tmp_path / "first", 2, 3)

    # One subtask continues the first of three partly read splits, and is cancelled again.
    async with through(Splits(content), sink).start(
        options=virtual(),
        checkpointing=every_second(tmp_path / "second"),
        restore=tmp_path / "savepoint",
    ) as job:
        await asyncio.sleep(2)
        await job.cancel()
    async with through(Splits(content), sink).start(
        options=virtual(), checkpointing=every_second(tmp_path / "second")
    ) as job:
        await job.wait()

    assert sorted(sink.values) == [0, 1, 10, 11, 20, 21]


class OneChunk(Source[int]):
    """Two chunks of a hundred with bad records among them; the second reader has chunks of seven."""

    dead_letters = BAD

    def __init__(self, *, shrinks: bool = False) -> None:
        self.shrinks = shrinks
        self.started: list[Position | None] = []

    async def splits(self) -> Sequence[Split]:
        return [Split("all")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        first = not self.started
        self.started.append(position)
        start = position if isinstance(position, int) else 0
        end = 200 if first or not self.shrinks else start
        return _OneChunkReader(100 if first else 7, start, end)


class _OneChunkReader(Reader[int]):
    def __init__(self, size: int, start: int, end: int) -> None:
        self._size = size
        self._at = start
        self._end = end

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._at >= self._end:
            return None
        values = list(range(self._at, min(self._at + self._size, self._end)))
        bad = [BadRecord(str(n), "ends with 0", b"") for n in values if n % 10 == 0]
        self._at += len(values)
        return Chunk([n for n in values if n % 10], self._at, None, bad)


class FailsOnce:
    """Fails when it sees ``at`` for the first time."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.failed = False

    def __call__(self, value: int) -> int:
        if value == self.at and not self.failed:
            self.failed = True
            raise ValueError(f"the first {value}")
        return value


def in_chunks(source: OneChunk, good: af.Sink[int], bad: af.Sink[str], at: int) -> af.Flow:
    """Build a slow sink after a step that fails once at ``at``."""
    flow = af.Flow("chunks")
    numbers = flow.source(source, name="numbers")
    numbers.rebalance().map(FailsOnce(at), name="fail").to(good, name="good")
    numbers.side(BAD).map(lambda one: one.place, name="place").to(bad, name="bad")
    return flow


def unaligned(folder: Path) -> af.Checkpointing:
    return af.Checkpointing(every=SECOND, storage=folder, barriers=af.checkpoints.Unaligned())


SMALL = af.Options(batch_records=10, channel_records=10)


@pytest.mark.parametrize("at", [35, 95, 101, 145, 199])
def test_a_chunk_that_was_processed_in_part_is_gone_on_with_in_its_midst_even_if_chunks_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    good, bad, source = LedgerSink[int](delay=0.7), LedgerSink[str](), OneChunk()
    monkeypatch.setattr(sink_operator, "_CAPACITY", 10)

    run_flow(
        in_chunks(source, good, bad, at),
        options=SMALL,
        checkpointing=unaligned(tmp_path),
        restart=AT_ONCE,
    )

    assert len(source.started) == 2
    assert source.started[1] == (100 if at > 110 else None)
    assert sorted(good.values) == [n for n in range(200) if n % 10]
    assert sorted(bad.values, key=int) == [str(n) for n in range(0, 200, 10)]


def test_a_split_that_has_become_shorter_fails_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = OneChunk(shrinks=True)
    monkeypatch.setattr(sink_operator, "_CAPACITY", 10)

    with pytest.raises(af.errors.SourceError, match="has changed: it ends"):
        run_flow(
            in_chunks(source, LedgerSink[int](delay=0.7), LedgerSink(), 55),
            options=SMALL,
            checkpointing=unaligned(tmp_path),
            restart=af.restart.FixedDelay(1, timedelta(0)),
        )


def test_an_iterator_can_be_read_once_and_a_restart_says_so(tmp_path: Path) -> None:
    def fail(n: int) -> int:
        if n == 3:
            raise ValueError("three")
        return n

    flow = af.Flow("iterator")
    flow.source(af.IterableSource(iter(range(5))), name="numbers").map(fail, name="fail").to(
        LedgerSink(), name="out"
    )

    with pytest.raises(af.errors.SourceError, match=r"numbers.*iterator"):
        run_flow(flow, checkpointing=every_second(tmp_path), restart=AT_ONCE)


@virtual_time
async def test_records_pushed_during_a_restart_are_read_by_the_next_attempt(
    tmp_path: Path,
) -> None:
    failed = list[int]()

    def fail_once(n: int) -> int:
        if n == 3 and not failed:
            failed.append(n)
            raise ValueError("three")
        return n

    source, sink = af.PushSource[int](), LedgerSink[int]()
    flow = af.Flow("pushed")
    flow.source(source, name="pushed").map(fail_once, name="fail").to(sink, name="out")

    async with flow.start(
        options=virtual(),
        checkpointing=every_second(tmp_path),
        restart=af.restart.FixedDelay(5, timedelta(seconds=10)),
    ) as job:
        await source.send(1)
        await asyncio.sleep(3)
        await source.send(3)  # fails, and is lost: it cannot be pushed again
        await asyncio.sleep(15)
        await source.send(4)
        await asyncio.sleep(3)
        await job.stop()

    assert sink.values == [1, 4]


class Live(OneChunk):
    """A source that repeats nothing: its second reader has later records."""

    replayable = False

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        first = not self.started
        self.started.append(position)
        return _OneChunkReader(100, 0, 100) if first else _OneChunkReader(7, 1000, 1050)


def test_new_records_of_a_source_that_repeats_nothing_are_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = LedgerSink[int](delay=0.7)
    monkeypatch.setattr(sink_operator, "_CAPACITY", 10)

    run_flow(
        in_chunks(Live(), good, LedgerSink(), 55),
        options=SMALL,
        checkpointing=unaligned(tmp_path),
        restart=AT_ONCE,
    )

    assert [n for n in good.values if n >= 1000] == [n for n in range(1000, 1050) if n % 10]


@pytest.mark.parametrize("where", range(12))
def test_a_crash_at_any_record_of_several_splits_loses_and_doubles_none(
    tmp_path: Path, where: int
) -> None:
    scripts: dict[str, list[int | Pause | Crash]] = {
        f"split {n}": [
            line for m in range(4) for line in (10 * n + m, Pause(SECOND * (0.3 * n + 0.4)))
        ]
        for n in range(3)
    }
    scripts[f"split {where % 3}"].insert(1 + 2 * (where // 3), Crash())
    sink = LedgerSink[int]()

    run_flow(
        through(ScriptedSource.of_splits(scripts), sink),
        parallelism=2,
        checkpointing=every_second(tmp_path),
        restart=AT_ONCE,
    )

    assert sorted(sink.values) == [10 * n + m for n in range(3) for m in range(4)]
