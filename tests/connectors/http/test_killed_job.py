"""A job is killed repeatedly, and each result reaches a service that honours keys once.

``python -m tests.connectors.http.test_killed_job 100 [SEED]`` kills until there were so many kills, with another seed
for each run.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from aiohttp import web

from tests.connectors.http.killed_job import COUNT, SOURCES, expected
from tests.connectors.http.service import Ledger, Replaying, serving
from tests.forked import Forked, ForkServer, fork_server


class Service:
    """The replaying sources, and the ledger of the totals, which cuts some of its connections."""

    def __init__(self, random: Random) -> None:
        self.ledger = Ledger()
        self.replaying = Replaying(COUNT, pace=0.004, ends=False)
        self._random = random

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/totals":
            return await self.replaying.handle(request)
        self.ledger.cuts = int(self._random.random() < 0.1)
        return await self.ledger.handle(request)

    @property
    def count(self) -> int:
        """The number of different totals."""
        return len({(one["source"], one["n"]) for one in self.ledger.records})


async def killed_jobs(
    forked: ForkServer, folder: Path, kills: int, random: Random
) -> tuple[int, Service]:
    """Kill the job ``kills`` times at random moments; return the number of kills before it had posted everything."""
    service = Service(random)
    effective = 0
    async with serving(service.handle) as url:
        for number in range(kills + 1):
            job = await forked.start("tests.connectors.http.killed_job", url, folder, errors=True)
            try:
                if number < kills:
                    await _posts_more(service, job)
                    await asyncio.sleep(random.uniform(0, 0.3))
                    effective += service.count < COUNT * len(SOURCES)
                else:
                    await _all_posted(service, job)
            finally:
                if job.returncode is None:
                    job.kill()
                await job.communicate()
    return effective, service


async def _posts_more(service: Service, job: Forked) -> None:
    """Wait until the job has posted something, or everything is there already."""
    before = len(service.ledger.requests)
    while len(service.ledger.requests) == before and service.count < COUNT * len(SOURCES):
        await _runs(job)


async def _all_posted(service: Service, job: Forked) -> None:
    while service.count < COUNT * len(SOURCES):
        await _runs(job)
    await asyncio.sleep(0.3)  # a later checkpoint would show a record that is posted twice


async def _runs(job: Forked) -> None:
    assert job.returncode is None, (await job.communicate())[1].decode()
    await asyncio.sleep(0.01)


def check(service: Service) -> None:
    found = sorted(service.ledger.records, key=lambda one: (one["source"], one["n"]))
    assert found == expected()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_result_is_applied_once_though_the_job_is_killed(
    forked: ForkServer, tmp_path: Path
) -> None:
    effective, service = await killed_jobs(forked, tmp_path, 3, Random(1))

    check(service)
    assert effective >= 2


def main(kills: int, seed: int = 0) -> None:
    """Print the number of kills while something was left to be posted."""
    done = 0
    while done < kills:
        with TemporaryDirectory() as folder, fork_server() as forked:
            effective, service = asyncio.run(killed_jobs(forked, Path(folder), 5, Random(seed)))
        check(service)
        done, seed = done + effective, seed + 1
        print(
            f"seed {seed - 1}: {effective} kills, {len(service.ledger.requests)} requests",
            flush=True,
        )
    print(f"{done} kills: each of {len(expected())} totals was applied once in each run")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
