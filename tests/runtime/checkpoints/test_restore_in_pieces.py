"""A job that is restored leaves the event loop to the host between pieces, and can be cancelled there."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import aflow as af
from aflow.runtime.garbage_collection import can_keep_objects, objects_are_kept
from aflow.state import stored_entries
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import virtual_time

#: Enough that a restore in pieces of one row yields some times, whatever the clock shows.
KEYS = 2_000


class Observed:
    """A codec of numbers that calls ``on_decode`` before it decodes one."""

    name = "observed"

    def __init__(self, on_decode: Callable[[], None] = lambda: None) -> None:
        self._on_decode = on_decode

    def encode(self, value: int) -> bytes:
        return value.to_bytes(4, "big")

    def decode(self, data: bytes) -> int:
        self._on_decode()
        return int.from_bytes(data, "big")


class Latest(af.KeyedProcess[int, int, tuple[int, int | None]]):
    """Emits each number with the preceding one of its key."""

    def __init__(self, codec: Observed, closed: list[str] | None = None) -> None:
        self.latest = af.ValueState("latest", codec=codec)
        self._closed = closed

    def process(self, value: int, ctx: af.Context[int]) -> Iterable[tuple[int, int | None]]:
        state = ctx.state(self.latest)
        before = state.get()
        state.set(value)
        return [(value, before)]

    def close(self) -> None:
        if self._closed is not None:
            self._closed.append("closed")


def build(
    more: Iterable[int], step: Latest, sink: af.Sink[tuple[int, int | None]], keys: int = KEYS
) -> af.Flow:
    """A flow over a number for each key, and ``more``, which a restored job reads anew."""
    flow = af.Flow("latest")
    numbers = flow.source(range(keys), name="numbers")
    if more:
        numbers = numbers.union(flow.source(more, name="more"))
    numbers.key_by(lambda n: n % KEYS, name="key").process(step, name="latest").to(sink, name="out")
    return flow


def settings(folder: Path) -> af.Checkpointing:
    return af.Checkpointing(every=None, storage=folder)


async def fill(folder: Path, keys: int = KEYS) -> None:
    flow = build((), Latest(Observed()), af.CollectSink(), keys)
    await flow.run(checkpointing=settings(folder))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "backend", [af.backends.InMemory(), af.backends.OnDisk()], ids=["memory", "disk"]
)
@pytest.mark.parametrize("parallelism", [1, 3])
async def test_other_coroutines_run_between_the_rows_of_a_restore(
    tmp_path: Path, parallelism: int, backend: af.backends.InMemory | af.backends.OnDisk
) -> None:
    await fill(tmp_path / "before")
    turns, at_rows = 0, list[int]()
    loop = asyncio.get_running_loop()

    def other() -> None:
        nonlocal turns
        turns += 1

    def on_row() -> None:
        at_rows.append(turns)
        loop.call_soon(other)

    step = Latest(Observed(on_row))
    sink = af.CollectSink[tuple[int, int | None]]()
    with patch.object(stored_entries, "_BYTES", 0):
        flow = build(range(KEYS, KEYS + 10), step, sink)
        await flow.run(
            checkpointing=settings(tmp_path / "after"),
            restore=tmp_path / "before",
            parallelism=parallelism,
            options=af.Options(state=backend),
        )

    assert len(at_rows) >= KEYS
    assert len(set(at_rows)) >= KEYS // 256 - 1
    assert sorted(sink.values) == [(KEYS + n, n) for n in range(10)]


@pytest.mark.asyncio
@pytest.mark.parametrize("row", [1, KEYS // 2, KEYS])
async def test_a_start_that_is_cancelled_while_it_restores_closes_everything(
    tmp_path: Path, row: int
) -> None:
    await fill(tmp_path)
    closed, rows = list[str](), 0

    def cancel_at_row() -> None:
        nonlocal rows
        rows += 1
        if rows == row:
            starting.cancel()

    async def start() -> None:
        flow = build(range(1), Latest(Observed(cancel_at_row), closed), af.CollectSink())
        async with flow.start(checkpointing=settings(tmp_path)):
            pytest.fail("the job was started")

    with no_leftovers("the start"), patch.object(stored_entries, "_BYTES", 0):
        starting = asyncio.create_task(start())
        await asyncio.wait([starting])

    assert starting.cancelled()
    assert rows < KEYS or row == KEYS
    assert closed == ["closed"]
    sink = af.CollectSink[tuple[int, int | None]]()
    flow = build(range(KEYS, KEYS + 1), Latest(Observed()), sink)
    await flow.run(checkpointing=settings(tmp_path / "again"), restore=tmp_path)
    assert sink.values == [(KEYS, 0)]


@pytest.mark.asyncio
async def test_a_restore_that_fails_in_the_middle_names_the_step_and_closes_it(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    closed, rows = list[str](), 0

    def fail_at_row() -> None:
        nonlocal rows
        rows += 1
        if rows == KEYS // 2:
            raise KeyError("a row that the codec cannot read")

    flow = build(range(1), Latest(Observed(fail_at_row), closed), af.CollectSink())

    with no_leftovers("the start"), pytest.raises(af.errors.RestoreError, match="step 'latest'"):
        await flow.run(checkpointing=settings(tmp_path))
    assert closed == ["closed"]


@pytest.mark.asyncio
async def test_a_running_job_does_not_keep_the_content_of_its_checkpoint(tmp_path: Path) -> None:
    await fill(tmp_path / "before")
    source = af.PushSource[int]()
    flow = af.Flow("latest")
    keyed = flow.source(source, name="numbers").key_by(lambda n: n % KEYS, name="key")
    keyed.process(Latest(Observed()), name="latest").to(af.CollectSink(), name="out")

    async with flow.start(
        checkpointing=settings(tmp_path / "after"), restore=tmp_path / "before"
    ) as job:
        gc.collect()
        kept = [one for one in gc.get_objects() if type(one) is stored_entries.Frame]
        await job.cancel()

    assert not kept


@pytest.fixture
def thawed() -> Iterator[None]:
    """Let the collector treat the objects that exist as at the start of a program."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_a_block_whose_objects_are_kept_has_no_collection_and_its_objects_are_old() -> None:
    collections: list[int] = []

    def observe(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and threading.current_thread() is threading.main_thread():
            collections.append(info["generation"])

    assert can_keep_objects()
    gc.collect()
    gc.callbacks.append(observe)
    try:
        with objects_are_kept():
            made = [[n] for n in range(10_000)]
    finally:
        gc.callbacks.remove(observe)

    assert gc.isenabled()
    assert collections == []
    assert gc.get_freeze_count() == 0
    assert any(one is made[0] for one in gc.get_objects(generation=2))


@pytest.mark.parametrize(
    ("keys", "size", "asked"), [(10, 1 << 15, 0), (KEYS, 0, 1)], ids=["small", "large"]
)
@virtual_time
async def test_frozen_objects_are_counted_only_for_large_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, size: int, asked: int
) -> None:
    count, counts = gc.get_freeze_count, list[int]()

    def counted() -> int:
        counts.append(count())
        return counts[-1]

    await fill(tmp_path / "before", keys)
    monkeypatch.setattr(gc, "get_freeze_count", counted)
    flow = build((), Latest(Observed()), af.CollectSink(), keys)
    with patch.object(stored_entries, "_BYTES", size):
        await flow.run(checkpointing=settings(tmp_path / "after"), restore=tmp_path / "before")

    assert len(counts) == asked


@pytest.mark.usefixtures("thawed")
def test_the_collector_is_enabled_again_after_an_error() -> None:
    with pytest.raises(KeyError), objects_are_kept():
        raise KeyError

    assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_a_program_that_disables_or_freezes_its_collector_is_left_alone() -> None:
    gc.disable()
    disabled = can_keep_objects()
    gc.enable()
    gc.freeze()
    frozen = can_keep_objects()
    gc.unfreeze()

    assert not disabled
    assert not frozen
