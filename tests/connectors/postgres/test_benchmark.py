"""The benchmark of the connector runs, and verifies its results."""

from __future__ import annotations

import pytest

from bench.connectors.postgres import measure
from tests.conftest import IN_CI
from tests.connectors.postgres.server import programs


@pytest.mark.slow
def test_the_benchmark_verifies_the_source_and_the_sinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if programs() is None and not IN_CI:
        pytest.skip("no PostgreSQL server is installed: scripts/have-postgres")

    monkeypatch.setattr("bench.connectors.latency.MESSAGES", 20)

    figures = {one.name: one.figures for one in measure(3000, 1)}

    assert list(figures) == [
        "postgres_source",
        "postgres_sink",
        "postgres_upsert",
        "postgres_changes",
        "postgres_changes_to_postgres",
    ]
    assert {one["verified"] for one in figures.values()} == {True}
