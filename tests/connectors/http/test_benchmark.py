"""The benchmark of the connector runs, and verifies its results."""

from __future__ import annotations

import pytest

from bench.connectors.http import measure


@pytest.mark.slow
def test_the_benchmark_verifies_the_sources_and_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.connectors.latency.MESSAGES", 20)

    figures = {one.name: one.figures for one in measure(3000, 1)}

    assert list(figures) == [
        "http_poll",
        "http_events",
        "http_websocket",
        "http_sink",
        "http_websocket_to_http",
    ]
    assert {one["verified"] for one in figures.values()} == {True}
