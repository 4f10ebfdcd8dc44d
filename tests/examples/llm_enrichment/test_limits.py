"""Limits of the flow in virtual time: tokens per minute, calls in flight, pauses that the provider asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import pytest

import aflow as af
from aflow.testing.virtual_time import virtual_time
from llm_enrichment.model import (
    InvalidAnswer,
    Refused,
    RetryAsAsked,
    Unavailable,
    is_overload,
    most_tokens,
)
from llm_enrichment.pipeline import Limits, Sinks, build
from llm_enrichment.tickets import (
    Classification,
    DeadTicket,
    EnrichedTicket,
    Ticket,
    UnreadableLine,
)

MINUTE_S = 60.0


class ScriptedModel:
    """A model that takes a second for each answer, and raises ``failures`` first, one for each call."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.times: list[tuple[float, Ticket]] = []
        self.in_flight = 0
        self.most_in_flight = 0

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[ScriptedModel]:
        yield self

    async def classify(self, ticket: Ticket) -> Classification:
        self.times.append((asyncio.get_running_loop().time(), ticket))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(1)
        finally:
            self.in_flight -= 1
        if self.failures:
            raise self.failures.pop(0)
        return Classification("other", 1, "nothing")


async def run(
    model: ScriptedModel, tickets: Sequence[Ticket], limits: Limits
) -> tuple[list[EnrichedTicket], list[DeadTicket]]:
    enriched, dead = af.CollectSink[EnrichedTicket](), af.CollectSink[DeadTicket]()
    sinks = Sinks(enriched=enriched, dead=dead, unreadable=af.CollectSink[UnreadableLine]())
    await build(
        af.IterableSource(tickets), model.connect, sinks, model="scripted", limits=limits
    ).run()
    return enriched.values, dead.values


def tickets(count: int) -> list[Ticket]:
    return [Ticket(number, f"Ticket {number}, {'x' * (number % 50)}") for number in range(count)]


@virtual_time
async def test_no_minute_has_more_tokens_than_the_budget() -> None:
    model, given = ScriptedModel(), tickets(300)
    budget = 5_000

    enriched, _ = await run(model, given, Limits(tokens_per_minute=budget))

    assert {row.id for row in enriched} == {ticket.id for ticket in given}
    largest = max(most_tokens(ticket) for ticket in given)
    for begin, _ in model.times:
        inside = (ticket for at, ticket in model.times if begin <= at < begin + MINUTE_S)
        assert sum(map(most_tokens, inside)) <= budget + 2 * largest
    took = model.times[-1][0] - model.times[0][0]
    total = sum(map(most_tokens, given))
    assert total / budget - 1 < took / MINUTE_S < total / budget + 1


@virtual_time
async def test_attempts_again_are_within_the_budget_too() -> None:
    failures = [Unavailable(500, "failed", None) for _ in range(5)]
    model, given = ScriptedModel(*failures), tickets(40)

    enriched, _ = await run(model, given, Limits(tokens_per_minute=2_000))

    assert len(enriched) == 40
    assert len(model.times) == 45
    tokens = sum(most_tokens(ticket) for _, ticket in model.times)
    assert model.times[-1][0] - model.times[0][0] > (tokens / 2_000 - 1) * MINUTE_S


@virtual_time
async def test_no_more_calls_are_in_flight_than_allowed() -> None:
    model = ScriptedModel()

    await run(model, tickets(300), Limits(tokens_per_minute=10_000_000, most_in_flight=7))

    assert model.most_in_flight == 7


@virtual_time
async def test_a_ticket_is_not_asked_again_before_the_time_that_the_provider_says() -> None:
    model = ScriptedModel(Unavailable(429, "busy", timedelta(seconds=17)))

    enriched, _ = await run(model, tickets(1), Limits())

    (first, _), (second, _) = model.times
    assert 1 + 17 <= second - first <= 1 + 17 * 1.1 + 0.01
    assert len(enriched) == 1


@virtual_time
async def test_an_attempt_without_an_answer_is_repeated() -> None:
    class Stalled(ScriptedModel):
        async def classify(self, ticket: Ticket) -> Classification:
            if not self.times:
                self.times.append((0, ticket))
                await asyncio.sleep(3600)
            return await super().classify(ticket)

    model = Stalled()

    enriched, dead = await run(model, tickets(1), Limits(attempt_timeout=timedelta(seconds=5)))

    assert len(model.times) == 2
    assert (len(enriched), dead) == (1, [])


@virtual_time
async def test_an_outage_delays_tickets_and_makes_few_calls() -> None:
    outage = [Unavailable(503, "down", None) for _ in range(25)]
    model = ScriptedModel(*outage)

    enriched, dead = await run(model, tickets(100), Limits())

    assert len(enriched) == 100
    assert dead == []
    assert len(model.times) == 125


@pytest.mark.parametrize(
    ("error", "number", "least", "most"),
    [
        (Unavailable(500, "", None), 1, 0.35, 0.65),
        (Unavailable(500, "", None), 3, 1.4, 2.6),
        (Unavailable(429, "", timedelta(seconds=30)), 1, 30, 33),
        (Unavailable(429, "", timedelta(0)), 1, 0.35, 0.65),
        (InvalidAnswer(), 1, 0.35, 0.65),
        (TimeoutError(), 1, 0.35, 0.65),
        (aiohttp.ClientConnectionError(), 1, 0.35, 0.65),
    ],
    ids=["500", "third 500", "429", "429 for now", "invalid", "timeout", "connection"],
)
@pytest.mark.parametrize("random", [0.0, 0.5, 1.0])
def test_the_pause_grows_and_is_never_shorter_than_asked(
    error: Exception, number: int, least: float, most: float, random: float
) -> None:
    pause = RetryAsAsked().again(af.calls.Attempt(number=number, error=error), random)

    assert pause is not None
    assert least <= pause.total_seconds() <= most


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (Refused("too long"), 1),
        (InvalidAnswer(), 2),
        (Unavailable(500, "", None), 6),
        (Unavailable(429, "", timedelta(seconds=1)), 6),
    ],
    ids=["refused", "invalid twice", "500", "429"],
)
def test_an_attempt_is_the_last_one(error: Exception, number: int) -> None:
    assert RetryAsAsked().again(af.calls.Attempt(number=number, error=error), 0.5) is None


def test_only_overload_and_timeouts_reduce_the_calls_in_flight() -> None:
    errors = [
        Unavailable(429, "", None),
        Unavailable(503, "", None),
        TimeoutError(),
        Unavailable(500, "", None),
        InvalidAnswer(),
        Refused(),
    ]

    assert [is_overload(error) for error in errors] == [True, True, True, False, False, False]
