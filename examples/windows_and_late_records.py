"""Windows over records that are out of order: totals per shop and minute, and the late sales.

Event time is a field of the record. The watermark is its progress: here it is 10 seconds behind the newest sale. A
window emits its result when the watermark passes its end; a sale that arrives after that is late.

Prints:

    12:00 north 30.0
    12:00 south 5.0
    12:01 north 1.0
    late: Sale(shop='south', amount=7.0, at='12:00:40')
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aflow as af

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Sale:
    shop: str
    amount: float
    at: str


def time_of(sale: Sale) -> datetime:
    return datetime.fromisoformat(f"2025-06-01T{sale.at}").replace(tzinfo=UTC)


SALES = [
    Sale("north", 10.0, "12:00:05"),
    Sale("south", 5.0, "12:00:30"),
    Sale("north", 20.0, "12:00:20"),  # out of order, by less than 10 s
    Sale("north", 1.0, "12:01:10"),  # advances the watermark to 12:00:59.999, which closes 12:00
    Sale("south", 7.0, "12:00:40"),
]


def format_total(total: af.Windowed[str, float]) -> str:
    start = datetime.fromtimestamp(total.window.start / 1000, UTC)
    return f"{start:%H:%M} {total.key} {total.value}"


def build(sales: list[Sale], totals: af.Sink[str], late: af.Sink[Sale]) -> af.Flow:
    flow = af.Flow("sales per minute")
    per_minute = (
        flow.source(sales, name="sales")
        .event_time(time_of, max_delay=timedelta(seconds=10))
        .key_by(lambda sale: sale.shop)
        .window(af.Tumbling(MINUTE))
        .fold(float, lambda total, sale: total + sale.amount, name="totals")
    )
    per_minute.map(format_total).to(totals, name="show")
    per_minute.late.to(late, name="late")
    return flow


if __name__ == "__main__":
    late = af.CollectSink[Sale]()
    asyncio.run(build(SALES, af.CallbackSink(print), late).run())
    for sale in late.values:
        print("late:", sale)
