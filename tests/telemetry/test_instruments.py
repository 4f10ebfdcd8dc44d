"""Metrics of jobs, exported with OpenTelemetry."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError
from aflow.runtime.metric_table import described_metrics
from aflow.telemetry import OpenTelemetry, instruments
from aflow.telemetry.instruments import instrument_name
from aflow.testing.virtual_time import settle, virtual_time
from tests.inline_threads import inline_threads
from tests.telemetry.tracing import TracedProgram

__all__ = ["inline_threads"]


def echo_flow(source: af.Source[int], name: str = "echo") -> af.Flow:
    async def echo(number: int) -> int:
        return number

    flow = af.Flow(name)
    flow.source(source, name="numbers").map_async(echo, name="echo").to(
        af.CollectSink[int](), name="out"
    )
    return flow


@pytest.mark.usefixtures("inline_threads")
@virtual_time
async def test_metrics_are_read_when_they_are_exported(tmp_path: Path) -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    settings = af.Checkpointing(storage=tmp_path, every=None)
    async with echo_flow(source).start(checkpointing=settings, options=program.options) as job:
        await source.send_many(range(5))
        await settle()
        before = program.metrics()
        await source.send_many(range(5))
        info = await job.checkpoint()
        await job.stop()
        after = program.metrics()

    step = {"aflow.job": "echo", "aflow.step": "echo"}
    assert before["aflow.step.records_in"][1] == (step, 5)
    assert (step, 5) in before["aflow.calls"]
    assert (step, 10) in after["aflow.calls"]
    assert (step, 10) in after["aflow.step.records_in"]
    statuses = {point[0]["aflow.status"]: point[1] for point in after["aflow.job.status"]}
    assert statuses == {one.value: float(one.value == "finished") for one in af.metrics.JobStatus}
    assert "aflow.checkpoint.last_duration" not in before
    assert after["aflow.checkpoints_completed"] == [({"aflow.job": "echo"}, 2)]
    assert info.bytes > 0
    assert after["aflow.checkpoint.last_size"][0][1] > 0
    assert before["aflow.build_info"] == [({"aflow.version": af.__version__}, 1)]


def prometheus_name(name: str, unit: str, *, counter: bool) -> str:
    """The name in the exposition, by the rules of OpenTelemetry's specification."""
    words = {"s": "_seconds", "By": "_bytes", "": ""}
    return name.replace(".", "_") + words[unit] + ("_total" if counter else "")


@pytest.mark.usefixtures("inline_threads")
@virtual_time
async def test_a_job_whose_metrics_fail_leaves_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = TracedProgram()

    def fail() -> None:
        raise ZeroDivisionError

    first = echo_flow(af.PushSource[int](), "first")
    second = echo_flow(af.PushSource[int](), "second")
    async with (
        first.start(options=program.options) as failing,
        second.start(options=program.options),
    ):
        monkeypatch.setattr(failing, "metrics", fail)
        found = program.metrics()

    assert [point[0] for point in found["aflow.job.restarts"]] == [{"aflow.job": "second"}]


def test_names_become_those_of_the_collector_for_prometheus() -> None:
    names = [name for name, _, _ in described_metrics()]
    for name in names:
        other, unit = instrument_name(name)
        assert prometheus_name(other, unit, counter=name.endswith("_total")) == name
        assert other.islower()
    assert instrument_name("aflow_task_busy_seconds_total") == ("aflow.task.busy", "s")
    assert instrument_name("aflow_left_behind_total") == ("aflow.left_behind", "")
    assert len({instrument_name(name)[0] for name in names}) == len(names)


@pytest.mark.asyncio
async def test_an_exporter_in_a_thread_reads_on_the_event_loop() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    read_in: list[int] = []
    async with echo_flow(source).start(options=program.options) as job:
        metrics = job.metrics
        observed: Any = job

        def noted() -> af.metrics.JobMetrics:
            read_in.append(threading.get_ident())
            return metrics()

        observed.metrics = noted
        await source.send(1)
        found = await asyncio.to_thread(program.metrics)
        del observed.metrics

    assert set(read_in) == {threading.get_ident()}
    assert len(read_in) == 1
    assert found["aflow.job.status"]


@pytest.mark.asyncio
async def test_an_exporter_that_the_blocked_loop_waits_for_exports_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instruments, "_PATIENCE", 0.01)
    program = TracedProgram()
    found: list[dict[str, Any]] = []
    async with echo_flow(af.PushSource[int]()).start(options=program.options):
        thread = threading.Thread(target=lambda: found.append(program.metrics()))
        thread.start()
        thread.join()  # blocks the loop, as `shutdown()` of a provider does

    assert set(found[0]) == {"aflow.build_info"}
    assert "aflow.job.status" in program.metrics()


@virtual_time
async def test_a_later_job_of_the_same_name_replaces_the_earlier_one() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    for count in (3, 5):
        async with echo_flow(source).start(options=program.options) as job:
            await source.send_many(range(count))
            await job.stop()
        assert program.metrics()["aflow.calls"][0][1] == count


@virtual_time
async def test_a_job_that_is_not_referred_to_is_not_exported() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    async with echo_flow(source).start(options=program.options):
        pass
    gc.collect()
    assert "aflow.job.status" not in program.metrics()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tracer_provider": 1}, "tracer_provider takes a TracerProvider of OpenTelemetry, not 1"),
        ({"meter_provider": "x"}, "meter_provider takes a MeterProvider of OpenTelemetry, not 'x'"),
        ({"records_per_second": -1}, "records_per_second must be 0 or a finite number above it"),
        ({"records_per_second": math.inf}, "records_per_second must be 0 or a finite number"),
        ({"records_per_second": math.nan}, "records_per_second must be 0 or a finite number"),
        ({"calls_per_second": True}, "calls_per_second takes a number, not True"),
        ({"calls_per_second": timedelta(1)}, "calls_per_second takes a number, not"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=message):
        OpenTelemetry(**arguments)


def test_options_take_a_telemetry_only() -> None:
    wrong: Any = OpenTelemetry
    with pytest.raises(FlowDefinitionError, match=r"Options\.telemetry takes OpenTelemetry"):
        af.Options(telemetry=wrong)
