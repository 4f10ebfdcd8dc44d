"""A job is killed repeatedly, and each result is in the objects and in the table once.

``python -m tests.connectors.s3.test_killed_job ROUNDS`` kills it more often.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from obstore.store import from_url

from tests.connectors.s3.killed_job import SIZE, events
from tests.connectors.s3.server import S3Server, running

PROJECT = Path(__file__).parents[3]


def bucket_of(server: S3Server) -> Any:
    settings: dict[str, Any] = {**server.client, "client_options": {"allow_http": True}}
    return from_url(f"s3://{server.bucket}", **settings)


def put_input(server: S3Server, url: str) -> None:
    bucket, folder = bucket_of(server), url.removeprefix(f"s3://{server.bucket}/")
    lines = [json.dumps(event._asdict()) + "\n" for event in events()]
    for number in range(5):
        part = lines[number * len(lines) // 5 : (number + 1) * len(lines) // 5]
        bucket.put(f"{folder}/in/{number}.jsonl", "".join(part).encode())


def records(server: S3Server, url: str) -> list[dict[str, int]]:
    """Return what readers see in the folder ``url``."""
    bucket, folder = bucket_of(server), url.removeprefix(f"s3://{server.bucket}/")
    keys = [one["path"] for page in bucket.list(folder) for one in page]
    shown = [key for key in keys if "/" not in key.removeprefix(f"{folder}/")]
    return [
        json.loads(line) for key in shown for line in bytes(bucket.get(key).bytes()).splitlines()
    ]


async def started(server: S3Server, url: str, folder: Path, parallelism: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.connectors.s3.killed_job"),
        *(server.endpoint, url, str(folder), str(parallelism)),
        cwd=PROJECT,
        stdout=PIPE,
        stderr=PIPE,
    )


async def kill_repeatedly(server: S3Server, url: str, folder: Path, rounds: int) -> int:
    """Kill the job after it has made progress, ``rounds`` times, then let it end; return the number of kills."""
    random, kills, seen = Random(rounds), 0, 0
    for number in range(rounds):
        job = await started(server, url, folder, 1 + number % 3)
        before = seen
        while job.returncode is None and seen <= before:
            await asyncio.sleep(0.02)
            seen = len(records(server, f"{url}/copy"))
        await asyncio.sleep(random.uniform(0, 0.15))
        if job.returncode is None:
            job.kill()
            kills += 1
        _, errors = await job.communicate()
        assert job.returncode in (0, -9), errors.decode()
    job = await started(server, url, folder, 2)
    _, errors = await job.communicate()
    assert job.returncode == 0, errors.decode()
    return kills


def check(server: S3Server, url: str, folder: Path) -> None:
    """Assert that each result is there once."""
    expected: dict[tuple[int, int], int] = {}
    for event in events():
        at = event.key, event.second // SIZE * SIZE
        expected[at] = expected.get(at, 0) + event.id
    rows = [
        {"key": key, "start": start, "total": total}
        for (key, start), total in sorted(expected.items())
    ]
    table = DeltaTable(str(folder / "table")).to_pyarrow_table().to_pylist()

    assert sorted(one["id"] for one in records(server, f"{url}/copy")) == list(range(len(events())))
    assert sorted(records(server, f"{url}/sums"), key=lambda r: (r["key"], r["start"])) == rows
    assert sorted(table, key=lambda row: (row["key"], row["start"])) == rows


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_result_is_written_once_though_the_job_is_killed(
    s3: S3Server, tmp_path: Path
) -> None:
    url = s3.url("killed")
    put_input(s3, url)

    kills = await kill_repeatedly(s3, url, tmp_path, rounds=3)

    assert kills >= 2
    check(s3, url, tmp_path)


def main(rounds: int) -> None:
    """Kill a job ``rounds`` times in total, three times in each run of its input."""
    kills = runs = 0
    with running() as endpoint:
        server = S3Server(endpoint)
        while kills < rounds:
            with tempfile.TemporaryDirectory() as name:
                url, folder = server.url(f"run-{runs}"), Path(name)
                put_input(server, url)
                kills += asyncio.run(kill_repeatedly(server, url, folder, rounds=4))
                check(server, url, folder)
                runs += 1
                print(f"{kills} kills in {runs} runs, each result once", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
