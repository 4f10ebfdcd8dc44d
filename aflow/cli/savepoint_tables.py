"""A checkpoint as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from aflow.cli.savepoint_contents import (
    StepContents,
    batches_in_flight,
    bytes_of,
    committables,
    hand_overs,
    remembered,
    splits,
    steps_of,
)
from aflow.runtime.checkpoints.storage import Restored

#: Columns of numbers.
_RIGHT = frozenset({"keys", "bytes", "subtasks", "timers", "checkpoint"})

#: Characters of a committable.
_SHOWN = 300


def print_contents(restored: Restored) -> None:
    """Print what a checkpoint holds, to stdout. Raises ``RestoreError``."""
    contents = steps_of(restored)
    console = Console(markup=False, highlight=False, soft_wrap=False)
    console.print("\n".join(_about(restored)))
    for table in (_steps(contents), _states(contents), _splits(contents), _pending(contents)):
        if table.row_count:
            console.print(table)


def _about(restored: Restored) -> list[str]:
    manifest = restored.manifest
    size = sum(one.size for one in manifest.files)
    written = f", written by aflow {_printable(manifest.aflow)}" if manifest.aflow else ""
    return [
        f"{manifest.kind.value} {manifest.id} of flow {manifest.flow!r}{written}",
        f"begun {_moment(manifest.created_at)}, complete {_moment(manifest.completed_at)}",
        f"{manifest.key_groups} key groups; {size:,} bytes in {len(manifest.files)} files",
        *(
            f"hand-over at {_moment(at)}: records before it are in here; skipped by {', '.join(map(repr, steps))}"
            for at, steps in hand_overs(restored)
        ),
        *(f"passed over: {reason}" for reason in restored.passed_over),
    ]


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def _steps(contents: Iterable[StepContents]) -> Table:
    table = _table(
        "steps", ("step", "made by", "subtasks", "keys", "timers", "bytes", "also holds")
    )
    for one in contents:
        if one.step.empty:
            continue
        timers = ", ".join(f"{count:,} {kind}" for kind, count in one.timers.items())
        batches = batches_in_flight(one.snapshot)
        in_flight = f"{batches:,} batches in flight" if batches else ""
        table.add_row(
            _printable(one.step.name),
            _printable(one.step.what),
            str(one.step.parallelism),
            f"{one.keys:,}" if one.keys else "",
            timers,
            f"{one.bytes:,}",
            _printable(", ".join(filter(None, (remembered(one.step), in_flight)))),
        )
    return table


def _states(contents: Iterable[StepContents]) -> Table:
    table = _table("states", ("step", "state", "type", "keys", "bytes"))
    for one in contents:
        for state in one.step.states:
            said = " and ".join(map(str, state.descriptions)) or "not known"
            size = f"{bytes_of(one, state):,}"
            table.add_row(
                _printable(one.step.name),
                _printable(state.name),
                _printable(said),
                f"{state.keys:,}" if state.keys else "",
                size,
            )
    return table


def _splits(contents: Iterable[StepContents]) -> Table:
    table = _table("sources", ("source", "split", "position"))
    for one in contents:
        for split, position in splits(one.snapshot):
            table.add_row(_printable(one.step.name), _printable(split), position)
    return table


def _pending(contents: Iterable[StepContents]) -> Table:
    table = _table("sinks: prepared, to be committed", ("sink", "checkpoint", "committable"))
    for one in contents:
        for checkpoint, committable in committables(one.snapshot):
            table.add_row(_printable(one.step.name), str(checkpoint), _short(committable))
    return table


def _printable(text: str) -> str:
    """Return a name from a file without characters that a terminal would obey."""
    return text if text.isprintable() else repr(text)[1:-1]


def _short(text: str) -> str:
    """What a cell shows of ``text``: a committable may hold all the rows that it is about."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left", overflow="fold")
    return table
