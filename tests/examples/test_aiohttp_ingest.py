"""The web service of the example: payments it refuses, and its totals after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from aiohttp_ingest.pipeline import Ingest
from aiohttp_ingest.service import Service


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[TestClient[Request, Application]]:
    application = Service(Ingest(folder)).application()
    async with TestClient(TestServer(application)) as client:
        yield client


async def total_of(client: TestClient[Request, Application], card: str) -> object:
    async with client.get(f"/cards/{card}") as response:
        return (await response.json()).get("cents")


REFUSED = {
    "no UTF-8": b'{"card": "\xff", "cents": 1}',
    "too large": b'{"card": "1", "cents": 18446744073709551615}',
    "negative": b'{"card": "1", "cents": -1}',
    "no card": b'{"card": "", "cents": 1}',
    "no JSON": b"{",
    "": b'{"card": "1", "cents": 1}',  # without a key
}


@pytest.mark.asyncio
async def test_what_the_flow_could_not_process_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for key, body in REFUSED.items():
            headers = {"Idempotency-Key": key} if key else {}
            async with client.post("/payments", data=body, headers=headers) as response:
                assert response.status == 400, (key, await response.text())


@pytest.mark.asyncio
async def test_totals_are_known_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for key in ("a", "b", "b"):
            body, headers = {"card": "1234", "cents": 250}, {"Idempotency-Key": key}
            async with client.post("/payments", json=body, headers=headers) as response:
                assert response.status == 202
        while await total_of(client, "1234") != 500:  # noqa: ASYNC110 - the job counts
            await asyncio.sleep(0.001)

    async with serving(tmp_path) as client:
        assert await total_of(client, "1234") == 500
        assert await total_of(client, "nothing%ED%A0%80") == 0
