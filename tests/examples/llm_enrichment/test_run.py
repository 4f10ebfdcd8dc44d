"""Runs with a fake provider: output, dead letters and their replay, cache, interrupts, new files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import aflow as af
from llm_enrichment.fake_server import FakeProvider, Faults, served
from llm_enrichment.job import Report, Run, execute
from llm_enrichment.model import Refused
from llm_enrichment.pipeline import Limits

FAST = Faults(latency_s=0.005)
LOST_PASSWORD = "I forgot my password. It is urgent!"
GERMAN = "Die Rechnung ist falsch."
#: A machine that is busy for so long repeats no call.
PATIENCE = timedelta(seconds=200)
#: The most calls of a run at a time; one whose answer is not read yet counts, though the provider has ended it.
IN_FLIGHT = 20


def write(path: Path, texts: Iterable[str], *, first: int = 1) -> Path:
    path.parent.mkdir(exist_ok=True)
    rows = ({"id": number, "text": text} for number, text in enumerate(texts, start=first))
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def rows(folder: Path) -> list[dict[str, Any]]:
    found = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(found, key=lambda row: row.get("id", 0))


def a_run(
    tickets: Path,
    folder: Path,
    url: str,
    *,
    model: str = "small",
    key: str = "",
    attempt_timeout: timedelta = PATIENCE,
) -> Run:
    limits = Limits(
        tokens_per_minute=10_000_000, most_in_flight=IN_FLIGHT, attempt_timeout=attempt_timeout
    )
    return Run(tickets=tickets, folder=folder, url=url, model=model, key=key, limits=limits)


async def run(provider: FakeProvider, tickets: Path, folder: Path, **options: Any) -> Report:
    async with served(provider) as url:
        return await execute(a_run(tickets, folder, url, **options))


@pytest.mark.asyncio
async def test_each_ticket_is_in_the_output_with_the_answer_of_the_model(tmp_path: Path) -> None:
    texts = [LOST_PASSWORD, "My invoice of May came twice. Call me today."]
    tickets = write(tmp_path / "tickets.jsonl", texts)

    report = await run(FakeProvider(FAST), tickets, tmp_path / "out")

    assert rows(tmp_path / "out" / "enriched") == [
        {
            "id": 1,
            "text": texts[0],
            "category": "access",
            "urgency": 5,
            "summary": "I forgot my password",
            "model": "small",
        },
        {
            "id": 2,
            "text": texts[1],
            "category": "billing",
            "urgency": 3,
            "summary": "My invoice of May came twice",
            "model": "small",
        },
    ]
    assert (report.enriched, report.dead, report.unreadable) == (2, 0, 0)
    assert report.is_complete


@pytest.mark.asyncio
async def test_equal_tickets_are_paid_once(tmp_path: Path) -> None:
    provider = FakeProvider(FAST)
    texts = [f"The login page of customer {number % 7} is closed." for number in range(200)]

    report = await run(provider, write(tmp_path / "tickets.jsonl", texts), tmp_path / "out")

    assert provider.counts["requests"] == 7
    assert report.calls.cache_hits + report.calls.merged == 193
    assert len(rows(tmp_path / "out" / "enriched")) == 200
    paid = report.spending.prompt_tokens + report.spending.answer_tokens
    assert paid == provider.counts["tokens"]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_failures_of_the_provider_are_retried(tmp_path: Path) -> None:
    provider = FakeProvider(
        Faults(latency_s=0.005, errors=0.1, busy=0.1, stalls=0.05, retry_after_s=0.05)
    )
    texts = [f"The login page of customer {number} is closed." for number in range(60)]

    report = await run(
        provider,
        write(tmp_path / "tickets.jsonl", texts),
        tmp_path / "out",
        attempt_timeout=timedelta(seconds=0.5),  # of stalls
    )

    assert min(provider.counts[kind] for kind in ("errors", "stalls", "answers")) > 0
    assert provider.counts["over the limit of requests"] > 0
    assert [row["category"] for row in rows(tmp_path / "out" / "enriched")] == ["access"] * 60
    assert report.calls.retries == provider.counts["requests"] - 60


@pytest.mark.asyncio
async def test_dead_letters_have_reasons_and_are_replayed_with_another_model(
    tmp_path: Path,
) -> None:
    texts = [LOST_PASSWORD, GERMAN, f"The invoice: {'x' * 4_000}"]
    out = tmp_path / "out"
    await run(FakeProvider(FAST), write(tmp_path / "tickets.jsonl", texts), out)

    replayed = await run(FakeProvider(FAST), out / "dead", out / "replay", model="large")

    assert [row["id"] for row in rows(out / "enriched")] == [1]
    dead = rows(out / "dead")
    assert [(row["id"], row["reason"], row["attempts"]) for row in dead] == [
        (2, "InvalidAnswer", 2),
        (3, "Refused", 1),
    ]
    assert "Here is the classification" in dead[0]["message"]
    assert "too long" in dead[1]["message"]
    assert [row["text"] for row in rows(out / "replay" / "enriched")] == texts[1:]
    assert replayed.dead == 0


@pytest.mark.asyncio
async def test_a_line_that_is_no_ticket_is_kept_with_its_place(tmp_path: Path) -> None:
    tickets = write(tmp_path / "tickets.jsonl", [LOST_PASSWORD])
    tickets.write_text(f'{{"id": "one"}}\n{tickets.read_text()}')

    report = await run(FakeProvider(FAST), tickets, tmp_path / "out")

    assert (report.enriched, report.unreadable) == (1, 1)
    assert rows(tmp_path / "out" / "unreadable") == [
        {
            "place": f"{tickets}, line 1",
            "reason": "Expected `int`, got `str` - at `$.id`",
            "line": '{"id": "one"}',
        }
    ]


@pytest.mark.asyncio
async def test_a_second_run_pays_only_for_new_files(tmp_path: Path) -> None:
    provider, folder = FakeProvider(FAST), tmp_path / "in"
    write(folder / "monday.jsonl", [LOST_PASSWORD, "Hello."])
    await run(provider, folder, tmp_path / "out")
    write(folder / "tuesday.jsonl", ["The app crashes."], first=3)

    report = await run(provider, folder, tmp_path / "out")

    assert provider.counts["requests"] == 3
    assert report.enriched == 1
    assert [row["id"] for row in rows(tmp_path / "out" / "enriched")] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_interrupted_run_continues_and_repeats_only_calls_in_flight(
    tmp_path: Path,
) -> None:
    provider = FakeProvider(Faults(latency_s=0.02))
    texts = [f"The login page of customer {number} is closed." for number in range(300)]
    tickets = write(tmp_path / "tickets.jsonl", texts)
    async with served(provider) as url:
        running = asyncio.create_task(execute(a_run(tickets, tmp_path / "out", url)))
        while provider.counts["answers"] < 50:
            assert not running.done(), running
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
        interrupted = await running
        first = provider.counts["requests"]

        report = await execute(a_run(tickets, tmp_path / "out", url))

    assert not interrupted.is_complete
    assert 50 <= interrupted.enriched < 300
    assert first < 300
    assert report.is_complete
    assert [row["id"] for row in rows(tmp_path / "out" / "enriched")] == list(range(1, 301))
    assert provider.counts["requests"] - 300 <= IN_FLIGHT


@pytest.mark.asyncio
async def test_an_interrupted_run_ends_without_its_checkpoint_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(job: af.Job) -> None:
        raise af.errors.CheckpointError("no space left")

    monkeypatch.setattr(af.Job, "checkpoint", full)
    provider = FakeProvider(Faults(latency_s=60))
    tickets = write(tmp_path / "tickets.jsonl", ["The app crashes."])
    async with served(provider) as url:
        running = asyncio.create_task(execute(a_run(tickets, tmp_path / "out", url)))
        while not provider.counts["requests"]:  # noqa: ASYNC110 - the server counts
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

        report = await asyncio.wait_for(running, 60)

    assert not report.is_complete


@pytest.mark.asyncio
async def test_a_wrong_key_fails_the_run_before_any_ticket_becomes_a_dead_letter(
    tmp_path: Path,
) -> None:
    provider = FakeProvider(FAST, key="right")
    tickets = write(tmp_path / "tickets.jsonl", [LOST_PASSWORD])

    async with served(provider) as url:
        with pytest.raises(af.AflowError, match="wrong key") as caught:
            await execute(a_run(tickets, tmp_path / "out", url, key="wrong"))
        report = await execute(a_run(tickets, tmp_path / "out", url, key="right"))

    assert isinstance(caught.value.__cause__, Refused)
    assert (report.enriched, report.dead) == (1, 0)


@pytest.mark.asyncio
async def test_a_provider_that_is_not_there_fails_the_run(tmp_path: Path) -> None:
    tickets = write(tmp_path / "tickets.jsonl", [LOST_PASSWORD])
    async with served(FakeProvider()) as url:
        pass

    with pytest.raises(af.AflowError) as caught:
        await execute(a_run(tickets, tmp_path / "out", url))

    assert isinstance(caught.value.__cause__, aiohttp.ClientError)
