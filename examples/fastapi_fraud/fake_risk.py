"""A simulated risk service: it takes some milliseconds, fails at times, and does not know each merchant.

``python -m fastapi_fraud risk --port 8090`` serves it alone.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from random import Random
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Shares of the requests, from 0 to 1, and a time."""

    errors: float = 0.02
    """Status 503."""
    stalls: float = 0.001
    """No answer for a minute."""
    latency_s: float = 0.005


#: Merchants whose names begin with this are unknown: the service refuses their payments.
UNKNOWN: Final = "unknown"


def score_of(card: str, merchant: str, cents: int) -> int:
    """Return the risk from 0 to 100, the same for each request with these values."""
    drawn = hashlib.sha256(f"{card} {merchant} {cents}".encode()).digest()[0]
    return drawn * 100 // 255


def fake_risk(faults: Faults = Faults(), random: Random | None = None) -> Starlette:
    """Return the service as an application."""
    random = Random() if random is None else random

    async def score(request: Request) -> Response:
        query = await request.json()
        draw = random.random()
        if draw < faults.errors:
            return JSONResponse({"error": "failed on purpose"}, 503)
        await asyncio.sleep(60 if draw < faults.errors + faults.stalls else faults.latency_s)
        if query["merchant"].startswith(UNKNOWN):
            return JSONResponse({"error": f"unknown merchant {query['merchant']!r}"}, 422)
        return JSONResponse({"score": score_of(query["card"], query["merchant"], query["cents"])})

    return Starlette(routes=[Route("/score", score, methods=["POST"])])
