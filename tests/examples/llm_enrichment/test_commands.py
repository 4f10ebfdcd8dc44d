"""The command line of the application."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llm_enrichment.commands import main
from llm_enrichment.fake_server import FakeProvider, Faults, served
from llm_enrichment.sample import sample_tickets
from llm_enrichment.tickets import Ticket

README = Path(__file__).parents[3] / "examples" / "llm_enrichment" / "README.md"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="llm_enrichment")


@contextmanager
def provider_in_a_thread() -> Generator[str]:
    """Serve beside this thread, where the commands run event loops of their own."""
    url: list[str] = []
    started, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with served(FakeProvider(Faults(latency_s=0.0), key="secret")) as address:
            url.append(address)
            started.set()
            await ended.wait()

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=lambda: runner.run(serve()))
        thread.start()
        try:
            assert started.wait(60)
            yield url[0]
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()


@pytest.mark.slow
def test_the_demo_has_the_counts_of_the_readme() -> None:
    result = call("demo")

    assert result.exit_code == 0, result.output
    counts = [line for line in result.output.splitlines() if " enriched, " in line]
    assert counts == [
        "838 enriched, 162 dead letters, 0 unreadable lines",
        "162 enriched, 0 dead letters, 0 unreadable lines",
    ]
    for line in counts:
        assert line in README.read_text(encoding="utf-8")


def test_tickets_are_run_and_replayed(tmp_path: Path) -> None:
    tickets, out = tmp_path / "tickets.jsonl", tmp_path / "out"
    printed = call("tickets", "--count", "60")
    tickets.write_text(printed.output)
    with provider_in_a_thread() as url:
        options = ("--url", url, "--key", "secret", "--tokens-per-minute", "10000000")

        ran = call("run", str(tickets), "--folder", str(out), "--model", "small", *options)
        replayed = call("replay", str(out), "--model", "large", *options)

    assert (ran.exit_code, replayed.exit_code) == (0, 0), (ran.output, replayed.output)
    enriched = [
        json.loads(line)
        for folder in (out / "enriched", out / "replay" / "enriched")
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert sorted(row["id"] for row in enriched) == list(range(1, 61))
    assert {row["model"] for row in enriched} == {"small", "large"}


def test_an_error_is_one_line(tmp_path: Path) -> None:
    tickets = tmp_path / "tickets.jsonl"
    tickets.write_text("")
    with provider_in_a_thread() as url:
        result = call("run", str(tickets), "--folder", str(tmp_path / "out"), "--url", url)

    assert result.exit_code == 1
    assert result.output.startswith("Error: step 'classify' could not open its resource 'model'")
    assert "wrong key" in result.output
    assert "Traceback" not in result.output


def test_sample_tickets_are_the_same_each_time_and_some_are_equal() -> None:
    tickets = list(sample_tickets(200))

    assert tickets == list(sample_tickets(200))
    assert tickets[0] == Ticket(1, "When do I get my refund for May? My customer number is 1001.")
    assert 120 < len({ticket.text for ticket in tickets}) < 180
