"""Samples of the records that steps emit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError
from aflow.metrics import RecordSamples
from aflow.testing.virtual_time import settle, virtual_time

ODD: af.Tag[int] = af.Tag("odd")


class Parts(af.ProcessFunction[int, int]):
    """Sends odd numbers to a side output."""

    def process(self, value: int, ctx: af.ProcessContext) -> Iterable[int] | None:
        if value % 2:
            ctx.side(ODD, value)
            return None
        return (value,)


def texts(job: af.Job, step: str, side: str | None = None) -> list[str]:
    return [one.text for one in job.samples if (one.step, one.side) == (step, side)]


def doubling(source: af.Source[Any], redact: Any = None) -> af.Job:
    flow = af.Flow("doubling")
    numbers = flow.source(source, name="numbers")
    doubled = numbers.map(lambda n: n * 2, name="double").map(lambda n: n + 1, name="next")
    doubled.to(af.CollectSink[int](), name="out")
    return flow.start(options=af.Options(samples=RecordSamples(redact=redact, kept=2)))


@virtual_time
async def test_each_step_has_samples_of_what_it_emits_though_maps_are_fused_otherwise() -> None:
    source = af.PushSource[int]()
    async with doubling(source) as job:
        await source.send_many([1, 2, 3])
        await settle()

        assert [texts(job, step) for step in ("numbers", "double", "next", "out")] == [
            ["1"],
            ["2"],
            ["3"],
            [],
        ]


@virtual_time
async def test_there_is_one_sample_for_each_interval_and_the_latest_are_kept() -> None:
    source = af.PushSource[int]()
    async with doubling(source) as job:
        for number in range(4):
            await source.send_many([number, 100])
            await settle()
            await source.send(200)
            await settle()
            await asyncio.sleep(1)

        assert texts(job, "numbers") == ["2", "3"]
        assert len({one.taken_at for one in job.samples if one.step == "numbers"}) == 2


@virtual_time
async def test_side_outputs_have_samples_and_event_time_is_shown() -> None:
    source = af.PushSource[int]()
    flow = af.Flow("parts")
    timed = flow.source(source, name="numbers").event_time(
        lambda n: n, max_delay=timedelta(0), name="time"
    )
    parts = timed.process(Parts(), name="parts")
    parts.to(af.CollectSink[int](), name="even")
    parts.side(ODD).to(af.CollectSink[int](), name="odd")
    async with flow.start(options=af.Options(samples=RecordSamples())) as job:
        await source.send_many([4, 7])
        await settle()

        assert (texts(job, "parts"), texts(job, "parts", "odd")) == (["4"], ["7"])
        assert {one.timestamp for one in job.samples if one.step == "parts"} == {4, 7}


@virtual_time
async def test_a_job_without_the_option_has_no_samples_and_fuses_its_maps() -> None:
    source = af.PushSource[int]()
    flow = af.Flow("plain")
    flow.source(source).map(lambda n: n).map(lambda n: n).to(af.CollectSink[int]())
    async with flow.start() as job:
        await source.send(1)
        await settle()

        assert list(job.samples) == []


@virtual_time
async def test_a_sample_has_the_redacted_record() -> None:
    def redact(step: str, record: int) -> str:
        return f"{step}: {len(str(record))} digits"

    source = af.PushSource[int]()
    async with doubling(source, redact) as job:
        await source.send(4711)
        await settle()

        assert texts(job, "double") == ["'double: 4 digits'"]


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("secret")


@virtual_time
async def test_errors_of_redact_and_repr_neither_fail_the_job_nor_show_the_record() -> None:
    def redact(step: str, record: int) -> object:
        if step == "numbers":
            raise asyncio.CancelledError(f"secret {record}")
        return Unprintable()

    source = af.PushSource[int]()
    async with doubling(source, redact) as job:
        await source.send(4711)
        await settle()

        assert texts(job, "numbers") == ["<redact failed: CancelledError>"]
        assert texts(job, "double") == ["<repr failed: ValueError>"]
        assert job.status is af.metrics.JobStatus.RUNNING


def test_the_text_is_cut() -> None:
    assert RecordSamples(characters=4).text_of("step", 123456) == "123…"
    assert RecordSamples(characters=4).text_of("step", 1234) == "1234"


@virtual_time
async def test_subtasks_share_the_samples_of_their_step() -> None:
    source = af.PushSource[int]()
    flow = af.Flow("keyed")
    keyed = flow.source(source, name="numbers").key_by(lambda n: n)
    keyed.fold(int, lambda total, n: n, name="last").to(af.CollectSink[int]())
    async with flow.start(parallelism=3, options=af.Options(samples=RecordSamples())) as job:
        await source.send_many(range(100))
        await settle()

        assert len(texts(job, "last")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": timedelta(0)}, "RecordSamples.every"),
        ({"kept": 0}, "RecordSamples.kept must be a whole number from 1 to 100, not 0"),
        ({"characters": 10_001}, "from 1 to 10,000, not 10001"),
        ({"redact": "no"}, "RecordSamples.redact takes a function"),
    ],
)
def test_invalid_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=message):
        RecordSamples(**arguments)


def test_a_coroutine_function_cannot_redact() -> None:
    async def redact(step: str, record: object) -> object:
        return record

    with pytest.raises(FlowDefinitionError, match="is a coroutine function"):
        RecordSamples(redact=redact)


def test_the_option_takes_settings_only() -> None:
    with pytest.raises(FlowDefinitionError, match=r"Options\.samples takes RecordSamples"):
        af.Options(samples=True)  # type: ignore[arg-type]
