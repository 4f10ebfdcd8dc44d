"""The view of ``aflow top``: tables of two successive snapshots of jobs, as the JSON API returns them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rich.console import Group
from rich.table import Table
from rich.text import Text

Json: TypeAlias = Mapping[str, Any]

_HEADINGS: Final = ("step", "in/s", "out/s", "busy", "waits", "queued", "lag", "calls")

#: Shown for a value that is not known (yet).
_UNKNOWN: Final = "–"


@dataclass(frozen=True, slots=True)
class JobsAtMoment:
    """All jobs at one moment."""

    taken_at: float
    """Seconds of a steady clock."""
    jobs: Sequence[Json]
    """Responses of ``/api/jobs/{job}``."""


def view(snapshot: JobsAtMoment, before: JobsAtMoment | None) -> Group:
    """Return the tables of ``snapshot``; rates are those since ``before``, if there is one."""
    former = {} if before is None else {job["name"]: job for job in before.jobs}
    seconds = 0.0 if before is None else snapshot.taken_at - before.taken_at
    parts = [one for job in snapshot.jobs for one in _job(job, former.get(job["name"]), seconds)]
    return Group(*parts) if parts else Group(_text("there are no jobs"))


def _job(job: Json, before: Json | None, seconds: float) -> Iterator[Table | Text]:
    restarts = job["metrics"]["restarts"]  # the list has the latest ones only
    yield _text(
        f"{job['name']}: {job['status']}" + (f", restarts: {restarts:,}" if restarts else "")
    )
    table = Table()
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "step" else "right")
    busy = _shares(job, before, seconds)
    tasks = {task["index"]: task["name"] for task in job["graph"]["tasks"]}
    heads: set[str] = set()
    for step in job["graph"]["steps"]:
        task = tasks[step["task"]]
        # The times are those of the whole task, shown at its first step.
        times = (_UNKNOWN, _UNKNOWN, "") if task in heads else busy.get(task, (_UNKNOWN, "", ""))
        heads.add(task)
        table.add_row(*_row(job, before, seconds, step["name"], times))
    yield table
    for one in job["metrics"].get("latencies", ()):
        yield _text(
            f"latency {one['source']} to {one['sink']}: {one['p50_ms']:,.1f} ms p50, {one['p99_ms']:,.1f} ms p99"
        )
    if job["failure"] is not None:
        yield _text(f"{job['failure']['type']}: {job['failure']['message']}")


def _row(
    job: Json, before: Json | None, seconds: float, name: str, times: tuple[str, str, str]
) -> Iterator[Text]:
    step = _steps(job).get(name)
    former = {} if before is None else _steps(before).get(name) or {}
    yield _text(name)
    for counter in ("records_in", "records_out"):
        now, then = (step or {}).get(counter), former.get(counter)
        # A restart begins to count at zero.
        if now is None or then is None or seconds <= 0 or now < then:
            yield _text(_UNKNOWN)
        else:
            yield _text(f"{(now - then) / seconds:,.0f}")
    for one in times:
        yield _text(one)
    lag = (step or {}).get("lag_ms")
    yield _text("" if lag is None else f"{lag / 1000:,.1f} s")
    calls = (step or {}).get("calls")
    yield _text("" if calls is None else f"{calls['in_flight']:,} of {calls['limit']:,}")


def _steps(job: Json) -> Mapping[str, Json]:
    steps: Mapping[str, Json] = job["metrics"]["steps"]
    return steps


def _shares(job: Json, before: Json | None, seconds: float) -> dict[str, tuple[str, str, str]]:
    """Return for each task the shares of time in which it worked and waited for others, and its queued records.

    They are the mean of its subtasks.
    """
    former = {} if before is None else _times(before)
    shares: dict[str, tuple[str, str, str]] = {}
    for name, (subtasks, busy, waits, queued) in _times(job).items():
        then = former.get(name)
        worked = waited = _UNKNOWN
        if then is not None and seconds > 0 and busy >= then[1]:
            worked = f"{min(1.0, (busy - then[1]) / seconds / subtasks):.0%}"
            waited = f"{max(0.0, min(1.0, (waits - then[2]) / seconds / subtasks)):.0%}"
        shares[name] = (worked, waited, f"{queued:,}" if queued else "")
    return shares


def _times(job: Json) -> dict[str, tuple[int, float, float, int]]:
    """Return for each task its subtasks, the seconds in which they worked and waited, and their queued records."""
    times: dict[str, tuple[int, float, float, int]] = {}
    for task in job["metrics"]["tasks"]:
        subtasks, busy, waits, queued = times.get(task["name"], (0, 0.0, 0.0, 0))
        waits += task["backpressured_s"] + task["calling_s"] + task["aligning_s"]
        times[task["name"]] = (
            subtasks + 1,
            busy + task["busy_s"],
            waits,
            queued + task["queued_records"],
        )
    return times


def _text(content: str) -> Text:
    """Return text without control characters: a name could contain some for the terminal."""
    return Text(
        "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in content)
    )
