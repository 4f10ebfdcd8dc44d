"""Convert payments with the exchange rate at their time, whatever the order of arrival: an as-of join.

The stream of rates is a history: each rate is valid until the next one of its currency. The join buffers a payment
until the watermarks of both streams have reached its timestamp, so a rate that arrives later than the payment still
counts if its timestamp is earlier.

Prints:

    10:00 EUR 100.00 at 1.08: USD 108.00
    11:30 EUR 100.00 at 1.12: USD 112.00
    11:45 GBP 10.00: no rate
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import aflow as af


@dataclass(frozen=True)
class Payment:
    currency: str
    at: str
    amount: float


@dataclass(frozen=True)
class Rate:
    currency: str
    at: str
    dollars: float


PAYMENTS = [
    Payment("EUR", "10:00", 100.0),
    Payment("EUR", "11:30", 100.0),
    Payment("GBP", "11:45", 10.0),
]
RATES = [Rate("EUR", "09:00", 1.08), Rate("EUR", "11:00", 1.12), Rate("EUR", "12:00", 1.05)]


def time_of(record: Payment | Rate) -> datetime:
    return datetime.fromisoformat(f"2025-06-01T{record.at}").replace(tzinfo=UTC)


def converted(payment: Payment, rate: Rate | None) -> str:
    paid = f"{payment.at} {payment.currency} {payment.amount:.2f}"
    if rate is None:
        return f"{paid}: no rate"
    return f"{paid} at {rate.dollars}: USD {payment.amount * rate.dollars:.2f}"


def build(payments: list[Payment], rates: list[Rate], results: af.Sink[str]) -> af.Flow:
    flow = af.Flow("payments in dollars")
    paid = flow.source(payments, name="payments").event_time(time_of, name="payment time")
    held = flow.source(rates, name="rates").event_time(time_of, name="rate time")
    paid.key_by(lambda payment: payment.currency).as_of_join(
        held.key_by(lambda rate: rate.currency), of=Payment, other_of=Rate
    ).left(converted, name="rate").to(results, name="show")
    return flow


if __name__ == "__main__":
    asyncio.run(build(PAYMENTS, RATES, af.CallbackSink(print)).run())
