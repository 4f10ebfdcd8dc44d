"""What ``aflow demo weather`` shows at its end: what the pipeline has counted beside what the service has."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from aflow.cli.demo.asking.course import Course, drawn
from aflow.cli.demo.asking.pipeline import AHEAD, ASK, COMPARED, MISMATCH
from aflow.cli.demo.asking.service import Counts
from aflow.cli.demo.files import Files
from aflow.cli.demo.flights import MALFORMED
from aflow.cli.demo.tables import counted
from aflow.runtime.metrics import CallMetrics, JobMetrics

#: Of the course of the limit, in characters.
_WIDTH: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    flights: int
    answered: int
    mismatches: int
    ahead: int
    """Flights that cannot be compared, since the sources were stopped before they came to their weather."""
    unanswered: int
    malformed: int
    calls: CallMetrics
    causes: Counter[str]
    """Of retries."""
    service: Counts

    @classmethod
    def of(
        cls, metrics: JobMetrics, service: Counts, causes: Counter[str], *, weather: int
    ) -> Outcome:
        """Reads it from the metrics of the job's end, of which there would have been ``weather`` lines about that."""
        steps = metrics.steps
        hours, compared = steps["weather"], steps[COMPARED]
        whole = hours.records_out + hours.sides.get(MALFORMED.name, 0) >= weather
        ahead = compared.sides.get(AHEAD.name, 0)
        differ = compared.sides.get(MISMATCH.name, 0)
        calls = steps[ASK].calls
        assert calls is not None
        return cls(
            flights=steps["flights"].records_out,
            answered=compared.records_in,
            mismatches=differ + ahead if whole else differ,
            ahead=0 if whole else ahead,
            unanswered=steps["unanswered"].records_in,
            malformed=steps["malformed"].records_in,
            calls=calls,
            causes=causes,
            service=service,
        )

    @property
    def all_right(self) -> bool:
        """True if every flight has an answer, and it is that of the join as far as that can be said."""
        return not self.mismatches and not self.unanswered and self.answered == self.flights


def show_outcome(
    console: Console, outcome: Outcome, course: Course, files: Files, *, seconds: float
) -> None:
    """Print what was asked, how the limit went, and whether the answers are right."""
    console.print(_asked(outcome))
    for line in _course(course):
        console.print(line, soft_wrap=True)
    for line in (
        f"{counted(outcome.flights, 'flight')} in {seconds:.1f} s ({outcome.flights / seconds:,.0f}/s); "
        f"without an answer: {outcome.unanswered:,}; malformed lines: {outcome.malformed:,}.",
        f"Compared with the as-of join of flights and weather: "
        f"{counted(outcome.answered - outcome.ahead, 'answer')}, mismatches: {outcome.mismatches:,}.{_ahead(outcome)}",
        f"Files: {files.folder}{os.sep}{{in-weather, mismatches, unanswered, malformed}}.jsonl",
    ):
        console.print(line, soft_wrap=True, markup=False)


def _ahead(outcome: Outcome) -> str:
    if not outcome.ahead:
        return ""
    return f" {counted(outcome.ahead, 'answer')} came before the weather to compare with had been read."


def _asked(outcome: Outcome) -> Table:
    calls, service, causes = outcome.calls, outcome.service, Counter(outcome.causes)
    table = Table(title="What was asked", title_justify="left")
    table.add_column("")
    table.add_column("pipeline", justify="right")
    table.add_column("service", justify="right")
    rows: list[tuple[str, int | None, int | None]] = [
        ("flights with an answer", outcome.answered, None),
        ("  known from an earlier call", calls.cache_hits, None),
        ("  by a call that was under way", calls.merged, None),
        ("  by a call of their own", calls.calls - calls.retries, service.answered),
        ("calls", calls.calls, service.asked),
        ("  too many at once (429)", causes.pop("429", 0), service.refused),
        ("  failed (500)", causes.pop("500", 0), service.failed),
        ("  broken off", causes.pop("broken", 0), service.dropped),
        *((f"  {cause}", count, None) for cause, count in sorted(causes.items())),
        ("slow answers (10 times as long)", None, service.slow),
    ]
    for what, ours, theirs in rows:
        table.add_row(what, *("" if count is None else f"{count:,}" for count in (ours, theirs)))
    return table


def _course(course: Course) -> list[str]:
    samples = course.samples
    if not samples:
        return []
    limits = [sample.limit for sample in samples]
    capacities = [sample.capacity for sample in samples]
    most = max(*limits, *capacities)
    return [
        f"calls at once, over {samples[-1].at_s:.1f} s:",
        f"  allowed by the pipeline {drawn(limits, width=_WIDTH, most=most)} {min(limits)} to {max(limits)}",
        f"  taken by the service    {drawn(capacities, width=_WIDTH, most=most)} "
        f"{min(capacities)} to {max(capacities)}",
    ]
