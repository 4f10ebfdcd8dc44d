"""Records sent to a durable push source are processed exactly once, whatever happens to jobs in between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow import Ack, Checkpointing, CollectSink, DurablePushSource, Flow, Job
from aflow.connect import Reader
from aflow.errors import (
    FlowDefinitionError,
    JobStopped,
    OperatorError,
    RestoreError,
    SourceError,
    SourceFull,
    SourceInUse,
)
from aflow.runtime.current_job import enter_job
from tests.runtime.builtin_connectors.helpers import eventually

SOON = timedelta(milliseconds=20)


@dataclass
class Click:
    user: str
    price: float = 1.0


class Service:
    """A flow over a durable source, with the folders of one service; ``total`` is its state."""

    def __init__(
        self,
        folder: Path,
        source: DurablePushSource[int] | None = None,
        *,
        fail_at: int | None = None,
        every: timedelta | None = SOON,
    ) -> None:
        self.source = source or DurablePushSource[int](folder / "log", of=int)
        self.totals = CollectSink[int]()
        self.fail_at = fail_at
        self.flow = Flow("service")
        numbers = self.flow.source(self.source, name="numbers")
        keyed = numbers.map(self._check, name="check").key_by(lambda _: "all", name="key")
        keyed.fold(int, lambda total, number: total + number, name="totals").to(
            self.totals, name="out"
        )
        self.checkpointing = Checkpointing(storage=folder / "state", every=every)

    def _check(self, number: int) -> int:
        if number == self.fail_at:
            self.fail_at = None
            raise ValueError("as planned")
        return number

    def start(self, **options: object) -> Job:
        return self.flow.start(checkpointing=self.checkpointing, **options)  # type: ignore[arg-type]

    @property
    def last(self) -> int | None:
        return self.totals.values[-1] if self.totals.values else None


@pytest.mark.asyncio
async def test_a_job_processes_what_was_sent_before_and_while_it_runs(tmp_path: Path) -> None:
    service = Service(tmp_path)
    assert await service.source.send(1)
    async with service.start():
        assert await service.source.send(2)
        await service.source.send_many([3, 4])
        await eventually(lambda: service.last == 10)


@pytest.mark.asyncio
async def test_a_new_process_continues_after_the_last_checkpoint(tmp_path: Path) -> None:
    first = Service(tmp_path)
    async with first.start() as job:
        await first.source.send_many(range(10))
        await eventually(lambda: first.last == 45)
        await job.checkpoint()
        await first.source.send_many(range(10, 20))
        await eventually(lambda: first.last == 190)
        await job.cancel()

    second = Service(tmp_path)
    await second.source.send(1000)
    async with second.start():
        await eventually(lambda: second.last == 1190)


@pytest.mark.asyncio
async def test_a_restart_in_the_process_loses_nothing_and_senders_do_not_notice(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path, fail_at=50)
    restarts = af.restart.FixedDelay(3, timedelta(milliseconds=1))
    async with service.start(restart=restarts) as job:
        for number in range(100):
            assert await service.source.send(number)
        await eventually(lambda: service.last == sum(range(100)))
        assert len(job.restarts) == 1


@pytest.mark.asyncio
async def test_records_sent_after_the_failure_of_a_job_are_kept_for_the_next(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path, fail_at=1)

    async def run() -> None:
        async with service.start() as job:
            await service.source.send(1)
            await job.wait()

    with pytest.raises(OperatorError):
        await run()
    await service.source.send(5)
    await service.source.aclose()

    again = Service(tmp_path)
    async with again.start():
        await eventually(lambda: again.last == 6)


@pytest.mark.asyncio
async def test_the_log_is_closed_at_the_end_of_the_job(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start():
        await service.source.send(1)

    other = DurablePushSource[int](tmp_path / "log", of=int)
    await other.send(2)
    await other.aclose()


@pytest.mark.asyncio
async def test_async_with_keeps_the_log_open_between_jobs(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.source as source:
        async with service.start():
            await source.send(1)
        with pytest.raises(SourceInUse, match="in use by process"):
            await DurablePushSource[int](tmp_path / "log", of=int).send(2)
        assert source.send_nowait(3)
    with pytest.raises(JobStopped, match="is not open"):
        source.send_nowait(4)


@pytest.mark.asyncio
async def test_a_second_job_cannot_read_the_same_source(tmp_path: Path) -> None:
    service = Service(tmp_path)
    other = Service(tmp_path / "other", service.source)
    async with service.start():
        with pytest.raises(SourceError, match="is being read by a running job"):
            async with other.start() as job:
                await job.wait()
        await service.source.send(1)
        await eventually(lambda: service.last == 1)


# ----------------------------------------------------------------------------------------------------- promises


@pytest.mark.asyncio
async def test_checkpointed_returns_when_a_checkpoint_covers_the_record(tmp_path: Path) -> None:
    service = Service(tmp_path, every=None)
    async with service.start() as job:
        sending = asyncio.create_task(service.source.send(1, ack=Ack.CHECKPOINTED))
        await eventually(lambda: service.last == 1)
        assert not sending.done()

        await job.checkpoint()

        assert await asyncio.wait_for(sending, 300)


@pytest.mark.asyncio
async def test_processed_returns_when_the_results_of_the_record_are_committed(
    tmp_path: Path,
) -> None:
    release = asyncio.Event()
    written: list[int] = []

    async def call(number: int) -> int:
        await release.wait()
        return number

    source = af.DurablePushSource(tmp_path / "log", of=int)
    flow = af.Flow("numbers")
    flow.source(source, name="numbers").map_async(call, name="call").to(
        af.CallbackSink(written.append), name="out"
    )
    checkpointing = af.Checkpointing(storage=tmp_path / "state", every=None)
    async with flow.start(checkpointing=checkpointing) as job:
        sending = asyncio.create_task(source.send(1, ack=Ack.PROCESSED))
        covered = asyncio.create_task(source.send(2, ack=Ack.CHECKPOINTED))
        await eventually(lambda: bool(job.metrics().steps["call"].records_in == 2))
        await job.checkpoint()
        await covered
        assert not sending.done()
        release.set()
        await eventually(lambda: written == [1, 2])
        assert not sending.done()

        await job.checkpoint()

        assert await asyncio.wait_for(sending, 300)


@pytest.mark.asyncio
async def test_a_savepoint_does_not_meet_the_promise_of_a_checkpoint(tmp_path: Path) -> None:
    service = Service(tmp_path, every=None)
    async with service.start() as job:
        sending = asyncio.create_task(service.source.send(1, ack=Ack.CHECKPOINTED))
        await eventually(lambda: service.last == 1)
        await job.savepoint(tmp_path / "savepoint")
        await asyncio.sleep(0.05)
        assert not sending.done()
        await job.stop()
    assert await sending


@pytest.mark.asyncio
async def test_a_promise_of_a_job_that_ends_without_it_is_an_error(tmp_path: Path) -> None:
    service = Service(tmp_path, every=None)
    async with service.start() as job:
        sending = asyncio.create_task(service.source.send(1, ack=Ack.CHECKPOINTED))
        await eventually(lambda: service.last == 1)
        await job.cancel()

    with pytest.raises(JobStopped, match="the record is in the log"):
        await sending
    with pytest.raises(JobStopped, match="the record is in the log"):
        await service.source.send(2, ack=Ack.CHECKPOINTED)
    await service.source.aclose()


@pytest.mark.asyncio
async def test_memory_returns_at_once(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start():
        for number in range(100):
            await service.source.send(number, ack=Ack.MEMORY)
        await eventually(lambda: service.last == sum(range(100)))


@pytest.mark.asyncio
async def test_a_cancelled_sender_leaves_the_source_usable(tmp_path: Path) -> None:
    service = Service(tmp_path, every=None)
    async with service.start() as job:
        for number in range(20):
            sending = asyncio.create_task(service.source.send(number, ack=Ack.CHECKPOINTED))
            await asyncio.sleep(0)
            sending.cancel()
        await service.source.send(1000)
        await eventually(lambda: (service.last or 0) >= 1000)
        await job.checkpoint()
        await service.source.send(0)


# ---------------------------------------------------------------------------------------------------------- ids


@pytest.mark.asyncio
async def test_a_repeated_id_is_accepted_once(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start():
        sent = await asyncio.gather(*(service.source.send(7, id="a") for _ in range(10)))
        assert sent.count(True) == 1
        assert await service.source.send(1, id="b")
        assert not await service.source.send(7, id="a")
        await eventually(lambda: service.last == 8)


@pytest.mark.asyncio
async def test_a_repeated_id_is_known_after_a_crash_and_after_checkpoints(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start() as job:
        for number in range(300):
            await service.source.send(1, id=f"id {number}")
        await eventually(lambda: service.last == 300)
        for _ in range(4):
            await job.checkpoint()
        await job.cancel()

    again = Service(tmp_path)
    for number in range(300):
        assert not await again.source.send(1, id=f"id {number}")
    assert await again.source.send(1, id="new")
    async with again.start():
        await eventually(lambda: again.last == 301)


@pytest.mark.asyncio
async def test_records_with_ids_are_removed_after_the_window(tmp_path: Path) -> None:
    small = DurablePushSource[int](
        tmp_path / "log", of=int, max_bytes=20_000, id_window=timedelta(milliseconds=50)
    )
    service = Service(tmp_path, small)
    async with service.start():
        for number in range(300):
            await small.send(1, id=f"id {number}")
        await eventually(lambda: _first_segment(tmp_path) > 0)


@pytest.mark.asyncio
async def test_a_repeated_id_waits_for_the_promise_of_the_first(tmp_path: Path) -> None:
    service = Service(tmp_path, every=None)
    async with service.start() as job:
        await service.source.send(1, id="a")
        repeated = asyncio.create_task(service.source.send(1, id="a", ack=Ack.CHECKPOINTED))
        await asyncio.sleep(0.02)
        assert not repeated.done()
        await job.checkpoint()
        assert await asyncio.wait_for(repeated, 300) is False


@pytest.mark.asyncio
async def test_the_cancellation_of_one_sender_does_not_cancel_others_of_the_same_id(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path)
    async with service.source:
        first = asyncio.create_task(service.source.send(1, id="a"))
        second = asyncio.create_task(service.source.send(1, id="a"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is False


# ---------------------------------------------------------------------------------------------------- full logs


@pytest.mark.asyncio
async def test_a_full_log_refuses_until_checkpoints_have_covered_it(tmp_path: Path) -> None:
    source = DurablePushSource[int](
        tmp_path / "log", of=int, max_bytes=4_000, full_timeout=timedelta(milliseconds=10)
    )
    service = Service(tmp_path, source, every=None)
    accepted = 0

    async def send_all() -> None:
        nonlocal accepted
        for _ in range(1000):
            await source.send(1)
            accepted += 1

    async with service.start() as job:
        with pytest.raises(SourceFull, match="are covered by no checkpoint of a running job"):
            await send_all()
        with pytest.raises(SourceFull):
            source.send_nowait(1)
        await eventually(lambda: service.last == accepted)
        await job.checkpoint()
        await job.checkpoint()  # two are kept

        await eventually(lambda: _first_segment(tmp_path) > 0)
        await source.send(1)
        await eventually(lambda: service.last == accepted + 1)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.asyncio
async def test_a_log_that_is_full_of_records_with_ids_says_so(tmp_path: Path, named: bool) -> None:
    source = DurablePushSource[int](tmp_path / "log", of=int, max_bytes=1_500)

    def send_all() -> None:
        for number in range(100):
            source.send_nowait(1, id=f"id {number}" if named else None)

    async with source:
        with pytest.raises(SourceFull, match="or raise max_bytes") as full:
            send_all()

    assert ("Records with ids are also kept for id_window" in str(full.value)) is named


@pytest.mark.asyncio
async def test_a_sender_waits_for_room(tmp_path: Path) -> None:
    source = DurablePushSource[int](
        tmp_path / "log", of=int, max_bytes=4_000, full_timeout=timedelta(seconds=30)
    )
    service = Service(tmp_path, source)
    async with service.start():
        for _ in range(400):
            await source.send(1)
        await eventually(lambda: service.last == 400)


@pytest.mark.asyncio
async def test_a_record_larger_than_the_log_is_refused(tmp_path: Path) -> None:
    source = DurablePushSource[str](tmp_path / "log", of=str, max_bytes=1000)

    with pytest.raises(SourceFull, match="do not fit into the log"):
        await source.send("x" * 2000)
    await source.aclose()


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("size", [0, 999, True, 1e6])
def test_a_log_without_room_for_a_record_is_refused(size: Any, tmp_path: Path) -> None:
    with pytest.raises(FlowDefinitionError, match="must be a number of at least 1,000 bytes, not"):
        DurablePushSource[int](tmp_path / "log", of=int, max_bytes=size)


@pytest.mark.asyncio
async def test_values_of_another_type_are_refused_and_not_logged(tmp_path: Path) -> None:
    async with DurablePushSource[Click](tmp_path / "log", of=Click) as source:
        for wrong in (1, {"user": "a"}, Click(user=7)):  # type: ignore[arg-type]
            with pytest.raises(FlowDefinitionError, match="cannot log the record"):
                await source.send(wrong)  # type: ignore[arg-type]
    assert list((tmp_path / "log").glob("*.log")) == []


@pytest.mark.asyncio
async def test_a_log_of_another_type_is_refused(tmp_path: Path) -> None:
    async with DurablePushSource[Click](tmp_path / "log", of=Click) as source:
        await source.send(Click("a"))

    with pytest.raises(RestoreError, match="the log in"):
        await DurablePushSource[int](tmp_path / "log", of=int).send(1)


@pytest.mark.parametrize(
    "name",
    ["", "x" * 257, "a\nb", "\ud800", 7],
    ids=["empty", "long", "line", "surrogate", "number"],
)
@pytest.mark.asyncio
async def test_an_invalid_id_is_refused(tmp_path: Path, name: str) -> None:
    source = DurablePushSource[int](tmp_path / "log", of=int)

    with pytest.raises(FlowDefinitionError, match="the id of a record must be printable text"):
        await source.send(1, id=name)


@pytest.mark.asyncio
async def test_records_with_and_without_timestamps_are_not_mixed(tmp_path: Path) -> None:
    async with DurablePushSource[int](tmp_path / "log", of=int) as source:
        await source.send(1, datetime(2024, 1, 1, tzinfo=UTC))
        with pytest.raises(FlowDefinitionError, match="without a timestamp after records with one"):
            await source.send(2)


@pytest.mark.asyncio
async def test_a_job_without_checkpoints_is_refused(tmp_path: Path) -> None:
    flow = Flow("no checkpoints")
    flow.source(DurablePushSource[int](tmp_path / "log", of=int), name="numbers").to(
        CollectSink[int](), name="out"
    )

    with pytest.raises(FlowDefinitionError, match="source 'numbers' is a DurablePushSource"):
        async with flow.start():
            pass


@pytest.mark.asyncio
@pytest.mark.parametrize("ends", ["cancel", "stop"])
async def test_a_job_that_ended_before_the_first_record_is_continued(
    tmp_path: Path, ends: str
) -> None:
    for _ in range(2):  # nothing of the log is on disk yet
        async with Service(tmp_path, every=None).start() as job:
            await job.checkpoint()
            await getattr(job, ends)()

    service = Service(tmp_path)
    async with service.start():
        await service.source.send(1)
        await eventually(lambda: service.last == 1)


@pytest.mark.asyncio
async def test_a_checkpoint_of_another_log_is_refused(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start():
        await service.source.send_many([1, 2, 3])
        await eventually(lambda: service.last == 6)

    other = Service(tmp_path, DurablePushSource[int](tmp_path / "other log", of=int))
    await other.source.send_many(range(100))
    with pytest.raises(SourceError, match="continues in another log than that in"):
        async with other.start() as job:
            await job.wait()


@pytest.mark.asyncio
async def test_a_log_that_has_lost_records_is_refused(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start():
        await service.source.send(1)
        await service.source.send(2)
        await eventually(lambda: service.last == 3)
    path = tmp_path / "log" / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\xafBLK", data.index(b"\xafBLK") + 1)])

    again = Service(tmp_path)
    with pytest.raises(
        SourceError, match=r"continues at record 2 of the log in .*, which ends at record 1"
    ):
        async with again.start() as job:
            await job.wait()


@pytest.mark.asyncio
async def test_a_savepoint_from_before_the_first_record_is_refused_once_it_is_removed(
    tmp_path: Path,
) -> None:
    source = DurablePushSource[int](tmp_path / "log", of=int, max_bytes=4_000)
    service = Service(tmp_path, source)
    async with service.start() as job:
        await asyncio.sleep(0.05)
        await job.savepoint(tmp_path / "savepoint")
        for number in range(100):
            await source.send(number)
        await eventually(lambda: _first_segment(tmp_path) > 0)

    other = Service(tmp_path, every=None)
    other.checkpointing = Checkpointing(storage=tmp_path / "other state")
    with pytest.raises(SourceError, match="continues at record 0 of the log"):
        async with other.start(restore=tmp_path / "savepoint") as job:
            await job.wait()


@pytest.mark.asyncio
async def test_a_cancelled_first_send_leaves_the_log_usable(tmp_path: Path) -> None:
    for delay in (0, 0.0003, 0.001, 0.002):
        source = DurablePushSource[int](tmp_path / str(delay), of=int)
        first = asyncio.create_task(source.send(1))
        await asyncio.sleep(delay)
        first.cancel()
        await asyncio.wait([first])

        assert await asyncio.wait_for(source.send(2), 300)
        await source.aclose()


@pytest.mark.asyncio
async def test_the_first_send_after_the_end_of_the_input_is_refused_too(tmp_path: Path) -> None:
    source = DurablePushSource[int](tmp_path / "log", of=int)
    await source.send(1)
    await source.end()
    await source.aclose()

    again = DurablePushSource[int](tmp_path / "log", of=int)
    with pytest.raises(JobStopped, match="was ended"):
        await again.send(2)
    with pytest.raises(JobStopped, match="was ended"):
        await again.send_many([2])
    await again.aclose()


@pytest.mark.asyncio
async def test_a_sender_that_waits_for_room_is_refused_at_the_end_of_the_input(
    tmp_path: Path,
) -> None:
    source = DurablePushSource[int](
        tmp_path / "log", of=int, max_bytes=4_000, full_timeout=timedelta(seconds=30)
    )
    service = Service(tmp_path, source, every=None)
    async with service.start() as job:
        sending = [asyncio.create_task(source.send(1)) for _ in range(2000)]
        await eventually(lambda: sum(one.done() for one in sending) > 5)
        await asyncio.sleep(0.05)
        await source.end()
        await asyncio.wait_for(job.wait(), 300)
        await asyncio.wait(sending)
        accepted = sum(one.exception() is None for one in sending)

    assert accepted < 2000
    assert service.last == accepted
    assert all(isinstance(one.exception(), JobStopped | None) for one in sending)


@pytest.mark.asyncio
async def test_the_log_stays_open_while_a_job_reads_it(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start():
        async with service.source:
            await service.source.send(1)
        await service.source.send(2)
        await eventually(lambda: service.last == 3)


@pytest.mark.asyncio
async def test_a_promise_of_a_job_is_an_error_when_the_log_is_closed(tmp_path: Path) -> None:
    for delay in (0, 0.05):
        source = DurablePushSource[int](tmp_path / str(delay), of=int)
        async with source:
            sending = asyncio.create_task(source.send(1, ack=Ack.CHECKPOINTED))
            await asyncio.sleep(delay)
        with pytest.raises(JobStopped, match="the record is in the log"):
            await asyncio.wait_for(sending, 300)


@pytest.mark.parametrize("at", [2**63, -(2**63)], ids=["2**63", "-2**63"])
@pytest.mark.asyncio
async def test_a_timestamp_that_no_job_could_process_is_refused(tmp_path: Path, at: int) -> None:
    source = DurablePushSource[int](tmp_path / "log", of=int)

    with pytest.raises(FlowDefinitionError, match="is not between"):
        await source.send(1, at)


@pytest.mark.asyncio
async def test_a_sender_that_waits_for_room_continues_in_a_log_that_was_closed_and_opened_again(
    tmp_path: Path,
) -> None:
    source = DurablePushSource[str](
        tmp_path / "log", of=str, max_bytes=4_000, full_timeout=timedelta(seconds=30)
    )
    async with source:
        for _ in range(3):
            await source.send("x" * 1000)
        waiting = asyncio.create_task(source.send("y" * 1000))
        await asyncio.sleep(0.02)
        assert not waiting.done()
    flow = Flow("texts")
    flow.source(source, name="texts").to(CollectSink[str](), name="out")
    checkpointing = Checkpointing(storage=tmp_path / "state", every=SOON, keep=1)
    async with flow.start(checkpointing=checkpointing):
        assert await asyncio.wait_for(waiting, 300)


@pytest.mark.asyncio
async def test_a_second_job_cannot_take_the_source_between_a_failure_and_the_restart(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path, fail_at=1)
    other = Service(tmp_path / "other", service.source)
    restart = af.restart.FixedDelay(3, timedelta(milliseconds=300))
    async with service.start(restart=restart) as job:
        await service.source.send(1)
        await eventually(lambda: job.status is af.metrics.JobStatus.RESTARTING)
        with pytest.raises(SourceError, match="is being read by a running job"):
            async with other.start() as second:
                await second.wait()
        await eventually(lambda: service.last == 1)


@pytest.mark.asyncio
async def test_a_refused_record_does_not_decide_if_records_have_timestamps(tmp_path: Path) -> None:
    async with DurablePushSource[int](tmp_path / "log", of=int) as source:
        with pytest.raises(FlowDefinitionError, match="cannot log"):
            await source.send("wrong", 5)  # type: ignore[arg-type]
        assert await source.send(1)


def test_a_source_continues_on_another_loop_after_the_first_has_ended(tmp_path: Path) -> None:
    source = DurablePushSource[int](tmp_path / "log", of=int)

    async def send() -> bool:
        return await source.send(1)

    assert asyncio.run(send())
    assert asyncio.run(send())

    async def close() -> None:
        await source.aclose()

    asyncio.run(close())
    asyncio.run(DurablePushSource[int](tmp_path / "log", of=int).aclose())


class RunningJob:
    """A job as a source sees it."""

    name = "job"
    running = True


def test_a_job_may_read_a_source_whose_former_job_did_not_end_before_its_loop(
    tmp_path: Path,
) -> None:
    source = DurablePushSource[int](tmp_path / "log", of=int)

    async def open_reader() -> Reader[int]:
        enter_job(RunningJob())
        (split,) = await source.splits()
        return await source.reader(split, None)

    async def read() -> None:
        reader = await open_reader()
        await reader.close()
        await source.on_job_end()

    asyncio.run(open_reader())
    asyncio.run(read())


@pytest.mark.asyncio
async def test_another_thread_is_refused(tmp_path: Path) -> None:
    async with DurablePushSource[int](tmp_path / "log", of=int) as source:
        with pytest.raises(SourceError, match="is open on another event loop, or thread"):
            await asyncio.to_thread(source.send_nowait, 1)


@pytest.mark.asyncio
async def test_an_ended_input_ends_the_job_and_takes_no_more_records(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.start() as job:
        await service.source.send_many([1, 2])
        await service.source.end()
        await asyncio.wait_for(job.wait(), 300)
        assert service.last == 3
        with pytest.raises(JobStopped, match="was ended"):
            await service.source.send(3)

    again = DurablePushSource[int](tmp_path / "log", of=int)
    async with again:
        with pytest.raises(JobStopped, match="was ended"):
            await again.send(3)


# ------------------------------------------------------------------------------------------------------ reading


@pytest.mark.asyncio
async def test_a_slow_job_reads_from_files_what_does_not_fit_into_memory(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with service.source as source:
        await source.send_many(range(20_000))
        async with service.start():
            for begin in range(20_000, 60_000, 5_000):
                await source.send_many(range(begin, begin + 5_000))
            await eventually(lambda: service.last == sum(range(60_000)))


@pytest.mark.asyncio
async def test_the_job_gets_what_a_replay_would_give_it(tmp_path: Path) -> None:
    source = DurablePushSource[datetime](tmp_path / "log", of=datetime)
    seen: list[datetime] = []
    flow = Flow("types")
    flow.source(source, name="times").to(af.CallbackSink(seen.append), name="out")
    noon_in_paris = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=1)))
    async with flow.start(checkpointing=Checkpointing(storage=tmp_path / "state")):
        await source.send(noon_in_paris)
        await eventually(lambda: seen == [noon_in_paris])

    assert seen[0].tzinfo is UTC


def _first_segment(folder: Path) -> int:
    return min(int(path.stem) for path in (folder / "log").glob("*.log"))
