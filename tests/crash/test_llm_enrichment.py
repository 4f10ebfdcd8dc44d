"""Tickets whose calls are paid: a run that is killed continues, and repeats no call of its last checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from llm_enrichment.fake_server import FakeProvider, Faults, served
from tests.forked import Forked, ForkServer

#: In CI; ``KILLS=100`` for a proof.
KILLS = int(os.environ.get("KILLS", "5"))
TICKETS = 150 * KILLS
IN_FLIGHT = 8
SETTINGS = ("--model", "small", "--checkpoint-every", "0.2", "--tokens-per-minute", "100000000")


def write_tickets(path: Path) -> None:
    """Write tickets with different texts; every tenth one becomes a dead letter."""
    rows = [
        {"id": n, "text": f"{'Die Rechnung' if n % 10 == 0 else 'The login page'} of customer {n}."}
        for n in range(TICKETS)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


async def started(forked: ForkServer, tickets: Path, folder: Path, url: str) -> Forked:
    program = ("llm_enrichment", "run", tickets, "--folder", folder, "--url", url)
    return await forked.start(*program, "--most-in-flight", IN_FLIGHT, *SETTINGS)


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the output in the order of ids, without times and numbers of attempts, which differ in each run."""
    found = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(
        (
            {name: value for name, value in row.items() if name not in ("failed_at", "attempts")}
            for row in found
        ),
        key=lambda row: row["id"],
    )


@dataclass
class Killer:
    """Kills runs at random moments."""

    provider: FakeProvider
    random: Random
    kills: int = 0
    most_repeated: int = 0
    """Bound of the repeated calls: those in flight at the last checkpoint, and those that ended after it."""

    async def kill(self, process: Forked, folder: Path) -> None:
        """Kill ``process`` some calls after its first one: fewer than a run needs to end."""
        last = self.provider.counts["requests"] + self.random.randint(1, TICKETS // (KILLS + 1))
        while self.provider.counts["requests"] < last:
            assert process.returncode is None, "it has ended before the kill"
            await asyncio.sleep(0.001)
        process.kill()
        assert await process.wait() == -signal.SIGKILL, "it has ended before the kill"
        self.kills += 1
        since = newest_checkpoint(folder)
        times = [time for times in self.provider.answers.values() for time in times]
        self.most_repeated += IN_FLIGHT + sum(time >= since for time in times)


def newest_checkpoint(folder: Path) -> float:
    """Return the time (epoch seconds) at which the newest complete checkpoint was triggered; 0 if there is none."""
    manifests = [json.loads(path.read_text()) for path in folder.glob("state/checkpoint-*.json")]
    return max((one["checkpoint"]["created_at"] for one in manifests), default=0) / 1000


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_killed_run_has_the_output_of_another_and_repeats_few_paid_calls(
    forked: ForkServer, tmp_path: Path
) -> None:
    tickets, killed_folder, other_folder = (tmp_path / name for name in ("in.jsonl", "a", "b"))
    write_tickets(tickets)
    provider = FakeProvider(Faults(latency_s=0.03, errors=0.02, busy=0.02, retry_after_s=0.1))
    killer = Killer(provider, Random(1))
    async with served(provider) as url:
        for _ in range(KILLS):
            await killer.kill(await started(forked, tickets, killed_folder, url), killed_folder)
        last = await started(forked, tickets, killed_folder, url)
        assert await last.wait() == 0
    undisturbed = FakeProvider(Faults(latency_s=0.0))
    async with served(undisturbed) as url:
        other = await started(forked, tickets, other_folder, url)
        assert await other.wait() == 0

    for name in ("enriched", "dead"):
        assert rows(killed_folder / name) == rows(other_folder / name)
    enriched = rows(other_folder / "enriched")
    assert len(enriched) == TICKETS * 9 // 10
    paid = sum(len(provider.answers[row["text"]]) for row in enriched)
    assert paid - len(enriched) <= killer.most_repeated
