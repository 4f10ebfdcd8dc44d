"""The code of the page about NATS runs, and so does the benchmark."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.connectors.nats import measure
from tests.connectors.nats.server import NatsServer, nats_program
from tests.connectors.skips import skip_or_fail
from tests.docs.snippets import run_document


@pytest.mark.slow
def test_the_code_of_a_document_about_nats_runs(
    own_nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", own_nats.url)

    run_document("docs/connectors/nats.md")

    bodies = asyncio.run(own_nats.bodies("totals"))
    assert bodies == [b'{"card":"4711","sum":9}', b'{"card":"42","sum":1}']


@pytest.mark.slow
def test_the_benchmark_verifies_the_source_and_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if nats_program() is None:
        skip_or_fail("no NATS server is installed: scripts/have-nats")

    monkeypatch.setattr("bench.connectors.latency.MESSAGES", 20)

    figures = {one.name: one.figures for one in measure(3000, 1)}

    assert list(figures) == ["nats_source", "nats_sink", "nats_to_nats"]
    assert {one["verified"] for one in figures.values()} == {True}
