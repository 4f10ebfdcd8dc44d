"""The client of the risk service."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import httpx
import msgspec

import aflow as af
from fastapi_fraud.fake_risk import fake_risk
from fastapi_fraud.payments import Payment


class Unavailable(Exception):
    """The service is busy or fails: another attempt may succeed."""


class Refused(Exception):
    """The service refuses this payment, and would refuse it again."""


class _Answer(msgspec.Struct):
    score: int


_read_answer = msgspec.json.Decoder(_Answer).decode

RETRY: Final = af.Retry(
    attempts=6,
    delay=timedelta(milliseconds=50),
    factor=2,
    jitter=0.3,
    on=(Unavailable, TimeoutError, httpx.TransportError),
)


class RiskService:
    """Asks the risk service over an open client."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def score(self, payment: Payment) -> int:
        """Make one attempt. Raises ``Unavailable``, ``Refused`` or ``httpx.TransportError``."""
        response = await self._client.post(
            "/score",
            json={"card": payment.card, "merchant": payment.merchant, "cents": payment.cents},
        )
        status = response.status_code
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unavailable(f"status {status}: {response.text[:200]}")
        if status != HTTPStatus.OK:
            raise Refused(f"status {status}: {response.text[:200]}")
        return _read_answer(response.content).score


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[RiskService]:
    """Open a client; without ``url`` that of the simulated service, in this process."""
    transport = None if url else httpx.ASGITransport(fake_risk())
    async with httpx.AsyncClient(
        base_url=url or "http://risk",
        transport=transport,
        timeout=None,  # the step limits the time of its calls,
        limits=httpx.Limits(max_connections=None),  # and their number
    ) as client:
        yield RiskService(client)
