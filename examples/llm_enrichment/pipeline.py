"""The flow: tickets → a call of the model for each → enriched tickets, dead letters, unreadable lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import aflow as af
from llm_enrichment.model import RetryAsAsked, Unavailable, is_overload, most_tokens
from llm_enrichment.tickets import (
    Classification,
    DeadTicket,
    EnrichedTicket,
    Ticket,
    UnreadableLine,
    dead_ticket,
    unreadable_line,
)

#: Calls in flight are restored by the name of their step.
CLASSIFY: Final = "classify"
UNREADABLE: Final = af.Tag[af.connect.BadRecord]("unreadable")
UNCLASSIFIED: Final = af.Tag[af.calls.FailedCall[Ticket]]("unclassified")


class Classifier(Protocol):
    """The part of ``Model`` that the flow uses."""

    async def classify(self, ticket: Ticket, /) -> Classification: ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the provider, or of your own budget."""

    tokens_per_minute: int = 200_000
    most_in_flight: int = 100
    attempt_timeout: timedelta = timedelta(seconds=30)
    timeout: timedelta = timedelta(minutes=5)
    """For all attempts of a ticket together, with the pauses between them."""


@dataclass(frozen=True, kw_only=True)
class Sinks:
    """The outputs of the flow."""

    enriched: af.Sink[EnrichedTicket]
    dead: af.Sink[DeadTicket]
    unreadable: af.Sink[UnreadableLine]


def build(
    tickets: af.Source[Ticket],
    connect: Callable[[], AbstractAsyncContextManager[Classifier]],
    sinks: Sinks,
    *,
    model: str,
    limits: Limits,
) -> af.Flow:
    """Return the flow. ``tickets`` sends lines that are no tickets to the side output ``UNREADABLE``."""

    def enrich(ticket: Ticket, answer: Classification) -> EnrichedTicket:
        return EnrichedTicket(
            ticket.id, ticket.text, answer.category, answer.urgency, answer.summary, model
        )

    flow = af.Flow("tickets")
    read = flow.source(tickets, name="tickets")
    classified = read.map_async(
        lambda ticket, client: client.classify(ticket),
        into=enrich,
        name=CLASSIFY,
        using=af.Resource(connect, name="model"),
        ordered=False,  # a ticket that is retried delays no other one
        capacity=af.calls.Adaptive(most=limits.most_in_flight, on=is_overload),
        rate=af.calls.RateLimit(limits.tokens_per_minute, timedelta(minutes=1), cost=most_tokens),
        attempt_timeout=limits.attempt_timeout,
        timeout=limits.timeout,
        retry=RetryAsAsked(),
        breaker=af.calls.CircuitBreaker(on=(Unavailable, OSError)),  # TimeoutError is an OSError
        cache=af.calls.Cache(100_000, key=lambda ticket: ticket.text),
        on_error=af.calls.DeadLetter(UNCLASSIFIED),
    )
    classified.to(sinks.enriched, name="enriched")
    classified.side(UNCLASSIFIED).map(dead_ticket, name="dead letters").to(sinks.dead, name="dead")
    read.side(UNREADABLE).map(unreadable_line, name="lines").to(sinks.unreadable, name="unreadable")
    return flow
