"""Histories of a step with two inputs: records on time, in any order, watermarks between them, restarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from aflow.model.elements import Watermark
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.testing import At, TwoInputHarness


class Record(NamedTuple):
    """A record with its key and timestamp; the number distinguishes equal ones."""

    key: str
    at: int
    number: int


Harness: TypeAlias = TwoInputHarness[Record, Record, Any]


@dataclass(frozen=True)
class Left:
    """A batch of the left input."""

    records: Sequence[Record]


@dataclass(frozen=True)
class Right:
    """A batch of the right input."""

    records: Sequence[Record]


@dataclass(frozen=True)
class Advance:
    """A watermark of both inputs."""

    to: int


@dataclass(frozen=True)
class Restart:
    """A restore of the step from its snapshot."""


Step: TypeAlias = Left | Right | Advance | Restart


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    span: int = 12,
    keys: str = "ab",
    late_lefts: bool = False,
    late_rights: bool = False,
) -> list[Step]:
    """Return a strategy of steps without late records: records are up to ``span`` ms after the watermark, never at it.

    With ``late_lefts`` and ``late_rights`` records of that input are up to ``span`` ms before it too.
    """
    late = {"l": late_lefts, "r": late_rights}
    steps: list[Step] = []
    watermark = -20
    numbers = iter(range(10_000))
    for kind in draw(st.lists(st.sampled_from("llrrlrwwx"), max_size=25)):
        if kind == "w":
            watermark += draw(st.integers(1, span))
            steps.append(Advance(watermark))
        elif kind == "x":
            steps.append(Restart())
        else:
            first = -span if late[kind] else 1
            one = st.tuples(st.sampled_from(keys), st.integers(first, span))
            some = draw(st.lists(one, min_size=1, max_size=4))
            records = [Record(key, watermark + ahead, next(numbers)) for key, ahead in some]
            steps.append(Left(records) if kind == "l" else Right(records))
    return steps


def lefts(history: Iterable[Step]) -> list[Record]:
    return [one for step in history if isinstance(step, Left) for one in step.records]


def rights(history: Iterable[Step]) -> list[Record]:
    return [one for step in history if isinstance(step, Right) for one in step.records]


def play(step: Harness, history: Iterable[Step]) -> None:
    """Play all steps, then end the inputs."""
    for each in history:
        match each:
            case Left(records):
                step.left_batch(records, [one.at for one in records])
            case Right(records):
                step.right_batch(records, [one.at for one in records])
            case Advance(to):
                step.watermark(to)
            case Restart():
                step.restart()
    step.watermark(MAX_TIMESTAMP)


def records(step: Harness) -> list[At[Any]]:
    """Return the emitted records, without the watermarks."""
    return [one for one in step.output if isinstance(one, At)]


def late_downstream(step: Harness) -> list[At[Any]]:
    """Return the records emitted at or before an earlier watermark: they would be late downstream."""
    watermark = MIN_TIMESTAMP
    late: list[At[Any]] = []
    for one in step.output:
        if isinstance(one, Watermark):
            watermark = one.timestamp
        elif isinstance(one, At) and isinstance(one.timestamp, int) and one.timestamp <= watermark:
            late.append(one)
    return late
