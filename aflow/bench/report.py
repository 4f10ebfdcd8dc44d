"""A report of a run as one HTML file: tables, and charts as inline SVG. It needs no other file and no network.

The charts need no script; a point shows its value when the pointer rests on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from aflow.bench.charts import Line, bar_chart, line_chart
from aflow.bench.result import BenchResult, LatencyFigures, LoadSample, Method, Phase

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --line: #d5d9de; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #99a; --line: #3a3f47; --paper: #16181c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1000px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; margin: .5em 0; } td, th { padding: .2em .8em; border-bottom: 1px solid var(--line);
  text-align: right; } td:first-child, th:first-child { text-align: left; } .wide { overflow-x: auto; }
.error { border-left: 4px solid #c62828; } .warning { border-left: 4px solid #ef8e00; }
.note { border-left: 4px solid #5b7fa6; } .finding { padding: .2em .8em; margin: .4em 0; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); } .series { fill: none; stroke-width: 1.8; } figure { margin: 1em 0; }
figcaption { color: var(--soft); }
"""


def html_report(result: BenchResult) -> str:
    """Return the report of ``result`` as a document of HTML."""
    title = escape(f"Load of {result.flow}")
    body = "\n".join(_sections(result))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def save_report(result: BenchResult, path: str | Path) -> None:
    """Write the report to a file."""
    Path(path).write_text(html_report(result), encoding="utf-8")


def _sections(result: BenchResult) -> Iterator[str]:
    yield f"<p>{escape(summary(result))}</p>"
    for one in result.findings:
        yield f'<div class="finding {one.severity.value}">{escape(one.text)}</div>'
    yield "<h2>Latency</h2>"
    yield _table(_latency_rows(result.latencies))
    yield line_chart("Latency over time (ms)", _latency_lines(result), unit="ms")
    for pair in result.latencies:
        if pair.method is Method.RECORDS:
            bars = list(result.histogram(pair).bars())
            yield bar_chart(f"Distribution of {pair.source} to {pair.sink} (ms, logarithmic)", bars)
    yield "<h2>Throughput</h2>"
    yield _table(_source_rows(result))
    yield line_chart("Records per second", _rate_lines(result), unit="/s")
    yield line_chart(
        "Backlog (records that are due and not accepted)",
        [_line("backlog", result, lambda one: float(one.backlog))],
        unit="records",
    )
    yield "<h2>Load of the steps</h2>"
    yield _table(_task_rows(result))
    yield line_chart("Busy share of each task (%)", _busy_lines(result), unit="%")
    yield from _calls_and_time(result)
    yield "<h2>Process and machine</h2>"
    yield _table(_process_rows(result))
    yield line_chart(
        "Event loop and garbage collection: longest delay in each sample (ms)",
        [
            _line("loop", result, lambda one: one.loop_lag_ms),
            _line("garbage collection", result, lambda one: one.gc_ms),
        ],
        unit="ms",
    )


def _calls_and_time(result: BenchResult) -> Iterator[str]:
    if result.calls:
        yield "<h2>Calls</h2>"
        yield _table(
            [
                ("step", "in flight (mean)", "limit", "calls", "retries"),
                *(
                    (
                        name,
                        f"{one.in_flight:,}",
                        f"{one.limit:,}",
                        f"{one.made:,}",
                        f"{one.retries:,}",
                    )
                    for name, one in result.calls.items()
                ),
            ]
        )
    steps = dict.fromkeys(name for one in result.samples for name in one.lag_ms)
    if steps:
        lines = [
            Line(
                name,
                [
                    (one.at_s, one.lag_ms[name] / 1000)
                    for one in result.samples
                    if name in one.lag_ms
                ],
            )
            for name in steps
        ]
        yield line_chart("Lag of the watermark (s)", lines, unit="s")
    if result.blocked:
        yield "<h2>Code that blocked the event loop</h2>"
        yield _table(
            [
                ("code", "step", "times", "longest (ms)"),
                *(
                    (
                        one.where or "unknown",
                        one.step or "",
                        f"{one.times:,}",
                        f"{one.longest_ms:.0f}",
                    )
                    for one in result.blocked
                ),
            ]
        )


def summary(result: BenchResult) -> str:
    """Return one paragraph about the conditions of the run."""
    load = "; ".join(f"{one.name}: {one.arrivals}" for one in result.sources)
    machine = result.machine
    return (
        f"{load}. {result.duration_s:.1f} s were measured after {result.warmup_s:.1f} s of warm-up, on "
        f"{result.started_at}. aflow {result.aflow}, {machine.python}, {machine.loop}, {machine.cores} cores of "
        f"{machine.cpu}, {machine.system}."
    )


def _latency_rows(latencies: Sequence[LatencyFigures]) -> Iterator[Sequence[str]]:
    names = list(dict.fromkeys(name for one in latencies for name in one.percentiles_ms))
    names.sort(key=float)
    yield ("from → to", "measured", "count", "mean", *(f"p{name}" for name in names), "max (ms)")
    for one in latencies:
        yield (
            f"{one.source} → {one.sink}",
            one.method.value,
            f"{one.count:,}",
            "–" if one.mean_ms is None else f"{one.mean_ms:,.2f}",
            *(
                f"{one.percentiles_ms[name]:,.2f}" if name in one.percentiles_ms else "–"
                for name in names
            ),
            f"{one.max_ms:,.2f}",
        )


def _source_rows(result: BenchResult) -> Iterator[Sequence[str]]:
    yield ("source or sink", "offered/s", "accepted/s", "processed/s", "backlog", "generator")
    for one in result.sources:
        yield (
            one.name,
            f"{one.offered_per_s:,.0f}",
            f"{one.accepted_per_s:,.0f}",
            f"{one.processed_per_s:,.0f}",
            f"{one.backlog:,}",
            f"{one.generator_share:.0%} of the time",
        )
    for sink in result.sinks:
        yield (f"→ {sink.name}", "", "", f"{sink.results_per_s:,.0f}", "", "")


def _task_rows(result: BenchResult) -> Iterator[Sequence[str]]:
    yield ("task", "busy", "backpressured", "waits for calls", "queued (mean)")
    for name, one in result.tasks.items():
        yield (
            name,
            f"{one.busy:.0%}",
            f"{one.backpressured:.0%}",
            f"{one.calling:.0%}",
            f"{one.queued:,}",
        )


def _process_rows(result: BenchResult) -> Iterator[Sequence[str]]:
    one, noise, checkpoints = result.process, result.noise, result.checkpoints
    yield ("figure", "value")
    yield ("processor", f"{one.cpu:.0%} of a core")
    yield ("memory (most)", f"{one.rss_max_bytes / 2**20:,.0f} MiB")
    yield (
        "garbage collections",
        f"{one.gc_count:,}, together {one.gc_total_ms:,.1f} ms, longest {one.gc_max_ms:.1f} ms",
    )
    yield (
        "lag of the event loop",
        f"p50 {one.loop_lag_p50_ms:.2f} ms, p99 {one.loop_lag_p99_ms:.2f} ms, most {one.loop_lag_max_ms:.1f} ms",
    )
    if checkpoints.completed or checkpoints.failed:
        yield (
            "checkpoints",
            f"{checkpoints.completed:,} completed, {checkpoints.failed:,} failed; p50 "
            f"{checkpoints.duration_p50_ms:.0f} ms, longest {checkpoints.duration_max_ms:.0f} ms; longest pause "
            f"{checkpoints.pause_max_ms:.1f} ms; the last had {checkpoints.bytes_last:,} bytes",
        )
    yield (
        "noise: idle timers",
        f"late by p50 {noise.timer_p50_ms:.2f} ms, p99 {noise.timer_p99_ms:.2f} ms, most {noise.timer_max_ms:.2f} ms",
    )
    yield (
        "noise: other programs",
        f"{noise.other_cpu:.0%} of a core, {noise.steal:.1%} withheld by the host, "
        f"{noise.switches_per_s:,.0f} involuntary switches/s",
    )


def _latency_lines(result: BenchResult) -> list[Line]:
    pairs = dict.fromkeys((one.source, one.sink) for s in result.samples for one in s.latencies)
    lines: list[Line] = []
    for source, sink in pairs:
        for name in ("p50", "p99", "max"):
            points = [
                (sample.at_s, float(getattr(one, f"{name}_ms")))
                for sample in result.samples
                if sample.phase is not Phase.WARMUP
                for one in sample.latencies
                if (one.source, one.sink) == (source, sink)
            ]
            prefix = f"{source} → {sink} " if len(pairs) > 1 else ""
            lines.append(Line(f"{prefix}{name}", points))
    return lines


def _rate_lines(result: BenchResult) -> list[Line]:
    lines: list[Line] = []
    for what in ("offered", "accepted", "processed"):
        for one in result.sources:
            points: list[tuple[float, float]] = []
            before = 0
            for sample in result.samples:
                total = int(getattr(sample, what)[one.name])
                if sample.seconds > 0.02:
                    points.append((sample.at_s, (total - before) / sample.seconds))
                before = total
            lines.append(Line(f"{one.name} {what}", points))
    return lines


def _busy_lines(result: BenchResult) -> list[Line]:
    return [
        Line(
            name,
            [(one.at_s, 100 * one.tasks[name].busy) for one in result.samples if name in one.tasks],
        )
        for name in result.tasks
    ]


def _line(name: str, result: BenchResult, value: Callable[[LoadSample], float]) -> Line:
    return Line(name, [(one.at_s, value(one)) for one in result.samples])


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines: list[str] = []
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        cells = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'
