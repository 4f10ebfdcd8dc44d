"""Results, their order and state do not depend on the pieces in which a step fires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.base import Operator, OperatorContext, TwoInputOperator
from aflow.operators.pieces import (
    OnePiece,
    PieceRunner,
    discarded,
    drained,
    drained_slices,
    in_order,
)
from aflow.testing.step_harness import ManualTime, RecordingOutput
from tests.operators.piece_steps import CASES, operator

KEYS = 4


@dataclass
class SmallPieces:
    """Runs work with one result in each piece, and looks at the operator between two of them."""

    look: Callable[[], object] = lambda: None
    limit: int = 1
    pieces: list[int] = field(default_factory=list[int])

    def run(self, work: Iterator[int]) -> None:
        for results in work:
            assert results <= self.limit
            self.pieces.append(results)
            self.look()


class Step:
    """One operator, driven by elements; everything that can be seen of it is recorded."""

    def __init__(self, made: Operator, pieces: PieceRunner) -> None:
        self.operator = made
        self.output = RecordingOutput()
        self.time = ManualTime()
        self.snapshots: list[object] = []
        made.open(
            OperatorContext(
                name="step", output=self.output, clock=self.time, alarm=self.time, pieces=pieces
            )
        )

    def take(self, kind: str, given: Any) -> None:
        match kind:
            case "left" | "right":
                self._batch(kind, given)
            case "watermark":
                self.operator.on_watermark(given)
            case _:
                self._advance(given)
        captured = self.operator.checkpoint(changes=True)
        self.snapshots.append(None if captured is None else captured.encoded())
        self.snapshots.append(self.operator.size())

    def _batch(self, kind: str, records: list[int]) -> None:
        batch = Batch(list(records), list(records), [n % KEYS for n in records])
        if not isinstance(self.operator, TwoInputOperator):
            self.operator.process(batch)
        elif kind == "left":
            self.operator.process_left(batch)
        else:
            self.operator.process_right(batch)

    def _advance(self, milliseconds: int) -> None:
        until = self.time.at + milliseconds
        while self.time.alarm is not None and self.time.alarm <= until:
            self.time.at = max(self.time.at, self.time.alarm)
            self.time.alarm = None
            self.operator.on_processing_time(self.time.at)
        self.time.at = until

    def seen(self) -> tuple[list[object], dict[str, list[object]], list[object]]:
        """Return records and watermarks in order, the side outputs, and the state after each element."""
        elements: list[object] = []
        for one in self.output.emitted:
            elements += _records(one) if isinstance(one, Batch) else [one]
        sides = {
            tag: [record for batch in batches for record in _records(batch)]
            for tag, batches in self.output.sides.items()
        }
        return elements, sides, self.snapshots


def _records(batch: Batch[Any]) -> list[object]:
    times: list[Any] = batch.timestamps or [None] * len(batch)
    return list(zip(batch.values, times, strict=True))


records = st.lists(st.integers(0, 80), min_size=1, max_size=8)
elements = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["left", "right"]), records),
        st.tuples(st.just("watermark"), st.integers(0, 90)),
        st.tuples(st.just("clock"), st.integers(1, 6)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("case", CASES)
@given(some=elements)
@settings(max_examples=60, deadline=None)
def test_a_step_gives_the_same_in_small_pieces_as_in_one(
    case: str, some: list[tuple[str, Any]]
) -> None:
    whole = Step(operator(case), OnePiece())
    small = SmallPieces()
    divided = Step(operator(case), small)
    small.look = divided.operator.size

    watermark = -1
    for kind, given_ in [*some, ("watermark", MAX_TIMESTAMP)]:
        if kind == "watermark":
            if given_ <= watermark:
                continue
            watermark = given_
        whole.take(kind, given_)
        divided.take(kind, given_)

    assert divided.seen() == whole.seen()


@pytest.mark.parametrize("case", CASES)
def test_a_step_fires_in_as_many_pieces_as_it_has_results(case: str) -> None:
    small = SmallPieces()
    step = Step(operator(case), small)
    step.take("left", [1, 2, 3, 4])
    step.take("right", [2])

    step.take("clock", 50)
    step.take("watermark", MAX_TIMESTAMP)

    assert small.pieces
    if case not in ("deduplicate", "inner", "count", "as of, for ever"):
        assert small.pieces.count(1) >= 2


@given(st.lists(st.integers(0, 50), max_size=9_000))
@settings(deadline=None, max_examples=20)
def test_items_are_sorted_in_pieces_as_in_one(numbers: list[int]) -> None:
    items = list(enumerate(numbers))
    expected = sorted(items, key=lambda item: item[1])

    found: list[tuple[int, int]] = []

    def work() -> Iterator[int]:
        found.extend((yield from in_order(items, lambda item: item[1])))

    OnePiece().run(work())

    assert found == expected
    assert items == []


def test_lists_and_dicts_are_emptied_as_they_are_read() -> None:
    numbers, others = list(range(1000)), list(range(1000))
    entries = dict.fromkeys(range(1000))

    read = drained(numbers)
    parts = drained_slices(others)
    first = next(read), next(parts)
    steps = list(discarded(entries))  # type: ignore[arg-type]

    assert first == (0, list(range(256)))
    assert (len(numbers), len(others), len(entries)) == (999, 744, 0)
    assert len(steps) == 4
    assert [*read] == list(range(1, 1000))
    assert [number for part in parts for number in part] == list(range(256, 1000))
