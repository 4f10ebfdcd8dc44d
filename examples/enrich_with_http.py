"""Orders with their customers, who are asked for over HTTP: many requests at once, retried, timed out and cached.

The session is a resource: opened when the job begins, handed to each call, closed after the last one. The service at
the bottom stands for somebody else's. It fails whenever it is asked for a customer for the first time, and it never
answers for customer 4: that order waits for as long as its timeout says, and then goes to the dead letters. Nothing
else is lost, orders of a customer share one answer, and all leave in the order in which they came.

Needs aiohttp (``pip install aiohttp``); any other asynchronous client works the same way.

Prints:

    1: 30.00 to Ada in London
    2: 12.50 to Grace in New York
    3: 99.00 to Ada in London
    no answer: order 4, after 1 attempt: TimeoutError
    5: 7.25 to Grace in New York
    6: 18.00 to Ada in London
    the service was asked 5 times: 2 answers, 2 failures, 1 silence
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


NO_ANSWER = af.Tag[af.FailedCall[Order]]("no answer")


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
        cache=af.Cache(1000, key=lambda order: order.customer, ttl=timedelta(minutes=5)),
        on_error=af.DeadLetter(NO_ANSWER),
    )
    invoices.to(af.CallbackSink(print), name="invoices")
    invoices.side(NO_ANSWER).to(af.CallbackSink(complain), name="complaints")
    return flow


def complain(lost: af.FailedCall[Order]) -> None:
    print(f"no answer: order {lost.value.id}, after {lost.attempts} attempt: {lost.error}")


# ---------------------------------------------------------------------------------------------- somebody else's service

CUSTOMERS = {
    1: {"name": "Ada", "city": "London"},
    2: {"name": "Grace", "city": "New York"},
}


class Service:
    def __init__(self) -> None:
        self.asked = Counter[int]()
        self.counts = Counter[str]()

    async def customer(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        self.asked[number] += 1
        if number not in CUSTOMERS:
            self.counts["silence"] += 1
            await asyncio.sleep(60)
        if self.asked[number] == 1:
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
    said = ", ".join(f"{count} {what}" for what, count in sorted(service.counts.items()))
    print(f"the service was asked {service.asked.total()} times: {said}")


if __name__ == "__main__":
    asyncio.run(main())
