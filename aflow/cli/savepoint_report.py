"""Report of ``aflow savepoint``: the contents of a checkpoint as tables, and keys as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from rich.console import Console
from rich.table import Table

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN
from aflow.model.time import Timestamp
from aflow.operators.handover import handed_over
from aflow.runtime.checkpoints.sections import IN_FLIGHT, PENDING, PROGRESS, WAITING
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.change_plan import StoredState, StoredStep, stored_step
from aflow.state.descriptions import Description
from aflow.state.snapshot import STATES, OperatorSnapshot
from aflow.state.specs import RESERVED
from aflow.state.stored_entries import Entries
from aflow.state.stored_values import json_line, key_value, opened, state_value, timer

#: Kinds of timers by the name of their state.
_TIMERS: Mapping[str, str] = {"@event timers": "event", "@processing timers": "processing"}

_TOUCHED = f"{RESERVED}touched "

#: Columns of numbers.
_RIGHT = frozenset({"keys", "bytes", "subtasks", "timers", "checkpoint"})

#: Maximum length of a cell.
_MAX_CELL = 300


def print_contents(restored: Restored) -> None:
    """Print the contents of a checkpoint to stdout. Raises ``RestoreError``."""
    contents = _contents(restored)
    console = Console(markup=False, highlight=False, soft_wrap=False)
    console.print("\n".join(_summary_lines(restored)))
    for table in (_steps(contents), _states(contents), _splits(contents), _pending(contents)):
        if table.row_count:
            console.print(table)


def _summary_lines(restored: Restored) -> list[str]:
    manifest = restored.manifest
    size = sum(one.size for one in manifest.files)
    written = f", written by aflow {_printable(manifest.aflow)}" if manifest.aflow else ""
    return [
        f"{manifest.kind.value} {manifest.id} of flow {manifest.flow!r}{written}",
        f"begun {_moment(manifest.created_at)}, complete {_moment(manifest.completed_at)}",
        f"{manifest.key_groups} key groups; {size:,} bytes in {len(manifest.files)} files",
        *(
            f"hand-over at {_moment(at)}: it includes earlier records; skipped by {', '.join(map(repr, steps))}"
            for at, steps in _start_times(restored)
        ),
        *(f"passed over: {reason}" for reason in restored.passed_over),
    ]


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def _steps(contents: Iterable[_StepContents]) -> Table:
    table = _table(
        "steps", ("step", "made by", "subtasks", "keys", "timers", "bytes", "also holds")
    )
    for one in contents:
        if one.step.empty:
            continue
        timers = ", ".join(f"{count:,} {kind}" for kind, count in one.timers.items())
        batches = _batches_in_flight(one.snapshot)
        in_flight = f"{batches:,} batches in flight" if batches else ""
        table.add_row(
            _printable(one.step.name),
            _printable(one.step.what),
            str(one.step.parallelism),
            f"{one.keys:,}" if one.keys else "",
            timers,
            f"{one.bytes:,}",
            _printable(", ".join(filter(None, (_other_state(one.step), in_flight)))),
        )
    return table


def _states(contents: Iterable[_StepContents]) -> Table:
    table = _table("states", ("step", "state", "type", "keys", "bytes"))
    for one in contents:
        for state in one.step.states:
            type_ = " and ".join(map(str, state.descriptions)) or "not known"
            size = f"{_bytes_of(one, state):,}"
            table.add_row(
                _printable(one.step.name),
                _printable(state.name),
                _printable(type_),
                f"{state.keys:,}" if state.keys else "",
                size,
            )
    return table


def _splits(contents: Iterable[_StepContents]) -> Table:
    table = _table("sources", ("source", "split", "position"))
    for one in contents:
        for split, position in _split_positions(one.snapshot):
            table.add_row(_printable(one.step.name), _printable(split), position)
    return table


def _pending(contents: Iterable[_StepContents]) -> Table:
    table = _table("sinks: prepared, to be committed", ("sink", "checkpoint", "committable"))
    for one in contents:
        for checkpoint, committable in _committables(one.snapshot):
            table.add_row(_printable(one.step.name), str(checkpoint), _short(committable))
    return table


def _printable(text: str) -> str:
    """Return a name from a file without control characters of a terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def _short(text: str) -> str:
    """Shorten ``text`` for a cell: a committable may contain all its rows."""
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}… ({len(text):,} characters)"


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left", overflow="fold")
    return table


@dataclass(frozen=True, slots=True)
class _StepContents:
    """State of one step, with its counts."""

    step: StoredStep
    snapshot: OperatorSnapshot
    keys: int
    timers: Mapping[str, int]
    """Counts by time domain."""
    bytes: int
    """Encoded size in memory; files are slightly larger."""


def _contents(restored: Restored) -> list[_StepContents]:
    """Return the contents of all steps. Raises ``RestoreError`` for state without a type."""
    found: list[_StepContents] = []
    for step in restored.manifest.steps:
        snapshot = restored.states.get(step.name, OperatorSnapshot())
        found.append(
            _StepContents(
                stored_step(step, snapshot),
                snapshot,
                _keys(snapshot),
                _timers(snapshot),
                _bytes(snapshot),
            )
        )
    return found


def _bytes_of(contents: _StepContents, state: StoredState) -> int:
    """Return the size of the keys and values of one declared state."""
    rows = (row for names in contents.snapshot.keyed.values() for row in names.get(state.name, ()))
    keyed = sum(len(key) + len(data) for key, data in rows)
    return keyed + sum(map(len, contents.snapshot.broadcast.get(state.name, ())))


def _split_positions(snapshot: OperatorSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the splits of a source with their positions as JSON, or ``read to its end``."""
    for part in snapshot.operator.get(PROGRESS, ()):
        split, *place = cast("tuple[str, object, int, int]", PLAIN.decode(part))
        if not place:
            yield split, "read to its end"
        else:
            position, skip, *_ = place
            yield split, f"{json_line(position)}{f', and {skip} records' if skip else ''}"


def _committables(snapshot: OperatorSnapshot) -> Iterator[tuple[int, str]]:
    """Yield the pending committables of a sink: the checkpoint, and the committable as JSON."""
    for part in snapshot.operator.get(PENDING, ()):
        checkpoint, committable = cast("tuple[int, object]", PLAIN.decode(part))
        yield checkpoint, json_line(committable)


def _batches_in_flight(snapshot: OperatorSnapshot) -> int:
    """Return the number of batches in channels and in the buffer of a sink."""
    waiting = len(snapshot.operator.get(WAITING, ()))
    return waiting + sum(
        isinstance(element, bytes)
        for part in snapshot.operator.get(IN_FLIGHT, ())
        for element in cast("list[list[object]]", PLAIN.decode(part))[-1]
    )


def _start_times(restored: Restored) -> Iterator[tuple[Timestamp, list[str]]]:
    """Yield the start times (epoch ms) of a job that continues from here, and the steps that skip earlier records."""
    steps: dict[Timestamp, list[str]] = {}
    for name, snapshot in restored.states.items():
        begins = handed_over(snapshot, name)
        if begins is not None:
            steps.setdefault(begins, []).append(name)
    yield from sorted(steps.items())


def _other_state(step: StoredStep) -> str:
    """Return the names of the state that no other column or table shows."""
    shown = {*_TIMERS, PROGRESS, PENDING, WAITING, IN_FLIGHT}
    return ", ".join(name.removeprefix(RESERVED) for name in step.others if name not in shown)


def _keys(snapshot: OperatorSnapshot) -> int:
    return len(
        {
            key
            for names in snapshot.keyed.values()
            for name, rows in names.items()
            if name != STATES
            for key, _ in rows
        }
    )


def _timers(snapshot: OperatorSnapshot) -> dict[str, int]:
    return {
        kind: count
        for name, kind in _TIMERS.items()
        if (count := sum(len(names.get(name, ())) for names in snapshot.keyed.values()))
    }


def _bytes(snapshot: OperatorSnapshot) -> int:
    rows = (row for names in snapshot.keyed.values() for held in names.values() for row in held)
    parts = (*snapshot.operator.values(), *snapshot.broadcast.values())
    return sum(len(key) + len(data) for key, data in rows) + sum(
        len(part) for held in parts for part in held
    )


def key_lines(restored: Restored, step: str, state: str | None) -> Iterator[str]:
    """Yield a line of JSON for each key of ``step``, or each key that has ``state``, and for each broadcast entry.

    Raises ``RestoreError`` for an unknown step or state.
    """
    snapshot = _state_of(restored, step)
    known = {
        *(name for names in snapshot.keyed.values() for name in names if name != STATES),
        *snapshot.broadcast,
    }
    known = {name for name in known if not name.startswith(_TOUCHED)}
    wanted = known
    if state is not None:
        wanted = {
            name for name in known if name.removeprefix(RESERVED) == state.removeprefix(RESERVED)
        }
        if not wanted:
            there = ", ".join(sorted(map(repr, known))) or "none"
            raise RestoreError(
                f"step {step!r} has no state {state!r} in {_title(restored)}; it has: {there}"
            )
    for group in sorted(snapshot.keyed):
        yield from _lines_of_group(snapshot.keyed[group], wanted)
    for name in sorted(wanted & snapshot.broadcast.keys()):
        yield from _broadcast_lines(name, snapshot.broadcast[name][0])


def _lines_of_group(names: Mapping[str, Entries], wanted: set[str]) -> Iterator[str]:
    described = {name.decode(): Description.decoded(data) for name, data in names.get(STATES, ())}
    by_key: dict[bytes, dict[str, list[bytes]]] = {}
    for name in sorted(wanted & names.keys()):
        for key, data in names[name]:
            by_key.setdefault(key, {}).setdefault(name, []).append(data)
    for key, held in by_key.items():
        line: dict[str, object] = {"key": key_value(key)}
        for name, stored in held.items():
            if name in _TIMERS:
                timers = line.setdefault("timers", {})
                cast("dict[str, object]", timers)[_TIMERS[name]] = [timer(one) for one in stored]
            elif name.startswith(RESERVED):
                line[name.removeprefix(RESERVED)] = [opened(one) for one in stored]
            else:
                states = cast("dict[str, object]", line.setdefault("states", {}))
                states[name] = state_value(described.get(name), stored[-1])
        yield json_line(line)


def _broadcast_lines(name: str, copy: bytes) -> Iterator[str]:
    described, data = cast("tuple[bytes, bytes]", PLAIN.decode(copy))
    entries = state_value(Description.decoded(described), data)
    for key, value in cast("list[tuple[object, object]]", entries):
        yield json_line({"broadcast": name, "key": key, "value": value})


def _state_of(restored: Restored, step: str) -> OperatorSnapshot:
    if step not in restored.states:
        known = ", ".join(map(repr, restored.states)) or "none"
        raise RestoreError(f"there is no step {step!r} in {_title(restored)}; it has: {known}")
    return restored.states[step]


def _title(restored: Restored) -> str:
    manifest = restored.manifest
    return f"{manifest.kind.value} {manifest.id} of flow {manifest.flow!r}"
