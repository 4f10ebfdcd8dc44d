"""Mistakes in pipelines. See ``test_negative.py`` for what the remarks mean."""

from __future__ import annotations

# A remark must stay on the line of its mistake, and the two together are often longer than code may be.
# fmt: off

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import aflow as af

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Payment:
    card: str
    amount: float
    at: datetime


Payments = af.Stream[Payment]
PerCard = af.KeyedStream[str, Payment]
Windows = af.WindowedStream[str, Payment]
Results = af.streams.WindowResults[Payment, af.Windowed[str, float]]


def misspelt_in_a_lambda(payments: Payments, per_card: PerCard, windows: Windows) -> None:
    payments.map(lambda p: p.amuont)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    payments.filter(lambda p: p.amuont)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    payments.key_by(lambda p: p.crad)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    payments.event_time(lambda p: p.time)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    per_card.fold(float, lambda n, p: n + p.amuont, name="n")  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    windows.fold(float, lambda n, p: n + p.amuont, name="n")  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    windows.fold(lambda: "", lambda a, p: a.uper() + p.card, name="n")  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]


def misspelt_behind_a_chain_of_lambdas(payments: Payments, results: Results) -> None:
    payments.map(lambda p: p.card).map(lambda c: c.uper())  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    results.map(lambda w: w.valeu)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    results.map(lambda w: w.window.begin)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    results.late.map(lambda p: p.value)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]


def text_for_a_time(payments: Payments) -> None:
    payments.event_time(lambda p: p.card)  # error: mypy[arg-type,return-value] pyright[reportArgumentType]
    payments.event_time("at")  # error: mypy[arg-type] pyright[reportArgumentType]


def numbers_for_durations(payments: Payments, per_card: PerCard) -> None:
    payments.event_time(lambda p: p.at, max_delay=5)  # error: mypy[arg-type] pyright[reportArgumentType]
    per_card.window(af.Tumbling(60))  # error: mypy[arg-type] pyright[reportArgumentType]
    per_card.window(MINUTE)  # error: mypy[arg-type] pyright[reportArgumentType]
    per_card.window(af.Tumbling(MINUTE), lateness=60)  # error: mypy[arg-type] pyright[reportArgumentType]


def a_sink_of_another_type(payments: Payments, results: Results) -> None:
    payments.to(af.CollectSink[str]())  # error: mypy[arg-type] pyright[reportArgumentType]
    results.to(af.CollectSink[float]())  # error: mypy[arg-type] pyright[reportArgumentType]
    results.late.to(af.CollectSink[af.Windowed[str, float]]())  # error: mypy[arg-type] pyright[reportArgumentType]


class PerNumber(af.KeyedProcess[int, Payment, str]):
    def process(self, value: Payment, ctx: af.Context[int]) -> Iterable[str]:
        return [value.card]


class PerText(af.KeyedProcess[str, str, str]):
    def process(self, value: str, ctx: af.Context[str]) -> Iterable[str]:
        return [value]


class Unkeyed(af.ProcessFunction[Payment, str]):
    def process(self, value: Payment, ctx: af.ProcessContext) -> Iterable[str]:
        return [value.card]


def a_process_function_that_does_not_fit(payments: Payments, per_card: PerCard) -> None:
    per_card.process(PerNumber(), name="n")  # error: mypy[arg-type] pyright[reportArgumentType]
    per_card.process(PerText(), name="n")  # error: mypy[arg-type] pyright[reportArgumentType]
    per_card.process(Unkeyed(), name="n")  # error: mypy[arg-type] pyright[reportArgumentType]
    payments.process(PerNumber(), name="n")  # error: mypy[arg-type] pyright[reportArgumentType]


class ResultsOfAnotherType(af.KeyedProcess[str, Payment, str]):
    def process(self, value: Payment, ctx: af.Context[str]) -> Iterable[float]:  # error: mypy[override] pyright[reportIncompatibleMethodOverride]
        return [value.amount]


class Mean(af.Aggregate[float, float, float]):
    def create(self) -> float:
        return 0.0

    def add(self, acc: float, value: float) -> float:
        return acc + value

    def merge(self, a: float, b: float) -> float:
        return a + b

    def result(self, acc: float) -> float:
        return acc


def functions_that_do_not_fit(payments: Payments, per_card: PerCard, windows: Windows) -> None:
    payments.flat_map(lambda p: p.amount)  # error: mypy[arg-type,return-value] pyright[reportArgumentType]
    payments.map_batch(lambda p: p.amount)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    payments.partition_by(lambda p, n: p.card)  # error: mypy[arg-type,return-value] pyright[reportArgumentType]
    per_card.reduce(lambda a, b: a.amount, name="n")  # error: mypy[arg-type,return-value] pyright[reportArgumentType]
    windows.aggregate(Mean(), name="n")  # error: mypy[arg-type] pyright[reportArgumentType]
    windows.fold(str, lambda n, p: p.amount, name="n")  # error: mypy[arg-type,return-value] pyright[reportArgumentType]


def keys_of_another_type_than_declared(payments: Payments) -> None:
    payments.key_by(lambda p: p.card, of=int)  # error: mypy[arg-type,return-value]
    payments.key_by(lambda p: [p.card])  # error: mypy[type-var] pyright[reportArgumentType]


def a_stateful_step_without_a_name(per_card: PerCard, windows: Windows) -> None:
    per_card.fold(int, len)  # error: mypy[arg-type,call-arg] pyright[reportCallIssue]
    windows.reduce(lambda a, b: a)  # error: mypy[call-overload] pyright[reportCallIssue]


def streams_of_different_types(payments: Payments, words: af.Stream[str]) -> None:
    payments.union(words)  # error: mypy[arg-type] pyright[reportArgumentType]


def steps_that_a_stream_does_not_have(payments: Payments, per_card: PerCard) -> None:
    payments.fold(int, lambda n, p: n + 1, name="n")  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    payments.window(af.Tumbling(MINUTE))  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    per_card.map(lambda p: p.crad)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
    per_card.map_batch(lambda ps: ps)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]


def piped(payments: Payments, every: timedelta) -> Payments:
    return payments


def a_pipe_with_wrong_arguments(payments: Payments) -> None:
    payments.pipe(piped, 5)  # error: mypy[arg-type] pyright[reportArgumentType]
    payments.pipe(piped)  # error: mypy[call-arg] pyright[reportCallIssue]


TAG = af.Tag[str]("bad")


def a_side_output_of_another_type(ctx: af.ProcessContext, payment: Payment) -> None:
    ctx.side(TAG, payment)  # error: mypy[misc] pyright[reportArgumentType]


async def records_of_another_type(source: af.PushSource[Payment]) -> None:
    await source.send("4711")  # error: mypy[arg-type] pyright[reportArgumentType]


def sources_that_are_none(flow: af.Flow) -> None:
    flow.source(5)  # error: mypy[call-overload] pyright[reportArgumentType,reportCallIssue]


async def results_of_another_type(job: af.Job, sink: af.ResultSink[str]) -> AsyncIterator[int]:
    return job.results(sink)  # error: mypy[arg-type] pyright[reportReturnType]
