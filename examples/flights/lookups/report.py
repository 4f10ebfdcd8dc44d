"""Report at the end of the lookups: the counts of the pipeline beside those of the service."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

import aflow as af
from flights.files import Files
from flights.flight import MALFORMED
from flights.lookups.display import LimitTrace, sparkline
from flights.lookups.pipeline import AHEAD, COMPARISON, LOOKUP, MISMATCH
from flights.lookups.service import Counts
from flights.tables import counted

#: Characters of a sparkline.
_WIDTH: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts of a run."""

    flights: int
    answered: int
    mismatches: int
    ahead: int
    """Flights that cannot be compared: the sources were stopped before the weather of these flights was read."""
    unanswered: int
    malformed: int
    calls: af.metrics.CallMetrics
    causes: Counter[str]
    """Causes of retries."""
    service: Counts

    @classmethod
    def of(
        cls, metrics: af.metrics.JobMetrics, service: Counts, causes: Counter[str], *, weather: int
    ) -> Summary:
        """Return the summary from the last metrics of the job; ``weather`` is the number of lines of its input."""
        steps = metrics.steps
        hours, compared = steps["weather"], steps[COMPARISON]
        complete = hours.records_out + hours.sides.get(MALFORMED.name, 0) >= weather
        ahead = compared.sides.get(AHEAD.name, 0)
        differ = compared.sides.get(MISMATCH.name, 0)
        calls = steps[LOOKUP].calls
        assert calls is not None
        return cls(
            flights=steps["flights"].records_out,
            answered=compared.records_in,
            mismatches=differ + ahead if complete else differ,
            ahead=0 if complete else ahead,
            unanswered=steps["unanswered"].records_in,
            malformed=steps["malformed"].records_in,
            calls=calls,
            causes=causes,
            service=service,
        )

    @property
    def is_correct(self) -> bool:
        """True if every flight has an answer, and no answer differs from the join."""
        return not self.mismatches and not self.unanswered and self.answered == self.flights


def show_summary(
    console: Console, summary: Summary, trace: LimitTrace, files: Files, *, seconds: float
) -> None:
    """Print the calls, the limit over time, and the result of the comparison."""
    console.print(_calls(summary))
    for line in _trace(trace):
        console.print(line, soft_wrap=True)
    for line in (
        f"{counted(summary.flights, 'flight')} in {seconds:.1f} s ({summary.flights / seconds:,.0f}/s); "
        f"without an answer: {summary.unanswered:,}; malformed lines: {summary.malformed:,}.",
        f"Compared with the as-of join of flights and weather: "
        f"{counted(summary.answered - summary.ahead, 'answer')}, mismatches: {summary.mismatches:,}.{_ahead(summary)}",
        f"Files: {files.folder}{os.sep}{{in-weather, mismatches, unanswered, malformed}}.jsonl",
    ):
        console.print(line, soft_wrap=True, markup=False)


def _ahead(summary: Summary) -> str:
    if not summary.ahead:
        return ""
    return (
        f" {counted(summary.ahead, 'answer')} arrived before the weather to compare with was read."
    )


def _calls(summary: Summary) -> Table:
    calls, service, causes = summary.calls, summary.service, Counter(summary.causes)
    table = Table(title="Calls", title_justify="left")
    table.add_column("")
    table.add_column("pipeline", justify="right")
    table.add_column("service", justify="right")
    rows: list[tuple[str, int | None, int | None]] = [
        ("flights with an answer", summary.answered, None),
        ("  from the cache", calls.cache_hits, None),
        ("  from a call in flight", calls.merged, None),
        ("  from a call of their own", calls.calls - calls.retries, service.answered),
        ("calls", calls.calls, service.asked),
        ("  rejected (429)", causes.pop("429", 0), service.refused),
        ("  failed (500)", causes.pop("500", 0), service.failed),
        ("  broken off", causes.pop("broken", 0), service.dropped),
        *((f"  {cause}", count, None) for cause, count in sorted(causes.items())),
        ("slow responses (10 times as long)", None, service.slow),
    ]
    for name, ours, theirs in rows:
        table.add_row(name, *("" if count is None else f"{count:,}" for count in (ours, theirs)))
    return table


def _trace(trace: LimitTrace) -> list[str]:
    samples = trace.samples
    if not samples:
        return []
    limits = [sample.limit for sample in samples]
    capacities = [sample.capacity for sample in samples]
    maximum = max(*limits, *capacities)
    return [
        f"concurrent calls, over {samples[-1].at_s:.1f} s:",
        f"  limit of the pipeline   {sparkline(limits, width=_WIDTH, maximum=maximum)} {min(limits)} to {max(limits)}",
        f"  capacity of the service {sparkline(capacities, width=_WIDTH, maximum=maximum)} "
        f"{min(capacities)} to {max(capacities)}",
    ]
