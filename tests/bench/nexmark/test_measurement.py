"""The benchmark ``nexmark`` verifies, measures and reports the chosen queries."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.nexmark import latency
from bench.nexmark.catalog import chosen
from bench.nexmark.generator import generate
from bench.nexmark.model import MarketEvent


@pytest.mark.slow
def test_the_chosen_queries_are_measured_and_compared_with_q0(
    require: Callable[[str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("duckdb", "pip install duckdb")
    out = tmp_path / "figures.json"
    options = [
        "--only",
        "q1",
        "q10",
        "q12",
        "--records",
        "2000",
        "--rounds",
        "1",
        "--json",
        str(out),
    ]
    monkeypatch.setattr(sys, "argv", ["bench", "nexmark", *options])

    main()

    figures = json.loads(out.read_text())
    assert (figures["records"], figures["queries"], figures["verified"]) == (2_000, 3, True)
    assert all(figures[f"{name}_of_q0"] > 0 for name in ("q1", "q10", "q12"))
    assert {name for name in figures if name.endswith("_ms")} == {"q1_p50_ms", "q1_p99_ms"}
    assert "convert a currency" in capsys.readouterr().out


def test_a_query_with_other_rows_than_sql_ends_the_benchmark(
    require: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    require("duckdb", "pip install duckdb")
    from bench.nexmark import oracles, trial

    monkeypatch.setitem(
        oracles.SQL, "q2", "SELECT auction, price + 1 FROM bid WHERE auction % 123 = 0"
    )

    with pytest.raises(SystemExit, match="q2 returned other rows than DuckDB"):
        trial.rates(chosen(["q2"]), generate(5_000), rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["q1", "q5"])
def test_results_after_the_warm_up_have_a_latency(name: str) -> None:
    (query,) = chosen([name])
    # 20 s of event time: windows of 10 s every 2 s end up to 16 s, with the 4 s of the watermark.
    events = generate(5_000, latency.SETTINGS)

    found = latency.latencies(query, events)

    assert len(found) >= (4_000 if name == "q1" else 5)
    assert min(found) > 0


def test_latency_counts_from_the_planned_time_of_the_event_that_causes_a_result() -> None:
    events = [MarketEvent(1_000 + 4 * number) for number in range(100)]

    # Event 50 is at 1,200, and planned 10 ms after the first one; event 5 belongs to the warm-up, and none is at 1,400.
    assert latency.delays([(1_200, 0.013)], events, 0) == pytest.approx([0.003])
    assert latency.delays([(1_095, 0.013)], events, 101) == pytest.approx([0.0032])
    assert latency.delays([(1_020, 0.01), (1_400, 0.03)], events, 0) == []


def test_windows_of_processing_time_and_files_have_no_latency() -> None:
    queries = chosen(["q10", "q12"])

    assert [latency.latencies(query, []) for query in queries] == [[], []]
