"""Inferred types of steps that call async functions. Nothing here runs: `make types` checks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

import aflow as af


@dataclass(frozen=True)
class Order:
    id: int
    city: str


@dataclass(frozen=True)
class Weather:
    degrees: float


class Client:
    async def get(self, city: str) -> Weather:
        return Weather(float(len(city)))


async def weather(order: Order) -> Weather:
    return Weather(float(order.id))


async def words(order: Order) -> list[str]:
    return order.city.split()


async def letters(order: Order) -> AsyncIterator[str]:
    for letter in order.city:
        yield letter


async def known(order: Order) -> bool:
    return order.id > 0


def results_have_the_type_that_is_awaited(orders: af.Stream[Order], client: Client) -> None:
    assert_type(orders.map_async(weather), af.Stream[Weather])
    assert_type(orders.map_async(lambda o: client.get(o.city)), af.Stream[Weather])
    assert_type(orders.flat_map_async(words), af.Stream[str])
    assert_type(orders.flat_map_async(letters), af.Stream[str])
    assert_type(orders.filter_async(known), af.Stream[Order])


def options_know_the_values(orders: af.Stream[Order]) -> None:
    failed = af.Tag[af.calls.FailedCall[Order]]("failed")
    answers = orders.map_async(
        weather,
        name="weather",
        capacity=200,
        ordered=False,
        timeout=timedelta(seconds=2),
        attempt_timeout=timedelta(milliseconds=500),
        deadline=lambda order: order.id + 1_000,
        retry=af.Retry(attempts=3, delay=timedelta(milliseconds=50), on=ConnectionError),
        on_error=af.calls.DeadLetter(failed),
        of=Order,
    )
    assert_type(answers, af.Stream[Weather])
    assert_type(answers.side(failed), af.Stream[af.calls.FailedCall[Order]])
    orders.map_async(weather, on_error=af.calls.Fallback(lambda order, error: Weather(0.0)))


def keyed_streams_call_too(orders: af.Stream[Order]) -> None:
    keyed = orders.key_by(lambda order: order.city)
    assert_type(keyed.map_async(weather, name="w"), af.Stream[Weather])
    assert_type(keyed.flat_map_async(words, name="x"), af.Stream[str])
    assert_type(keyed.filter_async(known, name="k"), af.Stream[Order])


class Session:
    async def get(self, url: str) -> Weather:
        return Weather(float(len(url)))

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


async def asked(order: Order, session: Session) -> Weather:
    return await session.get(order.city)


def a_resource_is_the_second_argument(orders: af.Stream[Order]) -> None:
    sessions = af.Resource(Session, shared="http")
    assert_type(orders.map_async(asked, using=sessions, capacity=10), af.Stream[Weather])
    assert_type(
        orders.map_async(lambda o, session: session.get(o.city), using=sessions),
        af.Stream[Weather],
    )
    assert_type(
        orders.map_async(asked, using=sessions, into=lambda o, w: (o, w)),
        af.Stream[tuple[Order, Weather]],
    )


async def weathers(orders: list[Order]) -> list[Weather | Exception]:
    return [Weather(1.0) if order.city else LookupError() for order in orders]


async def plain_weathers(orders: list[Order]) -> list[Weather]:
    return [Weather(1.0) for _ in orders]


def limits_and_caches_know_the_values(orders: af.Stream[Order]) -> None:
    answers = orders.map_async(
        weather,
        capacity=af.calls.Adaptive(start=20),
        rate=af.calls.RateLimit(100, timedelta(seconds=1), cost=lambda order: len(order.city)),
        breaker=af.calls.CircuitBreaker(failures=0.5),
        cache=af.calls.Cache(1_000, key=lambda order: order.city),
    )
    assert_type(answers, af.Stream[Weather])
    assert_type(orders.map_batch_async(weathers, size=10), af.Stream[Weather])
    assert_type(orders.map_batch_async(plain_weathers, size=10), af.Stream[Weather])


class Totals(af.AsyncKeyedProcess[str, Order, tuple[str, int]]):
    """Count the orders of a city after a lookup of its weather."""

    seen = af.ValueState("seen", of=int)
    http = af.Resource(Session)

    async def process(self, value: Order, ctx: af.AsyncContext[str]) -> list[tuple[str, int]]:
        weather = await ctx.use(self.http).get(value.city)
        assert_type(weather, Weather)
        number = ctx.state(self.seen).get(0) + 1
        ctx.state(self.seen).set(number)
        return [(ctx.key, number)]


def handlers_have_the_type_of_their_results(orders: af.Stream[Order]) -> None:
    keyed = orders.key_by(lambda order: order.city)
    totals = keyed.process_async(Totals(), name="totals", capacity=10, timeout=timedelta(seconds=1))
    keyed.process_async(Totals(), name="again", attempt_timeout=timedelta(seconds=1))
    assert_type(totals, af.Stream[tuple[str, int]])
