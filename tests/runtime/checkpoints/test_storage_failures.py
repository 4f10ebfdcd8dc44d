"""Storage that fails: checkpoints fail, the pipeline does not, and completed checkpoints can be restored."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.connect import Source
from aflow.errors import CheckpointError
from aflow.runtime.checkpoints.chains import LONG
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.state.manifest import FileRef, Link, Manifest
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import Crash, Pause, ScriptedSource, run_flow
from tests.runtime.checkpoints.faulty_files import FaultyFiles
from tests.runtime.checkpoints.ledger_sink import LedgerSink

SECOND = timedelta(seconds=1)
AT_ONCE = af.restart.FixedDelay(10, timedelta(0))


@dataclass
class FailingFiles(FaultyFiles):
    """The real file system, with failures of the operations whose names ``fails`` accepts."""

    error: int = errno.ENOSPC
    fails: Callable[[str], bool] = lambda call: False

    def count(self, call: str) -> None:
        self.calls.append(call)
        if self.fails(call):
            raise OSError(self.error, os.strerror(self.error))


def writing(what: str, *, numbers: Collection[int]) -> Callable[[str], bool]:
    """Accepts writes into files of checkpoints ``numbers`` whose names contain ``what``."""
    wanted = tuple(f"{number:06}" for number in numbers)
    return lambda call: (
        call.startswith("write ") and what in call and any(one in call for one in wanted)
    )


@dataclass
class Host:
    """A host that records the events of its job."""

    events: list[af.JobEvent] = field(default_factory=list[af.JobEvent])

    @property
    def checkpoints(self) -> list[af.checkpoints.CheckpointInfo]:
        return [event for event in self.events if isinstance(event, af.checkpoints.CheckpointInfo)]

    @property
    def failures(self) -> list[Exception]:
        """The causes of the restarts."""
        return [event.cause for event in self.events if isinstance(event, af.restart.JobRestarted)]

    def with_outcome(self, outcome: af.checkpoints.Outcome) -> list[int]:
        return [one.id for one in self.checkpoints if one.outcome is outcome]


def every_second(storage: DirectoryStorage, tolerable: int | None = None) -> af.Checkpointing:
    return af.Checkpointing(every=SECOND, storage=storage, tolerable_failures=tolerable)


def summing(source: Source[int], sink: af.Sink[int]) -> af.Flow:
    """Running sums by the last digit."""
    flow = af.Flow("sums")
    numbers = flow.source(source, name="numbers").key_by(lambda n: n % 10)
    numbers.fold(int, lambda total, n: total + n, name="sum").to(sink, name="out")
    return flow


def numbers(count: int, *, crash_after: Collection[int] = ()) -> list[int | Pause | Crash]:
    """Two numbers a second; a crash after some of them."""
    lines: list[int | Pause | Crash] = []
    for number in range(count):
        lines += [number, Pause(SECOND / 2)]
        if number in crash_after:
            lines.append(Crash())
    return lines


def sums(count: int) -> list[int]:
    """Return the results for ``count`` numbers."""
    totals = [0] * 10
    found: list[int] = []
    for number in range(count):
        totals[number % 10] += number
        found.append(totals[number % 10])
    return found


@pytest.mark.parametrize("what", ["parts", "manifest"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES])
def test_while_the_disk_takes_nothing_records_flow_on_and_later_checkpoints_are_complete(
    tmp_path: Path, what: str, error: int
) -> None:
    name = ".part" if what == "parts" else "checkpoint-"
    files = FailingFiles(error=error, fails=writing(name, numbers=[2, 3, 4]))
    host, sink = Host(), LedgerSink[int]()

    run_flow(
        summing(ScriptedSource(*numbers(20, crash_after=[13])), sink),
        checkpointing=every_second(DirectoryStorage(tmp_path, files=files)),
        restart=AT_ONCE,
        on_event=host.events.append,
    )

    assert host.with_outcome(af.checkpoints.Outcome.FAILED) == [2, 3, 4]
    assert host.with_outcome(af.checkpoints.Outcome.COMPLETED)[:3] == [1, 5, 6]
    reasons = [
        one.reason for one in host.checkpoints if one.outcome is af.checkpoints.Outcome.FAILED
    ]
    assert all(os.strerror(error) in reason for reason in reasons)
    assert sorted(sink.values) == sorted(sums(20))


def test_the_log_names_the_checkpoint_and_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FailingFiles(fails=writing(".part", numbers=[2]))

    run_flow(
        summing(ScriptedSource(*numbers(8)), LedgerSink()),
        checkpointing=every_second(DirectoryStorage(tmp_path, files=files)),
    )

    [line] = [one.getMessage() for one in caplog.records if one.name == "aflow.job"]
    assert "checkpoint 2 failed" in line
    assert "No space left on device" in line


@pytest.mark.parametrize("tolerable", [0, 1, 3])
def test_so_many_failures_in_a_row_fail_the_job_and_no_fewer(
    tmp_path: Path, tolerable: int
) -> None:
    bad = range(2, 3 + tolerable)
    enough = FailingFiles(fails=writing(".part", numbers=bad))
    fewer = FailingFiles(fails=writing(".part", numbers=bad[1:]))

    with pytest.raises(CheckpointError, match=f"tolerable_failures is {tolerable}.*No space left"):
        run_flow(
            summing(ScriptedSource(*numbers(20)), LedgerSink()),
            checkpointing=every_second(
                DirectoryStorage(tmp_path / "enough", files=enough), tolerable
            ),
        )
    run_flow(
        summing(ScriptedSource(*numbers(20)), LedgerSink()),
        checkpointing=every_second(DirectoryStorage(tmp_path / "fewer", files=fewer), tolerable),
    )


def test_a_job_that_failed_because_of_checkpoints_continues_from_the_last_completed_one(
    tmp_path: Path,
) -> None:
    files = FailingFiles(fails=writing(".part", numbers=[3, 4]))
    host, sink = Host(), LedgerSink[int]()

    run_flow(
        summing(ScriptedSource(*numbers(20)), sink),
        checkpointing=every_second(DirectoryStorage(tmp_path, files=files), 1),
        restart=AT_ONCE,
        on_event=host.events.append,
    )

    [restoring] = [event for event in host.events if isinstance(event, af.restart.JobRestored)]
    assert restoring.checkpoint == 2
    assert sorted(sink.values) == sorted(sums(20))


def test_a_last_checkpoint_that_cannot_be_stored_fails_the_job_and_the_next_run_finishes_it(
    tmp_path: Path,
) -> None:
    files = FailingFiles(fails=lambda call: call.startswith("write "))
    host, sink = Host(), LedgerSink[int]()
    checkpointing = af.Checkpointing(every=None, storage=DirectoryStorage(tmp_path, files=files))
    DirectoryStorage(tmp_path)
    allowed = iter([False])  # the folder's own file can still be written
    files.fails = lambda call: next(allowed, True) if call.startswith("write ") else False

    with pytest.raises(CheckpointError, match=r"last checkpoint.*failed 3 times.*No space left"):
        run_flow(
            summing(ScriptedSource(*numbers(4)), sink),
            checkpointing=checkpointing,
            on_event=host.events.append,
        )
    assert sink.values == []
    assert [one.outcome for one in host.checkpoints] == [af.checkpoints.Outcome.FAILED] * 3

    files.fails = lambda call: False
    run_flow(summing(ScriptedSource(*numbers(4)), sink), checkpointing=checkpointing)
    assert sink.values == sums(4)


@pytest.mark.parametrize(("tolerable", "tries"), [(0, "failed"), (1, "failed 2 times")])
def test_a_last_checkpoint_is_tried_as_often_as_tolerable_failures_allow(
    tmp_path: Path, tolerable: int, tries: str
) -> None:
    files = FailingFiles(fails=writing("", numbers=range(1, 9)))
    host = Host()

    with pytest.raises(CheckpointError, match=f"which commits it, {tries}: .*No space left"):
        run_flow(
            summing(ScriptedSource(*numbers(4)), LedgerSink[int]()),
            checkpointing=af.Checkpointing(
                every=None,
                storage=DirectoryStorage(tmp_path, files=files),
                tolerable_failures=tolerable,
            ),
            on_event=host.events.append,
        )

    assert len(host.checkpoints) == 1 + tolerable


def test_a_last_checkpoint_that_is_stored_at_the_third_try_is_good(tmp_path: Path) -> None:
    files = FailingFiles(fails=writing("", numbers=[1, 2]))
    sink = LedgerSink[int]()

    run_flow(
        summing(ScriptedSource(*numbers(4)), sink),
        checkpointing=af.Checkpointing(every=None, storage=DirectoryStorage(tmp_path, files=files)),
    )

    assert sink.values == sums(4)


def test_a_last_checkpoint_that_fails_three_times_is_a_failure_after_which_the_job_is_started_again(
    tmp_path: Path,
) -> None:
    files = FailingFiles(fails=writing("", numbers=[1, 2, 3]))
    host, sink = Host(), LedgerSink[int]()

    run_flow(
        summing(ScriptedSource(*numbers(4)), sink),
        checkpointing=af.Checkpointing(every=None, storage=DirectoryStorage(tmp_path, files=files)),
        restart=AT_ONCE,
        on_event=host.events.append,
    )

    [failure] = host.failures
    assert "failed 3 times" in str(failure)
    assert sink.values == sums(4)


@dataclass(frozen=True)
class Delays:
    """Seconds that storage needs, by operation."""

    part: float = 0
    manifest: float = 0
    discard: float = 0
    sweep: float = 0
    compact: float = 0


class SlowStorage(DirectoryStorage):
    """Takes virtual seconds for every operation, which has no effect before they have passed."""

    def __init__(self, folder: Path, delays: Callable[[int], Delays]) -> None:
        super().__init__(folder)
        self._delays = delays
        self.parts = 0
        self.under_way = 0
        self.most_under_way = 0

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        self.parts += 1
        await asyncio.sleep(self._delays(checkpoint).part)
        return await super().write_part(checkpoint, task, subtask, steps)

    async def complete(self, manifest: Manifest) -> None:
        await asyncio.sleep(self._delays(manifest.id).manifest)
        await super().complete(manifest)

    async def discard(self, checkpoint: int) -> None:
        await asyncio.sleep(self._delays(checkpoint).discard)
        await super().discard(checkpoint)

    async def sweep(self, keep: Collection[FileRef]) -> None:
        await asyncio.sleep(self._delays(0).sweep)
        await super().sweep(keep)

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        await asyncio.sleep(self._delays(checkpoint).compact)
        return await super().compact(checkpoint, task, subtask, step, chain)


SLOWNESS = {
    "parts": Delays(part=7),
    "manifests": Delays(manifest=7),
    "removal": Delays(discard=7),
    "sweeping": Delays(sweep=7),
    "everything": Delays(4, 4, 4, 4, 4),
}


@pytest.mark.parametrize("what", SLOWNESS)
def test_storage_that_is_slower_than_interval_and_timeout_delays_no_record_and_loses_none(
    tmp_path: Path, what: str
) -> None:
    delays = SLOWNESS[what]
    storage = SlowStorage(tmp_path, lambda number: delays if 3 <= number < 8 else Delays())
    checkpointing = af.Checkpointing(every=SECOND, timeout=SECOND * 3, storage=storage)
    host, sink = Host(), LedgerSink[int]()

    outcome = run_flow(
        summing(ScriptedSource(*numbers(120, crash_after=[20, 40, 60, 100])), sink),
        checkpointing=checkpointing,
        restart=AT_ONCE,
        on_event=host.events.append,
    )

    assert sorted(sink.values) == sorted(sums(120))
    assert outcome.took < timedelta(seconds=150)
    assert [type(cause) for cause in host.failures] == [af.errors.SourceError] * 4
    assert host.with_outcome(af.checkpoints.Outcome.COMPLETED)[-1] >= 8


@pytest.mark.slow
def test_captures_do_not_accumulate_before_slow_storage(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path, lambda number: Delays(part=30 if number < 60 else 0))
    most, host = 0, Host()

    def look(event: af.JobEvent) -> None:
        nonlocal most
        host.events.append(event)
        waiting = [task.get_name() for task in asyncio.all_tasks()]
        most = max(most, sum(name.startswith("checkpoint ") for name in waiting))

    sink = LedgerSink[int]()
    run_flow(
        summing(ScriptedSource(*numbers(1000, crash_after=[990])), sink),
        checkpointing=af.Checkpointing(every=SECOND, timeout=SECOND * 5, storage=storage),
        restart=AT_ONCE,
        on_event=look,
    )

    assert most < 15  # of some sixty
    assert host.with_outcome(af.checkpoints.Outcome.COMPLETED)
    assert sorted(sink.values) == sorted(sums(1000))


def test_a_checkpoint_that_expires_while_it_waits_for_storage_is_a_failure_and_no_more(
    tmp_path: Path,
) -> None:
    # The manifest of 3 waits for the removal of 1, and expires meanwhile.
    storage = SlowStorage(tmp_path, lambda number: Delays(discard=5 if number == 1 else 0))
    checkpointing = af.Checkpointing(
        every=SECOND, timeout=SECOND * 2, max_concurrent=3, keep=1, storage=storage
    )
    host, sink = Host(), LedgerSink[int]()

    run_flow(
        summing(ScriptedSource(*numbers(40)), sink),
        checkpointing=checkpointing,
        on_event=host.events.append,
    )

    reasons = [
        one.reason for one in host.checkpoints if one.outcome is af.checkpoints.Outcome.FAILED
    ]
    assert reasons
    assert all("expired after 2s while it was being stored" in reason for reason in reasons)
    assert sorted(sink.values) == sorted(sums(40))


class Refusing(DirectoryStorage):
    """Fails the operations named in ``refused``."""

    def __init__(self, folder: Path, *refused: str) -> None:
        super().__init__(folder)
        self._refused = refused

    def _refuse(self, what: str) -> None:
        if what in self._refused:
            raise CheckpointError(f"no {what} today")

    async def discard(self, checkpoint: int) -> None:
        self._refuse("discard")
        await super().discard(checkpoint)

    async def sweep(self, keep: Collection[FileRef]) -> None:
        self._refuse("sweep")
        await super().sweep(keep)

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        self._refuse("compact")
        return await super().compact(checkpoint, task, subtask, step, chain)


@pytest.mark.parametrize("what", ["discard", "sweep", "compact"])
def test_failed_cleanup_of_storage_is_only_a_warning(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, sink, count = Host(), LedgerSink[int](), 3 * LONG

    run_flow(
        summing(ScriptedSource(*numbers(count, crash_after=[count - 5])), sink),
        checkpointing=every_second(Refusing(tmp_path, what)),
        restart=AT_ONCE,
        on_event=host.events.append,
    )

    assert sorted(sink.values) == sorted(sums(count))
    assert len(host.failures) == 1
    assert host.with_outcome(af.checkpoints.Outcome.FAILED) == []
    assert any(
        f"no {what} today" in one.getMessage()
        for one in caplog.records
        if one.name == "aflow.checkpoints"
    )


class Raw(DirectoryStorage):
    """A storage that raises errors of its client."""

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        if checkpoint == 2:
            raise ConnectionError("the bucket is gone")
        return await super().write_part(checkpoint, task, subtask, steps)

    async def complete(self, manifest: Manifest) -> None:
        if manifest.id == 3:
            raise ConnectionError("the bucket is gone")
        await super().complete(manifest)

    async def discard(self, checkpoint: int) -> None:
        raise ConnectionError("the bucket is gone")

    async def sweep(self, keep: Collection[FileRef]) -> None:
        raise ConnectionError("the bucket is gone")


def test_errors_of_another_kind_fail_the_checkpoint_too_and_not_the_job(tmp_path: Path) -> None:
    host, sink = Host(), LedgerSink[int]()

    run_flow(
        summing(ScriptedSource(*numbers(20, crash_after=[15])), sink),
        checkpointing=every_second(Raw(tmp_path)),
        restart=AT_ONCE,
        on_event=host.events.append,
    )

    assert host.with_outcome(af.checkpoints.Outcome.FAILED) == [2, 3]
    assert all(
        "ConnectionError: the bucket is gone" in one.reason
        for one in host.checkpoints
        if one.outcome is af.checkpoints.Outcome.FAILED
    )
    assert len(host.failures) == 1
    assert sorted(sink.values) == sorted(sums(20))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    every=st.integers(11, 60),
    crashes=st.sets(st.integers(1, 18), max_size=3),
    parallelism=st.integers(1, 2),
    unaligned=st.booleans(),
    concurrent=st.integers(1, 3),
    seed=st.integers(0, 100),
)
def test_storage_that_fails_at_each_nth_operation_never_corrupts_completed_checkpoints(
    every: int, crashes: set[int], parallelism: int, unaligned: bool, concurrent: int, seed: int
) -> None:
    sink = LedgerSink[int](delay=0.3)
    with TemporaryDirectory() as folder:
        files = FailingFiles()
        # Opening has to succeed, or there is no job.
        files.fails = lambda call: (
            call.startswith(("write", "create", "rename", "remove", "sync"))
            and bool(list(Path(folder).glob("flow.json")))
            and len(files.calls) % every == 0
        )
        checkpointing = af.Checkpointing(
            every=SECOND,
            max_concurrent=concurrent,
            storage=DirectoryStorage(folder, files=files),
            barriers=af.checkpoints.Unaligned() if unaligned else af.checkpoints.Aligned(),
        )
        source = ScriptedSource(*numbers(20, crash_after=crashes))

        for _ in range(30):
            try:
                run_flow(
                    summing(source, sink),
                    parallelism=parallelism,
                    checkpointing=checkpointing,
                    restart=AT_ONCE,
                    seed=seed,
                )
                break
            except CheckpointError:
                every += 7  # the last checkpoint has failed three times: another run
        else:
            raise AssertionError("never came to its end")

    assert sorted(sink.values) == sorted(sums(20))
