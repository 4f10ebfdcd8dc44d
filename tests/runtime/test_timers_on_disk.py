"""Jobs whose timers are in a database have the results of jobs whose timers are in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

import aflow as af
from aflow.state.disk import backend
from aflow.state.disk.rocksdb import rocksdb_installed

#: Timers in memory.
NEAR = 1024

#: Keys and event times in ms; more timers than are in memory.
RECORDS = [(key, Random(key).randrange(0, 60_000)) for key in range(3 * NEAR)]

Result = tuple[int, int, int]


class Late(af.KeyedProcess[int, tuple[int, int], Result]):
    """Emit key, time of the timer and number of records; each second record of a key moves its timer."""

    count = af.ValueState("count", of=int)
    at = af.ValueState("at", of=int)

    def process(self, value: tuple[int, int], ctx: af.Context[int]) -> Iterable[Result]:
        count, at = ctx.state(self.count), ctx.state(self.at)
        count.set(count.get(0) + 1)
        if (before := at.get()) is not None:
            ctx.delete_event_timer(before)
        at.set(value[1] + 100_000)
        ctx.set_event_timer(value[1] + 100_000)
        return ()

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[Result]:
        return [(ctx.key, at, ctx.state(self.count).get() or 0)]


class FailsOnce:
    """Raises for the record at ``index``, once."""

    def __init__(self, index: int) -> None:
        self.left = index

    def __call__(self, record: tuple[int, int]) -> tuple[int, int]:
        self.left -= 1
        if self.left == 0:
            raise ConnectionError("once")
        return record


def results(
    state: af.backends.InMemory | af.backends.OnDisk, folder: Path, fails_at: int
) -> list[Result]:
    found = af.CollectSink[Result]()
    flow = af.Flow("timers")
    moved = [(key, at + 5_000) for key, at in RECORDS[::2]]
    records = flow.source([*RECORDS, *moved], name="records").map(FailsOnce(fails_at), name="fail")
    timed = records.event_time(lambda record: record[1], max_delay=timedelta(seconds=70))
    timed.key_by(lambda record: record[0]).process(Late(), name="late").to(found, name="found")
    asyncio.run(
        flow.run(
            options=af.Options(state=state),
            checkpointing=af.Checkpointing(storage=folder, every=timedelta(milliseconds=20)),
            restart=af.restart.FixedDelay(1, delay=timedelta(0)),
        )
    )
    return found.values


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Return the results of an undisturbed job with its timers in memory."""
    return results(af.backends.InMemory(), tmp_path_factory.mktemp("memory"), 10**9)


@pytest.mark.slow
@pytest.mark.parametrize("engine", af.backends.DiskEngine)
def test_timers_on_disk_fire_as_those_in_memory_through_a_restart(
    tmp_path: Path,
    engine: af.backends.DiskEngine,
    in_memory: list[Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if engine is af.backends.DiskEngine.ROCKSDB and not rocksdb_installed():
        pytest.skip("rocksdict is not installed")

    monkeypatch.setattr(backend, "NEAR", NEAR)
    on_disk = results(af.backends.OnDisk(engine), tmp_path / "disk", len(RECORDS) + 1_000)

    assert [at for _, at, _ in on_disk] == sorted(at for _, at, _ in on_disk)
    assert sorted(on_disk) == sorted(in_memory)
    assert len(on_disk) == len(RECORDS)
