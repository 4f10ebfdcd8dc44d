"""Jobs in a process of their own, with a display."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

import aflow as af
from flights.job import ExitStatus, Recovery, run_job


class Recorder:
    """A display that records the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.pushed: af.PushSource[int] | None = None

    @contextmanager
    def shown(self) -> Generator[None]:
        self.calls.append("shown")
        yield
        self.calls.append("restored")

    def say(self, text: str) -> None:
        self.calls.append(text.partition(":")[0])

    async def follow(self, job: af.Job) -> None:
        if self.error is not None:
            raise self.error from KeyError("TERM")
        self.calls.append(f"running {job.running}")
        if self.pushed is not None:
            await self.pushed.send(1)
            self.pushed.close()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.calls.append(f"cancelled, running {job.running}")
            raise

    def update(self, metrics: af.metrics.JobMetrics) -> None:
        self.calls.append(f"{metrics.steps['out'].records_in} records")


def interrupting_flow(signals: list[signal.Signals], *, stuck: bool = False) -> af.Flow:
    """Return an endless flow whose sink sends ``signals`` to this process."""

    async def numbers() -> AsyncGenerator[int]:
        yield 1
        await asyncio.Event().wait()

    async def write(value: int) -> None:
        os.kill(os.getpid(), signals.pop(0))
        if stuck:
            await asyncio.sleep(0)
            os.kill(os.getpid(), signals.pop(0))
            await asyncio.Event().wait()

    flow = af.Flow("interrupted")
    flow.source(numbers(), name="numbers").to(af.CallbackSink(write), name="out")
    return flow


def test_the_display_follows_the_job_until_it_ends() -> None:
    display, pushed = Recorder(), af.PushSource[int]()
    display.pushed = pushed
    flow = af.Flow("followed")
    flow.source(pushed).to(
        af.CallbackSink(lambda value: display.calls.append(f"got {value}")), name="out"
    )

    ended = run_job(flow, display)

    assert ended.status == ExitStatus.DONE
    assert ended.metrics.steps["out"].records_in == 1
    assert display.calls == [
        "shown",
        "running True",
        "got 1",
        "cancelled, running False",
        "1 records",
        "restored",
    ]


def test_an_error_of_the_display_ends_the_job_and_keeps_its_cause() -> None:
    display = Recorder()
    display.error = OSError("no terminal")
    flow = af.Flow("followed")
    flow.source(af.PushSource[int]()).to(af.CollectSink(), name="out")

    with pytest.raises(OSError, match="no terminal") as caught:
        run_job(flow, display)

    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_of_the_job_is_raised_without_a_group() -> None:
    flow = af.Flow("failing")
    flow.source([0]).map(lambda n: 1 // n, name="divide").to(af.CollectSink(), name="out")

    with pytest.raises(af.OperatorError, match="step 'divide' failed on record 0"):
        run_job(flow, Recorder())


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_the_first_signal_drains(sent: signal.Signals) -> None:
    display = Recorder()

    ended = run_job(interrupting_flow([sent]), display)

    assert ended.status == ExitStatus.DONE
    assert [call for call in display.calls if call.startswith("drain")] == ["draining", "drained"]


def test_the_first_signal_takes_a_last_checkpoint_if_there_are_checkpoints(tmp_path: Path) -> None:
    display = Recorder()
    settings = af.Checkpointing(storage=tmp_path, every=timedelta(hours=1))

    ended = run_job(
        interrupting_flow([signal.SIGINT]), display, recovery=Recovery(checkpointing=settings)
    )

    assert ended.status == ExitStatus.DONE
    assert [call for call in display.calls if call.startswith("stop")] == ["stopping", "stopped"]
    assert list(tmp_path.glob("checkpoint-*.json"))


def test_a_second_ctrl_c_cancels() -> None:
    display = Recorder()

    ended = run_job(interrupting_flow([signal.SIGINT, signal.SIGINT], stuck=True), display)

    assert ended.status == ExitStatus.INTERRUPTED
    assert [call for call in display.calls if call in {"draining", "drained", "cancelled"}] == [
        "draining",
        "cancelled",
    ]


class Watcher(Recorder):
    """A display that requests the page while the job runs, and presses Ctrl-C when only the page is left."""

    def __init__(self) -> None:
        super().__init__()
        self.address = ""
        self.statuses: list[str] = []

    def say(self, text: str) -> None:
        super().say(text)
        if found := re.search(r"http://\S+", text):
            self.address = found[0]
        if text.startswith("the job has ended"):
            os.kill(os.getpid(), signal.SIGINT)

    async def follow(self, job: af.Job) -> None:
        async with httpx.AsyncClient(base_url=self.address, timeout=60) as client:
            page = await client.get("/")
            jobs = (await client.get("/api/jobs")).json()["jobs"]
        assert "<title>aflow</title>" in page.text
        self.statuses.append(jobs[0]["status"])
        await super().follow(job)


def test_the_page_shows_the_job_and_stays_until_ctrl_c() -> None:
    display, pushed = Watcher(), af.PushSource[int]()
    display.pushed = pushed
    flow = af.Flow("watched")
    flow.source(pushed).to(af.CollectSink[int](), name="out")

    ended = run_job(flow, display, web=True)

    assert ended.status == ExitStatus.DONE
    assert display.statuses == ["running"]
    assert [call for call in display.calls if "job" in call or "token" in call] == [
        "watch the job at http",
        "token for savepoints and stops",
        "the job has ended; the page shows it until Ctrl-C",
    ]


def test_ctrl_c_while_the_page_is_shown_drains_the_job_and_ends() -> None:
    display = Recorder()

    ended = run_job(interrupting_flow([signal.SIGINT]), display, web=True)

    assert ended.status == ExitStatus.DONE
    assert "drained" in display.calls
    assert not [call for call in display.calls if call.startswith("the job has ended")]
