"""What is in a checkpoint, counted and in words: what ``aflow savepoint`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN
from aflow.model.time import Timestamp
from aflow.operators.handover import handed_over
from aflow.runtime.checkpoints.sections import IN_FLIGHT, PENDING, PROGRESS, WAITING
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.change_plan import StoredState, StoredStep, stored_step
from aflow.state.descriptions import Description
from aflow.state.snapshot import STATES, Entry, OperatorSnapshot
from aflow.state.specs import RESERVED
from aflow.state.stored_values import json_line, key_value, opened, state_value, timer

#: By the name under which they are stored, what a person calls timers.
TIMERS: Mapping[str, str] = {"@event timers": "event", "@processing timers": "processing"}

_TOUCHED = f"{RESERVED}touched "


@dataclass(frozen=True, slots=True)
class StepContents:
    """A step of a checkpoint, counted."""

    step: StoredStep
    snapshot: OperatorSnapshot
    keys: int
    timers: Mapping[str, int]
    """By the clock they ring by."""
    bytes: int
    """Encoded, in memory; files have a little more."""


def steps_of(restored: Restored) -> list[StepContents]:
    """All steps that have something. Raises ``RestoreError`` for what does not say of what type it is."""
    found: list[StepContents] = []
    for step in restored.manifest.steps:
        snapshot = restored.states.get(step.name, OperatorSnapshot())
        found.append(
            StepContents(
                stored_step(step, snapshot),
                snapshot,
                _keys(snapshot),
                _timers(snapshot),
                _bytes(snapshot),
            )
        )
    return found


def bytes_of(contents: StepContents, state: StoredState) -> int:
    """Keys and values of one declared state."""
    rows = (row for names in contents.snapshot.keyed.values() for row in names.get(state.name, ()))
    keyed = sum(len(key) + len(data) for key, data in rows)
    return keyed + sum(map(len, contents.snapshot.broadcast.get(state.name, ())))


def splits(snapshot: OperatorSnapshot) -> Iterator[tuple[str, str]]:
    """The splits of a source, each with its position as JSON, or what else is known of it."""
    for part in snapshot.operator.get(PROGRESS, ()):
        split, *place = cast("tuple[str, object, int, int]", PLAIN.decode(part))
        if not place:
            yield split, "read to its end"
        else:
            position, skip, *_ = place
            yield split, f"{json_line(position)}{f', and {skip} records' if skip else ''}"


def committables(snapshot: OperatorSnapshot) -> Iterator[tuple[int, str]]:
    """What a sink has prepared: the checkpoint, and the committable as JSON."""
    for part in snapshot.operator.get(PENDING, ()):
        checkpoint, committable = cast("tuple[int, object]", PLAIN.decode(part))
        yield checkpoint, json_line(committable)


def batches_in_flight(snapshot: OperatorSnapshot) -> int:
    """How many batches wait in channels, or in front of a sink."""
    waiting = len(snapshot.operator.get(WAITING, ()))
    return waiting + sum(
        isinstance(element, bytes)
        for part in snapshot.operator.get(IN_FLIGHT, ())
        for element in cast("list[list[object]]", PLAIN.decode(part))[-1]
    )


def hand_overs(restored: Restored) -> Iterator[tuple[Timestamp, list[str]]]:
    """Moments (epoch ms) at which a job that goes on from here begins, with the steps that skip what is before them."""
    steps: dict[Timestamp, list[str]] = {}
    for name, snapshot in restored.states.items():
        begins = handed_over(snapshot, name)
        if begins is not None:
            steps.setdefault(begins, []).append(name)
    yield from sorted(steps.items())


def remembered(step: StoredStep) -> str:
    """What a step has beside declared states, timers and what is told in tables of its own."""
    told = {*TIMERS, PROGRESS, PENDING, WAITING, IN_FLIGHT}
    return ", ".join(name.removeprefix(RESERVED) for name in step.others if name not in told)


def key_lines(restored: Restored, step: str, state: str | None) -> Iterator[str]:
    """A line of JSON for each key of ``step`` (with ``state``: that has this), and for each entry for all keys.

    Raises ``RestoreError`` for a step or state that is not there.
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


def _lines_of_group(names: Mapping[str, tuple[Entry, ...]], wanted: set[str]) -> Iterator[str]:
    described = {name.decode(): Description.decoded(data) for name, data in names.get(STATES, ())}
    by_key: dict[bytes, dict[str, list[bytes]]] = {}
    for name in sorted(wanted & names.keys()):
        for key, data in names[name]:
            by_key.setdefault(key, {}).setdefault(name, []).append(data)
    for key, held in by_key.items():
        line: dict[str, object] = {"key": key_value(key)}
        for name, stored in held.items():
            if name in TIMERS:
                timers = line.setdefault("timers", {})
                cast("dict[str, object]", timers)[TIMERS[name]] = [timer(one) for one in stored]
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
        said: count
        for name, said in TIMERS.items()
        if (count := sum(len(names.get(name, ())) for names in snapshot.keyed.values()))
    }


def _bytes(snapshot: OperatorSnapshot) -> int:
    rows = (row for names in snapshot.keyed.values() for held in names.values() for row in held)
    parts = (*snapshot.operator.values(), *snapshot.broadcast.values())
    return sum(len(key) + len(data) for key, data in rows) + sum(
        len(part) for held in parts for part in held
    )
