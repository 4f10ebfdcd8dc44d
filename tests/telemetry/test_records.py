"""The context of a sender reaches the calls for its record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import aflow as af
from aflow.errors import SourceError
from aflow.machines.calls.on_error import OnError
from aflow.restart import FixedDelay
from aflow.telemetry import OpenTelemetry
from aflow.testing.virtual_time import settle, virtual_time
from tests.inline_threads import inline_threads
from tests.telemetry.tracing import TracedProgram, attributes, is_below

__all__ = ["inline_threads"]

pytestmark = pytest.mark.usefixtures("inline_threads")

MILLISECOND = timedelta(milliseconds=1)

#: More records than a stuck job takes.
COUNT = 2_000


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what threads and a job do."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


def doubling(program: TracedProgram, source: af.Source[int], *, ordered: bool = False) -> af.Flow:
    """Two steps with calls, an exchange by key between them; each call has a span of its own."""

    async def double(number: int) -> int:
        with program.tracer.start_as_current_span(f"double {number}"):
            await asyncio.sleep(0.001 * (number % 5))
            return 2 * number

    async def lookup(number: int) -> int:
        with program.tracer.start_as_current_span(f"lookup {number}"):
            await asyncio.sleep(0.001)
            return number

    flow = af.Flow("numbers")
    doubled = flow.source(source, name="numbers").map_async(double, ordered=ordered, name="double")
    keyed = doubled.key_by(lambda number: number % 3, name="key")
    keyed.map_async(lookup, name="lookup").to(af.CollectSink[int](), name="out")
    return flow


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
@virtual_time
async def test_spans_of_calls_are_below_the_span_of_their_sender(
    ordered: bool, parallelism: int
) -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    flow = doubling(program, source, ordered=ordered)

    async with flow.start(parallelism=parallelism, options=program.options) as job:
        for number in range(10):
            with program.tracer.start_as_current_span(f"request {number}"):
                await source.send(number)
        await job.stop()

    for number in range(10):
        request = program.only(f"request {number}")
        [record] = [one for one in program.named("process numbers") if is_below(one, request)]
        [first] = [one for one in program.named("call double") if is_below(one, record)]
        [second] = [one for one in program.named("call lookup") if is_below(one, record)]
        assert is_below(program.only(f"double {number}"), first)
        assert is_below(program.only(f"lookup {2 * number}"), second)
        assert attributes(first) == {
            "aflow.job": "numbers",
            "aflow.step": "double",
            "aflow.call.attempts": 1,
            "aflow.call.outcome": "returned",
        }
        assert attributes(record)["messaging.destination.name"] == "numbers"
        assert record.kind is trace.SpanKind.CONSUMER
        assert (record.end_time or 0) >= (second.end_time or 0) >= (first.end_time or 0)


@virtual_time
async def test_records_without_a_sampled_span_are_not_traced() -> None:
    program = TracedProgram()
    unsampled = TracerProvider(sampler=ALWAYS_OFF).get_tracer("unsampled")
    source = af.PushSource[int]()

    async with doubling(program, source).start(options=program.options) as job:
        await source.send(1)
        with unsampled.start_as_current_span("request"):
            await source.send(2)
        await job.stop()

    assert not program.named("process numbers")
    assert not program.named("call double")


@virtual_time
async def test_records_are_traced_up_to_the_bound() -> None:
    program = TracedProgram(records_per_second=5)
    source = af.PushSource[int](capacity=10)

    async with doubling(program, source).start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send_many(range(100))
        await asyncio.sleep(1)
        with program.tracer.start_as_current_span("request"):
            await source.send_many(range(100))
        await job.stop()

    assert len(program.named("process numbers")) == 10
    assert len(program.named("call double")) == 10


@virtual_time
async def test_senders_that_wait_keep_their_context() -> None:
    program = TracedProgram()
    source = af.PushSource[int](capacity=1)

    async def request(number: int) -> None:
        with program.tracer.start_as_current_span(f"request {number}"):
            await source.send(number)

    async with doubling(program, source).start(options=program.options) as job:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(request(number))
        await job.stop()

    for number in range(20):
        request_span = program.only(f"request {number}")
        trace_id = request_span.get_span_context().trace_id  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess]
        own = program.only(f"double {number}").get_span_context()
        assert own is not None
        assert own.trace_id == trace_id


@virtual_time
async def test_a_cancelled_sender_leaves_no_open_span() -> None:
    program = TracedProgram(records_per_second=10 * COUNT)
    source = af.PushSource[int](capacity=1)
    flow = af.Flow("stuck")
    gate = asyncio.Event()

    async def wait(number: int) -> int:
        await gate.wait()
        return number

    flow.source(source, name="numbers").map_async(wait, capacity=1, name="wait").to(
        af.CollectSink[int](), name="out"
    )
    async with flow.start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            sending = [asyncio.create_task(source.send(number)) for number in range(COUNT)]
            await settle()
            waiting = [task for task in sending if not task.done()]
            for task in waiting:
                task.cancel()
            await settle()
            assert len(program.named("process numbers")) == len(waiting) > 0
        gate.set()
        await job.stop()
    assert len(program.named("process numbers")) == COUNT


@virtual_time
async def test_asked_records_are_traced() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()

    async def double(number: int) -> int:
        with program.tracer.start_as_current_span("inside"):
            return 2 * number

    flow = af.Flow("asked")
    doubled = flow.source(source, name="numbers").map_async(double, name="double")
    doubled.to(af.ReplySink[int](), name="reply")
    async with flow.start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            assert await job.ask(source, 21) == 42

    assert is_below(program.only("process numbers"), program.only("request"))
    assert is_below(program.only("call double"), program.only("process numbers"))
    assert is_below(program.only("inside"), program.only("call double"))


@virtual_time
async def test_retries_are_events_of_one_span() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    attempts = 0

    async def flaky(number: int) -> int:
        nonlocal attempts
        attempts += 1
        with program.tracer.start_as_current_span(f"attempt {attempts}"):
            if attempts < 3:
                raise ConnectionError(f"gone {attempts}")
        return number

    flow = af.Flow("flaky")
    retry = af.Retry(attempts=3, delay=timedelta(seconds=1))
    called = flow.source(source, name="numbers").map_async(flaky, retry=retry, name="flaky")
    called.to(af.CollectSink[int](), name="out")
    async with flow.start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send(1)
        await job.stop()

    call = program.only("call flaky")
    assert attributes(call)["aflow.call.attempts"] == 3
    assert attributes(call)["aflow.call.outcome"] == "returned"
    assert [(one.name, dict(one.attributes or {})) for one in call.events] == [
        (
            "aflow.call.retry",
            {
                "aflow.call.attempt": attempt,
                "error.type": "ConnectionError",
                "exception.message": f"gone {attempt - 1}",
            },
        )
        for attempt in (2, 3)
    ]
    assert all(is_below(program.only(f"attempt {number}"), call) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (af.calls.Drop(), "dropped"),
        (af.calls.DeadLetter(af.Tag[af.calls.FailedRecord[int]]("failed")), "dead_letter"),
        (af.calls.Fallback[int](lambda number, error: -1), "fallback"),
    ],
)
@virtual_time
async def test_a_call_that_is_given_up_has_an_outcome_and_an_error(
    policy: OnError[int], outcome: str
) -> None:
    program = TracedProgram()
    source = af.PushSource[int]()

    async def fail(number: int) -> int:
        raise ConnectionError("gone")

    flow = af.Flow("failing")
    called = flow.source(source, name="numbers").map_async(fail, on_error=policy, name="fail")
    called.to(af.CollectSink[int](), name="out")
    if isinstance(policy, af.calls.DeadLetter):
        called.side(policy.tag).to(af.CollectSink(), name="failures")
    async with flow.start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send(1)
        await job.stop()

    call = program.only("call fail")
    assert attributes(call)["aflow.call.outcome"] == outcome
    assert attributes(call)["error.type"] == "ConnectionError"
    assert call.status.description == "ConnectionError: gone"


@virtual_time
async def test_a_timeout_ends_the_span_though_the_call_ignores_it() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    gate = asyncio.Event()

    async def stubborn(number: int) -> int:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return number

    flow = af.Flow("stubborn")
    called = flow.source(source, name="numbers").map_async(
        stubborn, timeout=timedelta(seconds=1), on_error=af.calls.Drop(), name="stubborn"
    )
    called.to(af.CollectSink[int](), name="out")
    async with flow.start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send(1)
        await asyncio.sleep(2)
        assert attributes(program.only("call stubborn"))["error.type"] == "TimeoutError"
        gate.set()
        await job.stop()


@virtual_time
async def test_a_call_for_several_records_links_to_the_others() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()

    async def double_all(numbers: list[int]) -> list[int]:
        with program.tracer.start_as_current_span("inside"):
            return [2 * number for number in numbers]

    flow = af.Flow("groups")
    called = flow.source(source, name="numbers").map_batch_async(
        double_all, size=3, delay=timedelta(seconds=1), name="double"
    )
    called.to(af.CollectSink[int](), name="out")
    async with flow.start(options=program.options) as job:
        for number in range(3):
            with program.tracer.start_as_current_span(f"request {number}"):
                await source.send(number)
        await job.stop()

    call = program.only("call double")
    records = program.named("process numbers")
    assert is_below(call, records[0])
    assert [link.context for link in call.links] == [one.get_span_context() for one in records[1:]]
    assert is_below(program.only("inside"), call)
    assert [event.name for event in records[1].events] == ["aflow.call.shared"]


class Looked(af.AsyncKeyedProcess[int, int, int]):
    """A handler with a span of its own."""

    def __init__(self, program: TracedProgram) -> None:
        self._program = program

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[int]:
        with self._program.tracer.start_as_current_span("handler"):
            await asyncio.sleep(0.001)
        return [value]


@virtual_time
async def test_async_handlers_and_generators_run_in_the_context() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()

    async def twice(number: int) -> AsyncIterator[int]:
        for part in range(2):
            with program.tracer.start_as_current_span(f"part {part}"):
                await asyncio.sleep(0.001)
            yield number

    flow = af.Flow("handlers")
    parts = flow.source(source, name="numbers").flat_map_async(twice, name="twice")
    handled = parts.key_by(lambda number: number, name="key").process_async(
        Looked(program), name="looked"
    )
    handled.to(af.CollectSink[int](), name="out")
    async with flow.start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send(7)
        await job.stop()

    record = program.only("process numbers")
    twice_call = program.only("call twice")
    assert all(is_below(program.only(f"part {part}"), twice_call) for part in range(2))
    handlers = program.named("handler")
    assert len(handlers) == 2
    for handler, call in zip(handlers, program.named("call looked"), strict=True):
        assert is_below(handler, call)
        assert is_below(call, record)


@virtual_time
async def test_calls_of_other_records_begin_traces_up_to_the_bound() -> None:
    program = TracedProgram(calls_per_second=3)
    flow = doubling(program, af.IterableSource(range(200)))

    await flow.run(options=program.options)

    calls = program.named("call double")
    assert 1 <= len(calls) <= 4
    for call in calls:
        [record] = [one for one in program.named("process double") if is_below(call, one)]
        assert record.parent is None
        assert any(is_below(one, record) for one in program.named("call lookup"))


@virtual_time
async def test_a_context_does_not_leak_to_other_records() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    seen: dict[int, bool] = {}

    async def look(number: int) -> int:
        await asyncio.sleep(0.001)
        seen[number] = trace.get_current_span().get_span_context().is_valid
        return number

    flow = af.Flow("numbers")
    called = flow.source(source, name="numbers").map_async(look, capacity=2, name="look")
    called.to(af.CollectSink[int](), name="out")
    async with flow.start(options=program.options) as job:
        for number in range(40):
            if number % 4 == 0:
                with program.tracer.start_as_current_span("request"):
                    await source.send(number)
            else:
                await source.send(number)
        await job.stop()

    assert seen == {number: number % 4 == 0 for number in range(40)}


@virtual_time
async def test_a_traced_call_leaves_its_slot_as_it_was() -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    slots: set[asyncio.Task[object] | None] = set()

    async def look(number: int) -> int:
        slots.add(asyncio.current_task())
        await asyncio.sleep(0.001)
        return number

    flow = af.Flow("numbers")
    called = flow.source(source, name="numbers").map_async(look, capacity=1, name="look")
    called.to(af.CollectSink[int](), name="out")
    async with flow.start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send_many(range(5))
        await job.stop()

    assert len(program.named("call look")) == 5
    assert len(slots) == 1  # a slot is replaced if a call has changed the context


class BrokenExporter(SpanExporter):
    """Raises at each span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("the collector is gone")


class BrokenTracerProvider(trace.TracerProvider):
    """Its tracers raise."""

    def get_tracer(self, *args: object, **options: object) -> trace.Tracer:
        return BrokenTracer()


class BrokenTracer(trace.NoOpTracer):
    def start_span(self, *args: object, **options: object) -> trace.Span:
        raise RuntimeError("no spans today")


@virtual_time
async def test_errors_of_the_tool_are_logged_once_and_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    program = TracedProgram()
    broken = OpenTelemetry(BrokenTracerProvider(), program.meters, records_per_second=100)
    source = af.PushSource[int]()
    sink = af.CollectSink[int]()

    async def double(number: int) -> int:
        return 2 * number

    flow = af.Flow("numbers")
    flow.source(source, name="numbers").map_async(double, name="double").to(sink, name="out")
    async with flow.start(options=af.Options(telemetry=broken)) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send_many(range(10))
        await job.stop()

    assert sink.values == [2 * number for number in range(10)]
    events = [one for one in caplog.records if getattr(one, "event", "") == "telemetry_failed"]
    assert len(events) == 1
    assert "no spans today" in events[0].getMessage()


@virtual_time
async def test_an_exporter_that_raises_changes_nothing() -> None:
    program = TracedProgram()
    program.provider.add_span_processor(SimpleSpanProcessor(BrokenExporter()))
    source = af.PushSource[int]()

    async with doubling(program, source).start(options=program.options) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send_many(range(10))
        await job.stop()

    assert len(program.named("call lookup")) == 10


@pytest.mark.asyncio
async def test_a_record_in_a_log_is_traced_again_after_a_restart(tmp_path: Path) -> None:
    program = TracedProgram()
    source = af.DurablePushSource(tmp_path / "log", of=int)
    fails = {3}

    async def half(number: int) -> float:
        with program.tracer.start_as_current_span(f"half {number}"):
            if number in fails:
                fails.discard(number)
                raise ConnectionError("gone")
            return number / 2

    flow = af.Flow("halves")
    sink = af.CollectSink[float]()
    flow.source(source, name="numbers").map_async(half, name="half").to(sink, name="out")
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    restart = FixedDelay(5, 10 * MILLISECOND)
    async with flow.start(checkpointing=settings, restart=restart, options=program.options) as job:
        for number in range(5):
            with program.tracer.start_as_current_span(f"request {number}"):
                await source.send(number)
        await until(lambda: len(sink.values) >= 5)
        assert job.metrics().restarts == 1
        await job.stop()

    request = program.only("request 3")
    first, second = [one for one in program.named("process numbers") if is_below(one, request)]
    assert first.status.description == "the job has failed: OperatorError: " + str(
        job.restarts[0].cause
    )
    assert second.status.is_unset
    [failed] = [one for one in program.named("call half") if is_below(one, first)]
    assert attributes(failed)["aflow.call.outcome"] == "failed"
    assert attributes(failed)["error.type"] == "ConnectionError"
    [call] = [one for one in program.named("call half") if is_below(one, second)]
    assert any(is_below(one, call) for one in program.named("half 3"))


@pytest.mark.asyncio
async def test_send_many_to_a_log_is_traced_record_by_record(tmp_path: Path) -> None:
    program = TracedProgram()
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    source = af.DurablePushSource(tmp_path / "log", of=int)
    async with doubling(program, source).start(
        checkpointing=settings, options=program.options
    ) as job:
        with program.tracer.start_as_current_span("request"):
            await source.send_many(range(4))
        await until(lambda: len(program.named("process numbers")) == 4)
        await job.stop()

    request = program.only("request")
    records = program.named("process numbers")
    assert len(records) == 4
    assert all(is_below(one, request) for one in records)
    assert len(program.named("call lookup")) == 4


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.asyncio
async def test_a_job_that_a_source_refuses_does_not_end_the_traces_of_another(
    tmp_path: Path, durable: bool
) -> None:
    program = TracedProgram()
    source = (
        af.DurablePushSource[int](tmp_path / "log", of=int) if durable else af.PushSource[int]()
    )
    settings = [af.Checkpointing(storage=tmp_path / name, every=None) for name in "ab"]
    first, second = doubling(program, source), doubling(program, source)
    async with first.start(options=program.options, checkpointing=settings[0]) as job:
        with pytest.raises(SourceError, match="is being read by a running job"):
            await second.run(options=program.options, checkpointing=settings[1])
        with program.tracer.start_as_current_span("request"):
            await source.send(1)
        await job.stop(drain=True)

    assert is_below(program.only("process numbers"), program.only("request"))
