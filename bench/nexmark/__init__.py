"""``nexmark``: the queries of the benchmark Nexmark, verified against DuckDB, with their rates and latencies."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bench.harness import Measurement


def measure(records: int, rounds: int, only: Sequence[str] = ()) -> Measurement:
    """Measure the queries ``only`` (default: all) over ``records`` events; rates are also compared with that of q0.

    Raises ``SystemExit`` for an unknown query, and if a result is not that of DuckDB.
    """
    from bench.nexmark import latency, trial
    from bench.nexmark.catalog import chosen
    from bench.nexmark.generator import generate

    queries = chosen(only)
    reference = chosen([trial.REFERENCE])
    measured = [*reference, *(one for one in queries if one.name != trial.REFERENCE)]
    rates = trial.rates(measured, generate(records), rounds)
    figures: dict[str, float | int | bool | str] = {"records": records}
    sent = generate(min(records, latency.EVENTS), latency.SETTINGS)
    for query in queries:
        figures[f"{query.name}_per_s"] = round(rates[query.name])
        figures[f"{query.name}_of_q0"] = round(rates[query.name] / rates[trial.REFERENCE], 3)
        figures |= latency.latency_figures(query, sent)
    figures |= {"queries": len(queries), "rounds": rounds, "verified": True}
    return Measurement("nexmark", figures)


def report(measurement: Measurement) -> Table:
    """Return a table with a row for each query."""
    from bench.nexmark.catalog import QUERIES

    figures = measurement.figures
    table = Table(
        *("query", "work", "events/s", "of q0", "p50 ms", "p99 ms"),
        title=f"nexmark: {figures['records']:,} events, equal to DuckDB",
    )
    for query in QUERIES:
        if f"{query.name}_per_s" in figures:
            cells = [
                figures.get(f"{query.name}_{figure}", "")
                for figure in ("per_s", "of_q0", "p50_ms", "p99_ms")
            ]
            shown = [cell if isinstance(cell, str) else f"{cell:,}" for cell in cells]
            table.add_row(query.name, query.title, *shown)
    return table
