"""Keyed state and timers: report a card without payments for thirty days of event time.

A ``KeyedProcess`` processes each record with the state of its key. An event-time timer fires when the watermark
reaches it, or at the end of a bounded input: a month without payments takes no time in a replay. The watermark
follows the records, so the next payment of a card may be processed before the timer fires: compare timestamps in both
methods.

Prints:

    4711 was silent after 2025-01-20
    0815 was silent after 2025-01-05
    4711 was silent after 2025-03-01
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aflow as af

SILENCE = timedelta(days=30)


@dataclass(frozen=True)
class Payment:
    card: str
    at: datetime


class Dormant(af.KeyedProcess[str, Payment, str]):
    """Keep the time of the last payment, and a timer thirty days after it."""

    last = af.ValueState("last", of=datetime)

    def process(self, value: Payment, ctx: af.Context[str]) -> Iterable[str]:
        last = ctx.state(self.last)
        before = last.get()
        if before is not None:
            ctx.delete_event_timer(before + SILENCE)
            if value.at - before >= SILENCE:
                yield report(ctx.key, before)
        last.set(value.at)
        ctx.set_event_timer(value.at + SILENCE)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[str]:
        last = ctx.state(self.last)
        yield report(ctx.key, last.get())
        last.clear()


def report(card: str, last: datetime | None) -> str:
    return f"{card} was silent after {last:%Y-%m-%d}"


def build(payments: list[Payment], reports: af.Sink[str]) -> af.Flow:
    flow = af.Flow("dormant cards")
    paid = flow.source(payments, name="payments").event_time(lambda payment: payment.at)
    silent = paid.key_by(lambda payment: payment.card).process(Dormant(), name="dormant")
    silent.to(reports, name="reports")
    return flow


def on(month: int, day: int, card: str) -> Payment:
    return Payment(card, datetime(2025, month, day, tzinfo=UTC))


PAYMENTS = [on(1, 5, "0815"), on(1, 20, "4711"), on(2, 20, "4711"), on(3, 1, "4711")]

if __name__ == "__main__":
    asyncio.run(build(PAYMENTS, af.CallbackSink(print)).run())
