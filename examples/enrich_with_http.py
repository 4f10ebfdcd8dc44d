"""Enrich orders with their customers over HTTP: concurrent requests with retries, a timeout and a cache.

The session is a resource: the job opens it at its start, passes it to each call, and closes it after the last one.
The service at the end of this file is a stand-in. It fails the first request for each customer, and never responds
for customer 4: that order becomes a dead letter after its timeout. All other orders are emitted in the order of the
input, and orders of one customer share one response.

Needs aiohttp (``pip install aiohttp``); any other asynchronous client works the same way.

Prints:

    1: 30.00 to Ada in London
    2: 12.50 to Grace in New York
    3: 99.00 to Ada in London
    no answer: order 4, after 1 attempt: TimeoutError
    5: 7.25 to Grace in New York
    6: 18.00 to Ada in London
    5 requests: 2 answers, 2 failures, 1 timeout
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
from aiohttp import web

import aflow as af


@dataclass(frozen=True)
class Order:
    id: int
    customer: int
    amount: float


@dataclass(frozen=True)
class Customer:
    name: str
    city: str


NO_ANSWER = af.Tag[af.calls.FailedCall[Order]]("no answer")


async def customer_of(order: Order, http: aiohttp.ClientSession) -> Customer:
    async with http.get(f"/customers/{order.customer}") as answer:
        answer.raise_for_status()
        return Customer(**await answer.json())


def invoice(order: Order, customer: Customer) -> str:
    return f"{order.id}: {order.amount:.2f} to {customer.name} in {customer.city}"


def build(orders: list[Order], url: str) -> af.Flow:
    flow = af.Flow("invoices")
    invoices = flow.source(orders, name="orders").map_async(
        customer_of,
        into=invoice,
        name="customer",
        using=af.Resource(lambda: aiohttp.ClientSession(url)),
        capacity=10,
        timeout=timedelta(seconds=1),
        retry=af.Retry(
            attempts=5, delay=timedelta(milliseconds=10), factor=2, on=aiohttp.ClientError
        ),
        cache=af.calls.Cache(1000, key=lambda order: order.customer, ttl=timedelta(minutes=5)),
        on_error=af.calls.DeadLetter(NO_ANSWER),
    )
    invoices.to(af.CallbackSink(print), name="invoices")
    invoices.side(NO_ANSWER).to(af.CallbackSink(report), name="unanswered")
    return flow


def report(lost: af.calls.FailedCall[Order]) -> None:
    print(f"no answer: order {lost.value.id}, after {lost.attempts} attempt: {lost.error}")


# ------------------------------------------------------------------------------------------ a stand-in for a service

CUSTOMERS = {
    1: {"name": "Ada", "city": "London"},
    2: {"name": "Grace", "city": "New York"},
}


class Service:
    def __init__(self) -> None:
        self.requests = Counter[int]()
        self.counts = Counter[str]()

    async def customer(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        self.requests[number] += 1
        if number not in CUSTOMERS:
            self.counts["timeout"] += 1
            await asyncio.sleep(60)
        if self.requests[number] == 1:
            self.counts["failures"] += 1
            raise web.HTTPServiceUnavailable
        self.counts["answers"] += 1
        return web.json_response(CUSTOMERS[number])


@asynccontextmanager
async def running(service: Service) -> AsyncGenerator[str]:
    application = web.Application()
    application.router.add_get("/customers/{number}", service.customer)
    runner = web.AppRunner(application, handle_signals=False, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def main() -> None:
    orders = [
        Order(1, 1, 30.0),
        Order(2, 2, 12.5),
        Order(3, 1, 99.0),
        Order(4, 4, 1.0),
        Order(5, 2, 7.25),
        Order(6, 1, 18.0),
    ]
    service = Service()
    async with running(service) as url:
        await build(orders, url).run()
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(service.counts.items()))
    print(f"{service.requests.total()} requests: {counts}")


if __name__ == "__main__":
    asyncio.run(main())
