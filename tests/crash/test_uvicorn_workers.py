"""Workers of uvicorn that share a port take a log each, as the guide describes, and a new one continues that of a
killed one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

PROJECT = Path(__file__).parents[2]

#: ``first_free`` is that of docs/guide/durable-push.md.
SERVICE = """
import os
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import aflow as af
from aflow_connectors.files import JsonLinesSink

FOLDER = Path(os.environ["FOLDER"])


async def first_free(workers: int) -> tuple[int, af.DurablePushSource[str]]:
    for number in range(workers):
        source: af.DurablePushSource[str] = af.DurablePushSource(FOLDER / f"logs/{number}", of=str)
        try:
            return number, await source.__aenter__()
        except af.errors.SourceInUse:
            continue  # by another worker
    raise RuntimeError(f"all {workers} logs are in use")


@asynccontextmanager
async def lifespan(app):
    number, app.state.source = await first_free(2)
    flow = af.Flow("texts")
    texts = flow.source(app.state.source, name="texts").map(lambda text: {"text": text}, name="row")
    texts.to(JsonLinesSink(FOLDER / f"output/{number}"), name="output")
    async with flow.start(checkpointing=af.Checkpointing(storage=FOLDER / f"states/{number}")):
        yield {"number": number}
    await app.state.source.aclose()


async def post(request):
    text = request.path_params["text"]
    await request.app.state.source.send(text, id=text)
    answer = {"worker": request.state.number, "process": os.getpid()}
    return JSONResponse(answer, 202, headers={"Connection": "close"})


app = Starlette(routes=[Route("/{text}", post, methods=["POST"])], lifespan=lifespan)
"""


class Workers:
    """Two workers that answer on one port."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.accepted: list[str] = []

    async def post(self) -> dict[str, Any]:
        """Send a text until it is accepted, and return the answer."""
        text = f"text-{len(self.accepted)}"
        while True:
            try:
                # A new connection, which any of the workers may get: each one is closed after an answer.
                answer = await self._client.post(f"/{text}")
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            assert answer.status_code == 202
            self.accepted.append(text)
            found: dict[str, Any] = answer.json()
            return found

    async def until_both(self, *, without: int = 0) -> dict[int, int]:
        """Send texts until both logs have some of other processes than ``without``; return these by log."""
        found: dict[int, int] = {}
        async with asyncio.timeout(300):
            while len(found) < 2:
                answer = await self.post()
                if answer["process"] != without:
                    found[answer["worker"]] = answer["process"]
        return found


@asynccontextmanager
async def two_workers(folder: Path) -> AsyncGenerator[Workers]:
    paths = os.pathsep.join(str(one) for one in (folder, PROJECT, PROJECT / "connectors"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "workers_service:app", "--workers", "2", "--port", "0"),
        env={**os.environ, "PYTHONPATH": paths, "FOLDER": str(folder)},
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(300):
            while not (
                found := re.search(rb"http://[0-9.:]+", line := await process.stderr.readline())
            ):
                assert line, "uvicorn has ended"
        reading = asyncio.ensure_future(process.stderr.read())
        async with httpx.AsyncClient(base_url=found[0].decode(), timeout=60) as client:
            yield Workers(client)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(300):
            await reading
            await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_worker_has_a_log_and_a_new_one_continues_that_of_a_killed_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "workers_service.py").write_text(SERVICE)
    async with two_workers(tmp_path) as workers:
        first = await workers.until_both()
        os.kill(first[0], signal.SIGKILL)
        second = await workers.until_both(without=first[0])

    assert second[1] == first[1]
    written = [
        json.loads(line)["text"]
        for path in (tmp_path / "output").glob("*/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert sorted(written) == sorted(workers.accepted)
