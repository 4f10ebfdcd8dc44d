"""The flow: payments from the log → risk of each → decisions by card → tables, exactly once.

A payment may be in the log twice: clients repeat requests, and ``Job.ask`` takes no id. The step ``decide`` remembers
the decisions of some minutes, and gives a repeated payment the same one again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, closing
from datetime import timedelta
from typing import Final, Protocol

import aflow as af
from aflow_connectors.files import JsonLinesSink
from aflow_connectors.sqlite import SqliteSink
from fastapi_fraud.payments import (
    Card,
    Decided,
    Decision,
    Minute,
    Payment,
    Scored,
    Unscored,
    Verdict,
)
from fastapi_fraud.risk import RETRY, connected
from fastapi_fraud.settings import Settings

#: Scores from here on.
BLOCK_AT: Final = 90
REVIEW_AT: Final = 70
#: The most that a card may pay within ``RECENT_MS`` without a review.
RECENT_CENTS: Final = 100_000
RECENT_MS: Final = 600_000
#: The time for which a decision is stored. Longer than a payment is accepted after its time: a repeated one is found.
MEMORY_MS: Final = 900_000

#: The step with the state of the cards, which handlers read, and the name of the state.
DECIDE: Final = "decide"
CARD: Final = "card"

_UNSCORED: Final = af.Tag[af.calls.FailedCall[Payment]]("unscored")

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS decisions (
    card TEXT NOT NULL, id TEXT NOT NULL, cents INTEGER NOT NULL, at INTEGER NOT NULL, score INTEGER NOT NULL,
    verdict TEXT NOT NULL, number INTEGER NOT NULL, recent_cents INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS minutes (
    card TEXT NOT NULL, start INTEGER NOT NULL, payments INTEGER NOT NULL, cents INTEGER NOT NULL
);
"""


class Scorer(Protocol):
    """The part of ``RiskService`` that the flow uses."""

    async def score(self, payment: Payment, /) -> int: ...


class Decide(af.KeyedProcess[str, Scored, Decided]):
    """Decide by the risk of a payment and the recent payments of its card.

    All times are those of the payments, so a repeated run decides the same.
    """

    card = af.ValueState(CARD, of=Card)

    def process(self, value: Scored, ctx: af.Context[str]) -> Iterable[Decided]:
        state, payment = ctx.state(self.card), value.payment
        card = state.get(Card())
        for decision in card.recent:
            if decision.id == payment.id:
                return [Decided(decision, is_repeated=True)]
        decision = _decide(value, card)
        latest = max(payment.at, *(one.at for one in card.recent), 0)
        recent = [one for one in card.recent if one.at > latest - MEMORY_MS]
        state.set(Card(decision.number, [*recent, decision]))
        return [Decided(decision, is_repeated=False)]


def _decide(scored: Scored, card: Card) -> Decision:
    payment = scored.payment
    since = payment.at - RECENT_MS
    cents = sum(
        one.cents for one in card.recent if one.at > since and one.verdict is not Verdict.BLOCK
    )
    if scored.score >= BLOCK_AT:
        verdict = Verdict.BLOCK
    else:
        cents += payment.cents
        reviewed = scored.score >= REVIEW_AT or cents > RECENT_CENTS
        verdict = Verdict.REVIEW if reviewed else Verdict.APPROVE
    return Decision(
        payment.card,
        payment.id,
        payment.cents,
        payment.at,
        scored.score,
        verdict,
        card.payments + 1,
        cents,
    )


class Pipeline:
    """The source, the flow and the settings of one shard."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place = settings.place
        self.payments = af.DurablePushSource(
            self._place / "log",
            of=Payment,
            max_bytes=settings.max_bytes,
            full_timeout=timedelta(seconds=settings.full_seconds),
            id_window=timedelta(seconds=settings.id_seconds),
        )
        self.checkpointing = af.Checkpointing(
            storage=self._place / "state", every=timedelta(seconds=settings.checkpoint_seconds)
        )

    def prepare(self) -> None:
        """Create the database of the results; call it once the log is open, and belongs to this process."""
        with closing(sqlite3.connect(self._place / "results.db")) as database:
            database.executescript(_TABLES)

    def flow(self) -> af.Flow:
        """Return the flow. Its results are in ``results.db`` and the folders ``unscored`` and ``late``."""
        flow = af.Flow("payments")
        payments = flow.source(self.payments, name="payments").event_time(
            lambda payment: payment.at,
            max_delay=timedelta(seconds=self._settings.delay_seconds),
            idle_after=timedelta(seconds=30),
            advance_when_idle=True,  # so that the last minutes are written, too
        )
        # By card: payments of a card stay in their order, and a slow call delays its own card only.
        scored = payments.key_by(lambda payment: payment.card).map_async(
            lambda payment, risk: risk.score(payment),
            into=Scored,
            name="score",
            using=af.Resource(self._connect, name="risk"),
            capacity=200,
            attempt_timeout=timedelta(seconds=2),
            timeout=timedelta(seconds=15),
            retry=RETRY,
            on_error=af.calls.DeadLetter(_UNSCORED),
        )
        decided = scored.key_by(lambda one: one.payment.card).process(Decide(), name=DECIDE)
        decided.map(lambda one: one.decision, name="answers").to(
            af.ReplySink[Decision](), name="reply"
        )
        new = decided.filter(lambda one: not one.is_repeated, name="new").map(
            lambda one: one.decision, name="decisions"
        )
        new.to(SqliteSink(self._place / "results.db", "decisions"), name="decisions table")
        self._minutes(new)
        self._unscored(scored.side(_UNSCORED))
        return flow

    def _connect(self) -> AbstractAsyncContextManager[Scorer]:
        return connected(self._settings.risk_url)

    def _minutes(self, decisions: af.Stream[Decision]) -> None:
        """Add up the payments of each card and minute; later ones than ``delay_seconds`` are in ``late``."""
        minutes = (
            decisions.filter(lambda one: one.verdict is not Verdict.BLOCK, name="not blocked")
            .key_by(lambda one: one.card)
            .window(af.Tumbling(timedelta(seconds=self._settings.window_seconds)))
            .fold(_nothing, _add, name="minutes")
        )
        minutes.map(_minute, name="rows").to(
            SqliteSink(self._place / "results.db", "minutes"), name="minutes table"
        )
        minutes.late.to(JsonLinesSink(self._place / "late"), name="late")

    def _unscored(self, failed: af.Stream[af.calls.FailedCall[Payment]]) -> None:
        """Write each payment without a score once, though its client asks again."""
        once = (
            failed.map(_as_unscored, name="as unscored")
            .key_by(lambda one: (one.card, one.id))
            .deduplicate(name="unscored once", within=timedelta(milliseconds=MEMORY_MS))
        )
        once.to(JsonLinesSink(self._place / "unscored"), name="unscored")


def _nothing() -> tuple[int, int]:
    return 0, 0


def _add(so_far: tuple[int, int], decision: Decision) -> tuple[int, int]:
    return so_far[0] + 1, so_far[1] + decision.cents


def _minute(result: af.Windowed[str, tuple[int, int]]) -> Minute:
    return Minute(result.key, result.window.start, *result.value)


def _as_unscored(failed: af.calls.FailedCall[Payment]) -> Unscored:
    payment = failed.value
    return Unscored(
        payment.card,
        payment.id,
        payment.merchant,
        payment.cents,
        payment.at,
        reason=failed.error,
        message=failed.message,
        attempts=failed.attempts,
    )
