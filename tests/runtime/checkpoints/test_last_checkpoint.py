"""Any end of a job with checkpoints: it ends soon, leaves nothing open, and waiting callers get an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.connect import Committable, Source
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.testing import Crash, Pause, ScriptedSource, VirtualClock
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

SECOND = timedelta(seconds=1)
HOUR = Pause(timedelta(hours=1))
REFUSED = (af.CheckpointError, af.JobStopped)


def every_second(folder: Path) -> af.Checkpointing:
    return af.Checkpointing(every=SECOND, storage=folder)


def on_request(folder: Path) -> af.Checkpointing:
    return af.Checkpointing(every=None, storage=folder)


def summing(source: Source[int], sink: af.Sink[int]) -> af.Flow:
    """Running sums of even and odd numbers."""
    flow = af.Flow("sums")
    numbers = flow.source(source, name="numbers").key_by(lambda n: n % 2)
    numbers.fold(int, lambda total, n: total + n, name="sum").to(sink, name="out")
    return flow


def virtual() -> af.Options:
    return af.Options(clock=VirtualClock())


async def can_be_claimed(folder: Path) -> None:
    """Assert that the lock of ``folder`` was released."""
    storage = DirectoryStorage(folder)
    await storage.open("sums")
    await storage.close()


class SlowToRecover(LedgerSink[int]):
    """A sink that takes an hour to recover from a checkpoint, but not the first time."""

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        again = "recover" in self.asked
        await super().recover(name, committables)
        if again:
            await asyncio.sleep(3600)


@virtual_time
async def test_cancelling_during_a_backoff_ends_the_job_at_once(tmp_path: Path) -> None:
    loop, source = asyncio.get_running_loop(), ScriptedSource[int](1, Crash(), HOUR)

    with no_leftovers("the job"):
        async with summing(source, LedgerSink()).start(
            options=virtual(),
            checkpointing=every_second(tmp_path),
            restart=af.restart.FixedDelay(9, timedelta(minutes=5)),
        ) as job:
            await asyncio.sleep(10)
            await job.cancel()

    assert loop.time() == 10.0
    assert not job.running
    await can_be_claimed(tmp_path)


@virtual_time
async def test_an_exception_in_the_block_during_a_backoff_ends_the_job_at_once(
    tmp_path: Path,
) -> None:
    loop, source = asyncio.get_running_loop(), ScriptedSource[int](1, Crash(), HOUR)

    async def host() -> None:
        async with summing(source, LedgerSink()).start(
            options=virtual(),
            checkpointing=every_second(tmp_path),
            restart=af.restart.FixedDelay(9, timedelta(minutes=5)),
        ):
            await asyncio.sleep(10)
            raise KeyError("the host's own")

    with no_leftovers("the job"), pytest.raises(KeyError, match="the host's own"):
        await host()

    assert loop.time() == 10.0


@virtual_time
async def test_a_host_that_is_cancelled_during_a_backoff_does_not_wait(tmp_path: Path) -> None:
    loop, source = asyncio.get_running_loop(), ScriptedSource[int](1, Crash(), HOUR)
    flow = summing(source, LedgerSink())

    with no_leftovers("the job"), pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await flow.run(
                options=virtual(),
                checkpointing=every_second(tmp_path),
                restart=af.restart.FixedDelay(9, timedelta(minutes=5)),
            )

    assert loop.time() == 10.0
    await can_be_claimed(tmp_path)


@virtual_time
async def test_a_host_that_is_cancelled_while_the_job_does_not_even_start_does_not_wait(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()

    class Closed(LedgerSink[int]):
        async def recover(self, name: str, committables: Sequence[Committable]) -> None:
            raise ConnectionError("not there yet")

    with no_leftovers("the job"), pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await summing(ScriptedSource(1), Closed()).run(
                options=virtual(),
                checkpointing=every_second(tmp_path),
                restart=af.restart.FixedDelay(9, timedelta(minutes=5)),
            )

    assert loop.time() == 10.0


@pytest.mark.parametrize("drain", [False, True])
@virtual_time
async def test_stopping_during_a_backoff_does_not_wait_for_its_end_and_raises_the_cause(
    tmp_path: Path, drain: bool
) -> None:
    loop, source = asyncio.get_running_loop(), ScriptedSource[int](1, Crash(), HOUR)

    with no_leftovers("the job"):
        async with summing(source, LedgerSink()).start(
            options=virtual(),
            checkpointing=every_second(tmp_path),
            restart=af.restart.FixedDelay(9, timedelta(minutes=5)),
        ) as job:
            await asyncio.sleep(10)
            with pytest.raises(af.errors.SourceError, match="a crash of the script"):
                await job.stop(drain=drain)

    assert loop.time() == 10.0
    await can_be_claimed(tmp_path)


@virtual_time
async def test_cancelling_while_a_sink_recovers_ends_the_job_at_once(tmp_path: Path) -> None:
    loop, source = asyncio.get_running_loop(), ScriptedSource[int](1, Crash(), HOUR)

    with no_leftovers("the job"):
        async with summing(source, SlowToRecover()).start(
            options=virtual(),
            checkpointing=every_second(tmp_path),
            restart=af.restart.FixedDelay(9, timedelta(0)),
        ) as job:
            await asyncio.sleep(10)
            await job.cancel()

    assert loop.time() == 10.0
    await can_be_claimed(tmp_path)


@virtual_time
async def test_a_stop_while_a_sink_recovers_processes_records_in_flight_afterwards(
    tmp_path: Path,
) -> None:
    sink, source = SlowToRecover(), ScriptedSource[int](1, Pause(SECOND * 2), Crash(), HOUR)

    async with summing(source, sink).start(
        options=virtual(),
        checkpointing=every_second(tmp_path),
        restart=af.restart.FixedDelay(9, timedelta(0)),
    ) as job:
        await asyncio.sleep(10)
        await job.stop()

    assert sink.values == [1]


@pytest.mark.parametrize("ask", ["savepoint", "checkpoint"])
@virtual_time
async def test_a_request_while_the_job_is_being_started_again_is_answered(
    tmp_path: Path, ask: str
) -> None:
    sink, source = SlowToRecover(), ScriptedSource[int](1, Pause(SECOND * 2), Crash(), HOUR)

    async with summing(source, sink).start(
        options=virtual(),
        checkpointing=on_request(tmp_path / "state"),
        restart=af.restart.FixedDelay(9, timedelta(0)),
    ) as job:
        await asyncio.sleep(10)
        request = job.savepoint(tmp_path / "sp") if ask == "savepoint" else job.checkpoint()
        info = await request

        assert info.outcome is af.checkpoints.Outcome.COMPLETED
        await job.cancel()


@virtual_time
async def test_a_request_while_the_job_is_being_started_again_is_refused_when_it_is_cancelled(
    tmp_path: Path,
) -> None:
    sink, source = SlowToRecover(), ScriptedSource[int](1, Pause(SECOND * 2), Crash(), HOUR)

    async with summing(source, sink).start(
        options=virtual(),
        checkpointing=on_request(tmp_path / "state"),
        restart=af.restart.FixedDelay(9, timedelta(0)),
    ) as job:
        await asyncio.sleep(10)
        request = asyncio.ensure_future(job.checkpoint())
        await settle()
        await job.cancel()

        with pytest.raises(REFUSED, match="is not running"):
            await request


@virtual_time
async def test_a_request_during_a_backoff_is_refused(tmp_path: Path) -> None:
    source = ScriptedSource[int](1, Crash(), HOUR)

    async with summing(source, LedgerSink()).start(
        options=virtual(),
        checkpointing=every_second(tmp_path),
        restart=af.restart.FixedDelay(9, timedelta(minutes=5)),
    ) as job:
        await asyncio.sleep(10)
        with pytest.raises(REFUSED, match="is not running"):
            await job.savepoint(tmp_path / "sp")
        await job.cancel()


@virtual_time
async def test_a_host_that_stops_waiting_for_a_savepoint_does_no_harm(tmp_path: Path) -> None:
    sink, source = LedgerSink[int](delay=3), ScriptedSource[int](1, HOUR)

    with no_leftovers("the job"):
        async with summing(source, sink).start(
            options=virtual(), checkpointing=on_request(tmp_path / "s")
        ) as job:
            await asyncio.sleep(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await job.savepoint(tmp_path / "sp")
            await asyncio.sleep(10)
            info = await job.checkpoint()
            await job.stop()

    assert info.outcome is af.checkpoints.Outcome.COMPLETED
    assert sink.values == [1]


@virtual_time
async def test_a_savepoint_under_way_when_the_job_is_cancelled_is_refused(tmp_path: Path) -> None:
    sink, source = LedgerSink[int](delay=60), ScriptedSource[int](1, HOUR)

    with no_leftovers("the job"):
        async with summing(source, sink).start(
            options=virtual(), checkpointing=on_request(tmp_path / "s")
        ) as job:
            await asyncio.sleep(1)
            request = asyncio.ensure_future(job.savepoint(tmp_path / "sp"))
            await asyncio.sleep(1)
            await job.cancel()
            with pytest.raises(REFUSED, match="is not running"):
                await request

    assert [one.outcome for one in job.checkpoints] == [af.checkpoints.Outcome.STOPPED]


@virtual_time
async def test_a_savepoint_under_way_when_the_job_fails_is_refused(tmp_path: Path) -> None:
    sink, source = LedgerSink[int](delay=60), ScriptedSource[int](1, Pause(SECOND * 3), Crash())

    with no_leftovers("the job"):
        async with summing(source, sink).start(
            options=virtual(), checkpointing=on_request(tmp_path / "s")
        ) as job:
            await asyncio.sleep(1)
            with pytest.raises(REFUSED, match="is not running"):
                await job.savepoint(tmp_path / "sp")
            with pytest.raises(af.errors.SourceError):
                await job.wait()


@virtual_time
async def test_a_savepoint_under_way_when_the_job_is_stopped_is_finished_first(
    tmp_path: Path,
) -> None:
    sink, source = LedgerSink[int](delay=60), ScriptedSource[int](1, HOUR)

    async with summing(source, sink).start(
        options=virtual(), checkpointing=on_request(tmp_path / "s")
    ) as job:
        await asyncio.sleep(1)
        request = asyncio.ensure_future(job.savepoint(tmp_path / "sp"))
        await settle()
        await job.stop(savepoint=tmp_path / "last")
        info = await request

    assert info.path == str(tmp_path / "sp")
    assert [one.path for one in job.checkpoints] == [str(tmp_path / "sp"), str(tmp_path / "last")]
    assert (tmp_path / "sp").is_dir()
    assert (tmp_path / "last").is_dir()


@virtual_time
async def test_each_of_several_savepoints_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    source = ScriptedSource[int](1, HOUR)

    async with summing(source, LedgerSink()).start(
        options=virtual(), checkpointing=on_request(tmp_path / "s")
    ) as job:
        await asyncio.sleep(1)
        wanted = [str(tmp_path / f"sp{n}") for n in range(5)]
        infos = await asyncio.gather(*(job.savepoint(path) for path in wanted))
        await job.cancel()

    assert [info.path for info in infos] == wanted


@virtual_time
async def test_a_savepoint_that_cannot_be_written_is_refused_and_the_job_continues(
    tmp_path: Path,
) -> None:
    savepoint = tmp_path / (
        "sp" * 200
    )  # a name that is too long, which fails when the folder is created
    sink, source = LedgerSink[int](), ScriptedSource[int](1, HOUR)

    async with summing(source, sink).start(
        options=virtual(), checkpointing=on_request(tmp_path / "s")
    ) as job:
        await asyncio.sleep(1)
        with pytest.raises(af.CheckpointError, match="sp"):
            await job.savepoint(savepoint)
        await job.stop()

    assert sink.values == [1]


@virtual_time
async def test_stop_with_a_savepoint_that_cannot_be_written_fails_the_job_and_says_why(
    tmp_path: Path,
) -> None:
    savepoint = tmp_path / (
        "sp" * 200
    )  # a name that is too long, which fails when the folder is created
    sink, source = LedgerSink[int](), ScriptedSource[int](1, HOUR)

    with no_leftovers("the job"):
        async with summing(source, sink).start(
            options=virtual(), checkpointing=on_request(tmp_path / "s")
        ) as job:
            await asyncio.sleep(1)
            with pytest.raises(af.CheckpointError, match=r"last checkpoint.*failed 3 times.*sp"):
                await job.stop(savepoint=savepoint)

    await can_be_claimed(tmp_path / "s")


@virtual_time
async def test_a_callback_in_the_pipeline_can_stop_a_job_with_checkpoints(tmp_path: Path) -> None:
    ledger = LedgerSink[int]()
    flow = af.Flow("stops itself")
    numbers = flow.source(ScriptedSource[int](1, 2, HOUR), name="numbers")
    numbers.to(ledger, name="ledger")

    async def stop(value: int) -> None:
        if value == 2:
            await job.stop()

    numbers.to(af.CallbackSink(stop), name="stop")

    with no_leftovers("the job"):
        async with flow.start(options=virtual(), checkpointing=every_second(tmp_path)) as job:
            await job.wait()

    assert ledger.values == [1, 2]
    assert asyncio.get_running_loop().time() < 3600


@virtual_time
async def test_a_second_failure_during_the_restart_counts_and_the_job_is_started_a_third_time(
    tmp_path: Path,
) -> None:
    class Stubborn(LedgerSink[int]):
        async def recover(self, name: str, committables: Sequence[Committable]) -> None:
            await super().recover(name, committables)
            if self.asked.count("recover") == 2:
                raise ConnectionError("not there yet")

    sink, source = Stubborn(), ScriptedSource[int](1, Pause(SECOND * 2), 3, Crash(), 5)

    async with summing(source, sink).start(
        options=virtual(),
        checkpointing=every_second(tmp_path),
        restart=af.restart.FixedDelay(9, SECOND),
    ) as job:
        await job.wait()

    assert sink.values == [1, 4, 9]
    assert [one.attempt for one in job.restarts] == [1, 2]


@virtual_time
async def test_a_foreign_cancellation_of_a_subtask_fails_the_job(tmp_path: Path) -> None:
    flow = summing(ScriptedSource[int](1, HOUR), LedgerSink())

    with no_leftovers("the job"):
        async with flow.start(options=virtual(), checkpointing=every_second(tmp_path)) as job:
            await asyncio.sleep(5)
            names = {task.get_name(): task for task in asyncio.all_tasks()}
            next(task for name, task in names.items() if name.endswith("out[0]")).cancel()
            with pytest.raises(af.errors.InternalError, match="was cancelled"):
                await job.wait()


#: Each way to end a job, at each time, with three of six orders of the steps on the loop.
_ENDS = [
    (after, how, (row + column + 2 * number) % 6)
    for row, after in enumerate([0.0, 1.0, 1.0001, 2.5])
    for column, how in enumerate(["stop", "drain", "cancel", "savepoint", "raise"])
    for number in range(3)
]


@pytest.mark.parametrize(("after", "how", "seed"), _ENDS)
def test_after_any_end_at_any_time_nothing_is_left_and_the_next_run_has_the_rest(
    tmp_path: Path, after: float, how: str, seed: int
) -> None:
    numbers = [n for i in range(8) for n in (i, Pause(timedelta(milliseconds=500)))]
    sink = LedgerSink[int](delay=0.3)

    @virtual_time(seed=seed)
    async def first() -> None:
        with no_leftovers("the job"):
            try:
                async with summing(ScriptedSource[int](*numbers), sink).start(
                    options=virtual(),
                    checkpointing=every_second(tmp_path / "s"),
                    restart=af.restart.FixedDelay(1, SECOND),
                ) as job:
                    await asyncio.sleep(after)
                    if how == "cancel":
                        await job.cancel()
                    elif how == "raise":
                        raise KeyError("the host's own")
                    else:
                        await job.stop(
                            drain=how == "drain",
                            savepoint=tmp_path / "sp" if how == "savepoint" else None,
                        )
            except KeyError:
                pass

    first()

    @virtual_time(seed=seed)
    async def second() -> None:
        with no_leftovers("the job"):
            await summing(ScriptedSource[int](*numbers), sink).run(
                options=virtual(), checkpointing=every_second(tmp_path / "s")
            )

    second()

    assert sorted(sink.values) == sorted([0, 1, 2, 4, 6, 9, 12, 16])
