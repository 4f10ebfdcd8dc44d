"""Inferred types of pipelines. Nothing here runs: `make types` checks it.

Lambdas have no annotations here, since users write none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_type

import aflow as af

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Payment:
    card: str
    amount: float
    at: datetime


@dataclass(frozen=True)
class Refund:
    payment: Payment


Payments = af.Stream[Payment]
PerCard = af.KeyedStream[str, Payment]
Windows = af.WindowedStream[str, Payment]


# ------------------------------------------------------------------------------------------------------------- sources


def a_flow_begins_with_any_kind_of_source(
    flow: af.Flow,
    source: af.Source[Payment],
    items: list[Payment],
    generated: Iterator[Payment],
    streamed: AsyncIterator[Payment],
) -> None:
    assert_type(flow.source(source), af.Stream[Payment])
    assert_type(flow.source(items, name="payments"), af.Stream[Payment])
    assert_type(flow.source(generated), af.Stream[Payment])
    assert_type(flow.source(streamed), af.Stream[Payment])
    assert_type(flow.source([1, 2, 3]), af.Stream[int])
    assert_type(flow.source(range(3), parallelism=1), af.Stream[int])
    assert_type(flow.source({"a": 1}.items()), af.Stream[tuple[str, int]])


async def _pages(start: int) -> AsyncIterator[Payment]:
    for _ in range(start):
        yield Payment("4711", 1.0, datetime.now().astimezone())


def ends_know_what_they_hold(items: list[Payment]) -> None:
    assert_type(af.IterableSource(items), af.IterableSource[Payment])
    assert_type(af.AsyncIterableSource(_pages(3)), af.AsyncIterableSource[Payment])
    assert_type(af.AsyncIterableSource(_pages), af.AsyncIterableSource[Payment])
    assert_type(af.ThreadSource(iter(items)), af.ThreadSource[Payment])
    assert_type(af.CollectSink[Payment]().values, list[Payment])
    assert_type(af.CollectSink[Payment]().timestamps, list[int | None])


def a_source_of_a_subclass_is_a_source_of_its_base(
    flow: af.Flow, source: af.Source[bool]
) -> af.Stream[int]:
    wider: af.Source[int] = source
    return flow.source(wider)


async def a_push_source_takes_its_type(source: af.PushSource[Payment], payment: Payment) -> None:
    await source.send(payment)
    await source.send(payment, payment.at)
    await source.send_many([payment])
    source.send_nowait(payment, 1_000)


# --------------------------------------------------------------------------------------------------------------- steps


def stateless_steps_follow_their_functions(payments: Payments) -> None:
    assert_type(payments.map(lambda p: p.amount), af.Stream[float])
    assert_type(payments.map(lambda p: (p.card, p.amount)), af.Stream[tuple[str, float]])
    assert_type(payments.map(Refund), af.Stream[Refund])
    assert_type(payments.filter(lambda p: p.amount > 10), af.Stream[Payment])
    assert_type(payments.filter(lambda p: p.card), af.Stream[Payment])
    assert_type(payments.flat_map(lambda p: [p.card, p.card]), af.Stream[str])
    assert_type(payments.flat_map(lambda p: p.card.split()), af.Stream[str])
    assert_type(payments.flat_map(lambda p: (p.amount,)), af.Stream[float])
    assert_type(payments.map_batch(lambda batch: [p.amount for p in batch]), af.Stream[float])


def a_chain_of_lambdas_infers_to_its_end(payments: Payments) -> None:
    cents = (
        payments.filter(lambda p: p.amount > 0)
        .map(lambda p: {"card": p.card, "cents": str(p.amount)})
        .map(lambda d: int(d["cents"]))
    )

    assert_type(cents, af.Stream[int])


def builtins_and_methods_are_functions_too(numbers: af.Stream[int], words: af.Stream[str]) -> None:
    assert_type(numbers.map(str), af.Stream[str])
    assert_type(numbers.filter(bool), af.Stream[int])
    assert_type(words.map(len), af.Stream[int])
    assert_type(words.map(str.upper), af.Stream[str])
    assert_type(words.flat_map(str.split), af.Stream[str])


class PerRecord(af.watermarks.WatermarkGenerator[Payment]):
    def on_event(self, value: Payment, timestamp: int) -> int | None:
        return timestamp if value.amount else None

    def on_periodic(self) -> int | None:
        return None


def event_time_keeps_the_type(payments: Payments) -> None:
    assert_type(payments.ingestion_time(watermark_interval=MINUTE), Payments)
    assert_type(payments.event_time(lambda p: p.at), af.Stream[Payment])
    assert_type(payments.event_time(lambda p: 1_000, max_delay=MINUTE), af.Stream[Payment])
    assert_type(payments.event_time(idle_after=MINUTE, name="time"), af.Stream[Payment])
    assert_type(payments.event_time(lambda p: p.at, generator=PerRecord), af.Stream[Payment])
    assert_type(
        payments.event_time(lambda p: p.at, generator=lambda: PerRecord()), af.Stream[Payment]
    )


def keys_follow_their_function(payments: Payments) -> None:
    assert_type(payments.key_by(lambda p: p.card), af.KeyedStream[str, Payment])
    assert_type(
        payments.key_by(lambda p: (p.card, p.at.year)), af.KeyedStream[tuple[str, int], Payment]
    )
    assert_type(payments.key_by(lambda p: None), af.KeyedStream[None, Payment])
    assert_type(payments.key_by(lambda p: p.card, of=str), af.KeyedStream[str, Payment])


def exchanges_keep_the_type(payments: Payments) -> None:
    assert_type(payments.rebalance(), af.Stream[Payment])
    assert_type(payments.broadcast(2), af.Stream[Payment])
    assert_type(payments.partition_by(lambda p, n: len(p.card) % n), af.Stream[Payment])
    assert_type(payments.union(payments, payments, name="all"), af.Stream[Payment])


def totals(payments: Payments, every: timedelta, *, scale: float = 1.0) -> af.Stream[float]:
    return payments.map(lambda p: p.amount * scale / every.total_seconds())


def largest(numbers: af.Stream[float]) -> tuple[af.Stream[float], int]:
    return numbers, 1


def a_pipe_gives_what_its_function_gives(payments: Payments) -> None:
    assert_type(payments.pipe(totals, MINUTE), af.Stream[float])
    assert_type(payments.pipe(totals, MINUTE, scale=2.0), af.Stream[float])
    assert_type(payments.pipe(totals, MINUTE).pipe(largest), tuple[af.Stream[float], int])
    assert_type(payments.pipe(lambda s: s.map(lambda p: p.card)), af.Stream[str])


# ------------------------------------------------------------------------------------------------------- keyed streams


def nothing() -> tuple[int, float]:
    # No lambda: pyright takes (0, 0.0) in a lambda for a tuple of Literal[0], and 0 + 1 does not fit into that.
    return 0, 0.0


def plus(pair: tuple[int, float], payment: Payment) -> tuple[int, float]:
    return pair[0] + 1, pair[1] + payment.amount


def keyed_folds_follow_their_functions(per_card: PerCard) -> None:
    assert_type(per_card.fold(int, lambda n, p: n + 1, name="count"), af.Stream[int])
    assert_type(
        per_card.fold(lambda: 0.0, lambda total, p: total + p.amount, name="total"),
        af.Stream[float],
    )
    assert_type(
        per_card.fold(lambda: (0.0, 0.0), lambda a, p: (a[0] + 1, a[1] + p.amount), name="both"),
        af.Stream[tuple[float, float]],
    )
    assert_type(
        per_card.fold(lambda: {"n": 0}, lambda a, p: {"n": a["n"] + 1}, name="counts"),
        af.Stream[dict[str, int]],
    )
    assert_type(per_card.fold(nothing, plus, name="pairs"), af.Stream[tuple[int, float]])
    assert_type(
        per_card.fold(nothing, lambda a, p: (a[0] + 1, a[1] + p.amount), name="pairs"),
        af.Stream[tuple[int, float]],
    )
    assert_type(per_card.fold(int, lambda n, p: n + 1, name="count", of=int), af.Stream[int])
    assert_type(per_card.reduce(lambda a, b: max(a, b, key=str), name="max"), af.Stream[Payment])


def keyed_streams_keep_their_keys(per_card: PerCard) -> None:
    assert_type(per_card.map(lambda p: p.amount), af.KeyedStream[str, float])
    assert_type(per_card.map(Refund), af.KeyedStream[str, Refund])
    assert_type(per_card.filter(lambda p: p.amount > 10), PerCard)
    assert_type(per_card.flat_map(lambda p: [p.amount]), af.KeyedStream[str, float])
    cents = per_card.map(lambda p: p.amount).filter(bool).map(lambda a: int(a * 100))
    assert_type(cents.fold(int, lambda n, c: n + c, name="cents"), af.Stream[int])


class Dormant(af.KeyedProcess[str, Payment, Refund]):
    last = af.ValueState("last", of=Payment)
    recent = af.ListState("recent", of=float)
    shops = af.MapState("shops", key=str, of=int)
    highest = af.ReducingState[float]("highest", max)

    def process(self, value: Payment, ctx: af.Context[str]) -> Iterable[Refund]:
        last = ctx.state(self.last)
        assert_type(last.get(), Payment | None)
        assert_type(last.get(value), Payment)
        assert_type(ctx.state(self.recent).get(), list[float])
        assert_type(ctx.state(self.shops).get("x", 0), int)
        assert_type(ctx.state(self.highest).get(), float | None)
        assert_type(ctx.key, str)
        assert_type(ctx.timestamp, int | None)
        last.set(value)
        ctx.set_event_timer(value.at + MINUTE)
        yield Refund(value)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[Refund]:
        assert_type(ctx.timer_domain, af.TimeDomain | None)
        return []


class Split(af.ProcessFunction[Payment, float]):
    def process(self, value: Payment, ctx: af.ProcessContext) -> list[float]:
        assert_type(ctx.watermark, int)
        ctx.side(REFUNDS, Refund(value))
        return [value.amount]


class Nothing(af.ProcessFunction[object, str]):
    def process(self, value: object, ctx: af.ProcessContext) -> None:
        return None


REFUNDS = af.Tag[Refund]("refunds")


def process_functions_say_what_they_give(payments: Payments, per_card: PerCard) -> None:
    assert_type(per_card.process(Dormant(), name="dormant"), af.Stream[Refund])
    assert_type(payments.process(Split()), af.Stream[float])
    assert_type(payments.process(Split(), name="split").side(REFUNDS), af.Stream[Refund])


# ------------------------------------------------------------------------------------------------------------- windows


class Mean(af.Aggregate[Payment, tuple[float, int], float]):
    def create(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, acc: tuple[float, int], value: Payment) -> tuple[float, int]:
        return acc[0] + value.amount, acc[1] + 1

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        return a[0] + b[0], a[1] + b[1]

    def result(self, acc: tuple[float, int]) -> float:
        return acc[0] / acc[1]


def windows_keep_key_and_value(per_card: PerCard) -> None:
    assert_type(per_card.window(af.Tumbling(MINUTE)), af.WindowedStream[str, Payment])
    assert_type(
        per_card.window(af.Sliding(MINUTE * 2, MINUTE), lateness=MINUTE),
        af.WindowedStream[str, Payment],
    )


def window_results_follow_their_functions(windows: Windows) -> None:
    assert_type(
        windows.fold(float, lambda total, p: total + p.amount, name="total"),
        af.streams.WindowResults[Payment, af.Windowed[str, float]],
    )
    assert_type(
        windows.fold(lambda: "", lambda joined, p: joined + p.card, name="cards"),
        af.streams.WindowResults[Payment, af.Windowed[str, str]],
    )
    assert_type(
        windows.fold(nothing, lambda a, p: (a[0] + 1, a[1] + p.amount), name="pairs"),
        af.streams.WindowResults[Payment, af.Windowed[str, tuple[int, float]]],
    )
    assert_type(
        windows.reduce(lambda a, b: a if a.amount > b.amount else b, name="max", of=Payment),
        af.streams.WindowResults[Payment, af.Windowed[str, Payment]],
    )
    assert_type(
        windows.aggregate(Mean(), name="mean"),
        af.streams.WindowResults[Payment, af.Windowed[str, float]],
    )


def a_window_result_is_a_stream_with_late_records(
    results: af.streams.WindowResults[Payment, af.Windowed[str, float]],
) -> None:
    assert_type(results.late, af.Stream[Payment])
    assert_type(results.map(lambda w: w), af.Stream[af.Windowed[str, float]])
    assert_type(results.map(lambda w: w.key), af.Stream[str])
    assert_type(results.map(lambda w: w.value), af.Stream[float])
    assert_type(results.map(lambda w: w.window), af.Stream[af.TimeWindow])
    assert_type(results.key_by(lambda w: w.key), af.KeyedStream[str, af.Windowed[str, float]])
    plain: af.Stream[af.Windowed[str, float]] = results
    plain.to(af.CollectSink[af.Windowed[str, float]]())


# --------------------------------------------------------------------------------------------------------------- sinks


def _print(payment: Payment) -> None: ...


async def _post(payment: Payment) -> int:
    return 1


def a_stream_ends_in_a_sink_of_its_type(payments: Payments, sink: af.Sink[Payment]) -> None:
    payments.to(sink, name="payments")
    payments.to(af.CollectSink[Payment]())
    payments.to(af.CallbackSink(_print))
    payments.to(af.CallbackSink(_post))
    payments.to(af.CallbackSink(print))
    payments.to(af.CallbackSink(lambda p: print(p.card)))
    payments.to(af.ResultSink())
    payments.map(lambda p: p.card).to(af.CollectSink[object]())


def build(payments: af.Source[Payment], totals: af.Sink[af.Windowed[str, float]]) -> af.Flow:
    flow = af.Flow("card-totals")
    per_card = (
        flow.source(payments, name="payments")
        .event_time(lambda p: p.at, max_delay=timedelta(seconds=5))
        .filter(lambda p: p.amount > 0.9)
        .key_by(lambda p: p.card)
        .window(af.Tumbling(MINUTE * 5), lateness=MINUTE)
        .fold(float, lambda total, p: total + p.amount, name="per-card")
    )
    per_card.to(totals, name="totals")
    per_card.late.to(af.CollectSink[Payment](), name="late")
    return flow


# ----------------------------------------------------------------------------------------------------------------- job


async def a_job_gives_its_results(
    flow: af.Flow, sink: af.ResultSink[af.Windowed[str, float]]
) -> None:
    async with flow.start(parallelism=2) as job:
        assert_type(job, af.Job)
        assert_type(job.results(sink), af.streams.Results[af.Windowed[str, float]])
        async for result in job.results(sink):
            assert_type(result, af.Windowed[str, float])
        async for result in sink:
            assert_type(result, af.Windowed[str, float])
        assert_type(job.metrics(), af.metrics.JobMetrics)
        assert_type(job.metrics().steps["totals"], af.metrics.StepMetrics)
        assert_type(job.metrics().tasks, list[af.metrics.TaskMetrics])
        await job.stop(drain=True)
