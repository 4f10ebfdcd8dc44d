"""Clients that send payments, each until its fate is known, and record the answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from random import Random
from typing import Any, Final

import aiohttp

from bench.crash.payments.server import Server

CLIENTS: Final = 16
_CARDS: Final = 48
#: Shares of the payments.
_ASKED: Final = 0.35
_UNKNOWN_MERCHANT: Final = 0.04
_INVALID: Final = 0.02
#: Share of questions that their client does not wait for: it disconnects, and asks again.
_ABANDONED: Final = 0.05
#: Answers "full" after which a client gives up.
_PATIENCE: Final = 2
#: Seconds of a client between two attempts.
_PAUSE: Final = 0.02


class WrongAnswer(Exception):
    """The service gave an answer that its README does not know."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A payment of a client."""

    card: str
    id: str
    merchant: str
    cents: int
    at: int
    """Epoch milliseconds."""
    is_valid: bool


@dataclass(slots=True)
class Ledger:
    """Knowledge of all clients at the end."""

    accepted: list[Sent] = field(default_factory=list[Sent])
    refused: list[Sent] = field(default_factory=list[Sent])
    """Invalid, or each attempt was refused."""
    decisions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The answers to questions."""
    unscored: list[Sent] = field(default_factory=list[Sent])
    """Payments for which the service said that they have no score."""
    repeats: int = 0
    """Attempts that were not the first for their payment."""
    late_answers: int = 0
    """Questions whose timeout expired."""


class Client:
    """Sends payments one after the other."""

    def __init__(
        self, number: int, server: Server, session: aiohttp.ClientSession, ledger: Ledger, seed: str
    ) -> None:
        self._number = number
        self._server = server
        self._session = session
        self._ledger = ledger
        self._random = Random(f"{seed} {number}")
        self._sent = 0
        self.ends = False

    async def run(self) -> None:
        """Send payments until ``ends`` is set; the last one is completed. Raises ``WrongAnswer``."""
        while not self.ends:
            await self.settle(self._payment(), asks=self._random.random() < _ASKED)

    def _payment(self) -> Sent:
        self._sent += 1
        random = self._random
        is_valid = random.random() >= _INVALID
        return Sent(
            card=f"card-{random.randrange(_CARDS)}",
            id=f"client {self._number} payment {self._sent}",
            merchant="unknown shop" if random.random() < _UNKNOWN_MERCHANT else "shop",
            cents=random.randrange(1, 20_000) if is_valid else 0,
            at=time.time_ns() // 1_000_000,
            is_valid=is_valid,
        )

    async def settle(self, payment: Sent, *, asks: bool) -> None:
        """Send a payment until it is known to be accepted or refused. One without an answer is sent again."""
        outcome, attempts, full, is_unknown = None, 0, 0, False
        while outcome is None:
            attempts += 1
            outcome, refusal = await self._attempt(payment, asks=asks)
            if refusal:
                full += 1
                # An attempt without an answer may have been accepted, so it must not give up.
                if full > _PATIENCE and not is_unknown:
                    outcome = False
            else:
                is_unknown = True
            if outcome is None:
                await asyncio.sleep(_PAUSE)
        self._ledger.repeats += attempts - 1
        (self._ledger.accepted if outcome else self._ledger.refused).append(payment)

    async def _attempt(self, payment: Sent, *, asks: bool) -> tuple[bool | None, bool]:
        """Return True if the payment is accepted, False if it is invalid, None to repeat; and if it was refused."""
        await self._server.accepts.wait()
        try:
            async with asyncio.timeout(self._patience(asks)):
                status, body = await self._request(payment, asks=asks)
        except (TimeoutError, aiohttp.ClientError):
            return None, False
        return self._outcome(payment, status, body)

    def _patience(self, asks: bool) -> float | None:
        """Return the seconds after which the client disconnects."""
        return (
            self._random.uniform(0, 0.02) if asks and self._random.random() < _ABANDONED else None
        )

    async def _request(self, payment: Sent, *, asks: bool) -> tuple[int, Any]:
        what = "decisions" if asks else "payments"
        async with self._session.post(
            f"{self._server.url}/cards/{payment.card}/{what}",
            json={"merchant": payment.merchant, "cents": payment.cents, "at": payment.at},
            headers={"Idempotency-Key": payment.id},
        ) as response:
            return response.status, await response.json() if await response.read() else None

    def _outcome(self, payment: Sent, status: int, body: Any) -> tuple[bool | None, bool]:
        match status:
            case HTTPStatus.ACCEPTED:
                return True, False
            case HTTPStatus.OK:
                self._ledger.decisions.append(body)
                return True, False
            case HTTPStatus.BAD_GATEWAY if body["accepted"] is True:
                self._ledger.unscored.append(payment)
                return True, False
            case HTTPStatus.SERVICE_UNAVAILABLE:
                return None, body["accepted"] is False
            case HTTPStatus.GATEWAY_TIMEOUT:
                self._ledger.late_answers += 1
                return None, False
            case HTTPStatus.UNPROCESSABLE_ENTITY if not payment.is_valid:
                return False, False
            case _:
                raise WrongAnswer(f"status {status} for {payment}: {body}")


@asynccontextmanager
async def clients(server: Server, ledger: Ledger, seed: str) -> AsyncGenerator[None]:
    """Run clients during the block; each completes its last payment."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        all_clients = [Client(number, server, session, ledger, seed) for number in range(CLIENTS)]
        for client in all_clients:
            group.create_task(client.run())
        yield
        for client in all_clients:
            client.ends = True
