"""Dead letters: payments that a step cannot process are kept, and replayed into the same flow after a fix.

``Flow(on_error=DeadLetter(…))`` is the policy of all steps. ``flow.dead_letters()`` is the stream of the
failed records; the second run reads them as its source.

Prints:

    total of ann: 7
    failed in 'parse': {'name': 'bob', 'amount': '1,000'} (ValueError)
    after the fix:
    total of bob: 1000
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import aflow as af

Row = dict[str, str]

FAILED = af.Tag[af.calls.FailedRecord[object]]("failed")


@dataclass(frozen=True)
class Payment:
    name: str
    amount: int


def parse(row: Row) -> Payment:
    return Payment(row["name"], int(row["amount"]))


def parse_with_commas(row: Row) -> Payment:
    return Payment(row["name"], int(row["amount"].replace(",", "")))


def add(total: Payment, payment: Payment) -> Payment:
    return Payment(payment.name, total.amount + payment.amount)


def build(
    rows: Iterable[Row],
    parse: Callable[[Row], Payment],
    totals: af.Sink[str],
    failed: af.Sink[af.calls.FailedRecord[object]],
) -> af.Flow:
    flow = af.Flow("payments", on_error=af.calls.DeadLetter(FAILED))
    payments = flow.source(rows, name="rows").map(parse, name="parse")
    totals_by_name = payments.key_by(lambda payment: payment.name).reduce(add, name="sum")
    totals_by_name.map(lambda total: f"total of {total.name}: {total.amount}").to(totals)
    flow.dead_letters().to(failed, name="failed")
    return flow


def run(rows: Iterable[Row], parse: Callable[[Row], Payment]) -> list[af.calls.FailedRecord[Any]]:
    """Print the totals of ``rows``, and return the dead letters."""
    totals, failed = af.CollectSink[str](), af.CollectSink[af.calls.FailedRecord[Any]]()
    asyncio.run(build(rows, parse, totals, failed).run())
    for total in totals.values:
        print(total)
    return failed.values


if __name__ == "__main__":
    letters = run(
        [{"name": "ann", "amount": "7"}, {"name": "bob", "amount": "1,000"}],
        parse,
    )
    for letter in letters:
        print(f"failed in {letter.step!r}: {letter.value} ({letter.error})")
    print("after the fix:")
    run([letter.value for letter in letters], parse_with_commas)
