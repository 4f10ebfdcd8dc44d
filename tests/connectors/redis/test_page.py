"""The code of the page about Redis runs, and so does the benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.connectors.redis import measure
from tests.connectors.redis.server import TestServer, redis_program
from tests.connectors.skips import skip_or_fail
from tests.docs.snippets import run_document


@pytest.mark.slow
def test_the_code_of_a_document_about_redis_runs(
    own_redis: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Its streams must be empty.
    url = own_redis.url.removesuffix("/0") + "/1"
    monkeypatch.setenv("REDIS_URL", url)

    run_document("docs/connectors/redis.md")

    written = TestServer(url)
    assert [one["sum"] for one in written.contents("totals")] == ["9", "1"]
    assert written.command("HGETALL", "total:42") == {b"card": b"42", b"sum": b"1"}


@pytest.mark.slow
def test_the_benchmark_verifies_the_source_and_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if redis_program() is None:
        skip_or_fail("no Redis server is installed: scripts/have-redis")

    monkeypatch.setattr("bench.connectors.latency.MESSAGES", 20)

    figures = {one.name: one.figures for one in measure(3000, 1)}

    assert list(figures) == ["redis_source", "redis_sink", "redis_to_redis"]
    assert {one["verified"] for one in figures.values()} == {True}
