"""Views of a load on the terminal: while it runs, and at its end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from aflow.bench.comparison import RunComparison
from aflow.bench.rate_search import MaxRate, RateTrial
from aflow.bench.report import summary
from aflow.bench.result import BenchResult, LatencyFigures, LoadSample, Severity, TaskShares

#: Percentiles in the order in which a narrow terminal leaves them out.
_OPTIONAL = ("75", "95", "90", "99.99", "99.9")

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


@contextmanager
def sample_display(
    console: Console, say: Callable[[str], None], *, quiet: bool
) -> Generator[Callable[[LoadSample], None] | None]:
    """Return a function that shows a sample: in place on a terminal, else as a line; None if ``quiet``."""
    if quiet:
        yield None
    elif not console.is_terminal:
        yield lambda sample: say(sample_line(sample))
    else:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda sample: live.update(sample_view(sample), refresh=True)


def sample_view(sample: LoadSample) -> Group:
    """Return the view of a running load: the line, latencies and tasks."""
    latencies = _table("latency (ms)", "count", "p50", "p99", "max")
    for one in sample.latencies:
        latencies.add_row(
            f"{one.source} → {one.sink}",
            f"{one.count:,}",
            _ms(one.p50_ms),
            _ms(one.p99_ms),
            _ms(one.max_ms),
        )
    tasks = _task_table(sample.tasks)
    return Group(Text(sample_line(sample)), latencies, tasks)


def sample_line(sample: LoadSample) -> str:
    """Return the view of a running load, in one line."""
    late = [one for one in sample.latencies if one.count]
    worst = max(late, key=lambda one: one.p99_ms, default=None)
    latency = "" if worst is None else f", p50 {worst.p50_ms:,.1f} ms, p99 {worst.p99_ms:,.1f} ms"
    busiest = max((one.busy for one in sample.tasks.values()), default=0.0)
    calls = sum(one.in_flight for one in sample.calls.values())
    return (
        f"{sample.at_s:6.1f} s {sample.phase.value:8} offered {sum(sample.offered.values()):,}, backlog "
        f"{sample.backlog:,}{latency}, busiest task {busiest:.0%}, cpu {sample.cpu:.0%}"
        + (f", {calls:,} calls in flight" if sample.calls else "")
    )


def result_view(result: BenchResult) -> Group:
    """Return the tables of a result, and its findings."""
    parts: list[LatencyView | Table | Text] = [Text(summary(result))]
    rates = _table("per second", "offered", "accepted", "processed", "backlog")
    for source in result.sources:
        rates.add_row(
            source.name,
            f"{source.offered_per_s:,.0f}",
            f"{source.accepted_per_s:,.0f}",
            f"{source.processed_per_s:,.0f}",
            f"{source.backlog:,}",
        )
    for sink in result.sinks:
        rates.add_row(f"→ {sink.name}", "", "", f"{sink.results_per_s:,.0f}", "")
    parts += [LatencyView(result.latencies), rates, _task_table(result.tasks)]
    parts += [
        Text(f"{one.severity.value}: {one.text}", style=_COLOURS[one.severity])
        for one in result.findings
    ]
    return Group(*parts)


class LatencyView:
    """A table of latencies, with as many percentiles as the width has room for: figures are never cut."""

    def __init__(self, latencies: Sequence[LatencyFigures]) -> None:
        self._latencies = latencies

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = {name for one in self._latencies for name in one.percentiles_ms}
        table = self._table(names)
        unbounded = options.update(width=10 * console.width + 1000)
        for name in _OPTIONAL:
            if Measurement.get(console, unbounded, table).minimum <= options.max_width:
                break
            names.discard(name)
            table = self._table(names)
        yield table

    def _table(self, percentiles: Collection[str]) -> Table:
        names = sorted(percentiles, key=float)
        table = _table(
            "latency (ms)", "measured by", "count", *(f"p{name}" for name in names), "max"
        )
        for one in self._latencies:
            found = map(one.percentiles_ms.get, names)
            table.add_row(
                f"{one.source} → {one.sink}",
                one.method.value,
                f"{one.count:,}",
                *("–" if value is None else _ms(value) for value in found),
                _ms(one.max_ms),
            )
        return table


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ms(value: float) -> str:
    """Return a latency with at least the three digits that a histogram has, unless it is below a millisecond."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 100 else f"{value:.2f}"


def trial_line(trial: RateTrial) -> str:
    """Return one line about a trial of a search."""
    what = "confirming" if trial.confirms else "trying"
    latency = "" if trial.latency_ms is None else f", {trial.latency_ms:,.1f} ms"
    return f"{what} {_rate(trial.rate)}/s: " + (
        f"sustained{latency}" if trial.sustained else trial.reason
    )


def max_view(found: MaxRate) -> str:
    """Return the outcome of a search."""
    bound = f"p{found.percentile:g} of at most {found.bound_ms:g} ms"
    if found.rate is None:
        return f"no rate was sustained with a {bound}; saturated first: {found.saturated}"
    return f"sustained: {_rate(found.rate)} records per second with a {bound}; saturated first: {found.saturated}"


def comparison_view(comparison: RunComparison) -> Group:
    """Return the table of a comparison."""
    table = _table("figure", "before", "after", "ratio", "95 % interval", "verdict")
    for one in comparison.ratios:
        table.add_row(
            one.figure,
            f"{one.before:,.3g}",
            f"{one.after:,.3g}",
            f"{one.ratio:.3f}",
            f"{one.low:.3f} to {one.high:.3f}",
            one.verdict,
        )
    parts: list[Table | Text] = [table]
    parts += [Text(f"missing: {one}", style="red") for one in comparison.missing]
    if comparison.has_new_problems:
        parts.append(Text("worse: only the second run has errors", style="red"))
    return Group(*parts, *(Text(f"note: {one}") for one in comparison.remarks))


def _task_table(shares: Mapping[str, TaskShares]) -> Table:
    tasks = _table("task", "busy", "backpressured", "waits for calls", "queued")
    for name, one in shares.items():
        tasks.add_row(
            name,
            f"{one.busy:.0%}",
            f"{one.backpressured:.0%}",
            f"{one.calling:.0%}",
            f"{one.queued:,}",
        )
    return tasks


def _table(*headings: str) -> Table:
    table = Table()
    for number, heading in enumerate(headings):
        if number:
            table.add_column(Text(heading), justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold", min_width=12)
    return table
