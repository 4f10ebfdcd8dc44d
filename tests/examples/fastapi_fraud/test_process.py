"""The service in processes of its own: the README, kills, SIGTERM, several workers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from bench.crash.payments.results import read_results
from tests.examples.fastapi_fraud.served import PROJECT, environment, served

Require = Callable[[str, str], None]
BODY = {"merchant": "books", "cents": 700}
#: Timeout of a request in seconds, longer than any machine needs.
PATIENCE = 300


def commands(readme: str) -> Iterator[tuple[str, str]]:
    """Yield the commands with curl, and the output of each."""
    block = readme.partition("```console\n")[2].partition("```")[0]
    for entry in block.split("$ ")[2:]:
        command, _, output = entry.partition("\n")
        yield command, output


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_commands_of_the_readme_have_the_outputs_there(
    tmp_path: Path, require: Require
) -> None:
    require("curl", "apt-get install curl")
    readme = await asyncio.to_thread((PROJECT / "examples/fastapi_fraud/README.md").read_text)
    told = list(commands(readme))
    found: list[tuple[str, str]] = []
    async with served(FRAUD_FOLDER=str(tmp_path / "data"), FRAUD_TOKEN="secret") as server:
        for command, _ in told:
            here = command.replace("localhost:8000", server.url.removeprefix("http://"))
            here = here.replace("data/monday", str(tmp_path / "monday"))
            process = await asyncio.create_subprocess_shell(here, stdout=subprocess.PIPE)
            output, _ = await process.communicate()
            found.append((command, _comparable(output.decode())))

    assert found == [(command, _comparable(output)) for command, output in told]


def _comparable(output: str) -> str:
    return re.sub(r'"at":\d+', '"at":0', output.rstrip("\n"))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_killed_service_continues_and_a_stopped_one_writes_everything(
    tmp_path: Path,
) -> None:
    settings = {"FRAUD_FOLDER": str(tmp_path)}
    keys = [{"Idempotency-Key": f"key {number}"} for number in range(20)]
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        async with served(**settings) as server:
            url = f"{server.url}/cards/c1/payments"
            answers = [(await client.post(url, json=BODY, headers=key)) for key in keys]
            assert {answer.status_code for answer in answers} == {202}
            await server.end(signal.SIGKILL)
        async with served(**settings) as server:
            url = f"{server.url}/cards/c1/decisions"
            decisions = [(await client.post(url, json=BODY, headers=key)).json() for key in keys]
            await server.end(signal.SIGTERM)

    assert [decision["number"] for decision in decisions] == list(range(1, 21))
    results = read_results(tmp_path / "shard-0-of-1")
    assert results.decisions == decisions
    assert results.leftovers == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_client_that_disconnects_leaves_nothing_behind(tmp_path: Path) -> None:
    async with (
        served(what="risk") as risk,
        served(FRAUD_FOLDER=str(tmp_path), FRAUD_RISK_URL=risk.url) as server,
    ):
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            key = {"Idempotency-Key": "a"}
            with pytest.raises(httpx.ReadTimeout):
                await client.post(
                    "/cards/c1/decisions",
                    json=BODY,
                    headers=key,
                    timeout=httpx.Timeout(PATIENCE, read=0.0001),
                )
            decision = (await client.post("/cards/c1/decisions", json=BODY, headers=key)).json()
        assert await server.end(signal.SIGTERM) == -signal.SIGTERM

    assert decision["number"] == 1
    assert read_results(tmp_path / "shard-0-of-1").decisions == [decision]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_second_worker_of_uvicorn_is_refused_and_told_how_to_shard(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "--factory", "fastapi_fraud.service:create_app"),
        *("--workers", "2", "--port", "0"),
        env=environment(FRAUD_FOLDER=str(tmp_path)),
        cwd=PROJECT,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(300):
            while not any("is in use by process" in line for line in lines):
                lines.append((await process.stderr.readline()).decode())
                assert lines[-1], "uvicorn has ended"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # uvicorn would start the refused worker for ever
        await process.wait()

    assert "give each process a folder of its own" in lines[-1]
