"""Every step with state, restored in pieces of one row, equals one that was restored at once, with any parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.model.batch import Batch
from aflow.model.key_groups import key_group
from aflow.operators.base import TwoInputOperator
from aflow.operators.key_timers import KeyTimers
from aflow.operators.keyed_function import KeyedProcessOperator
from aflow.operators.keyed_state import keyed_backend
from aflow.state import stored_entries
from aflow.state.backend import KeyTimerQueue
from aflow.state.parts import decoded, encoded
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import OperatorHarness
from tests.operators.driver import Driver
from tests.operators.test_captures import OPERATORS, Advance, Records, Step, stories

#: Few, so that several keys are in the same one.
GROUPS = 4

KEYS = "abcdefghij"

driver_of = partial(Driver, key_groups=GROUPS)


def as_stored(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """Return the snapshot as it is read from a part file."""
    data = b"".join(encoded({"step": snapshot}, aflow="1"))
    return decoded(data, what="the part")["step"]


def restore_in_pieces_of_one_row(driver: Driver, snapshot: OperatorSnapshot) -> int:
    """Restore ``snapshot``, and return the number of pieces."""
    with patch.object(stored_entries, "_BYTES", 0):
        return sum(1 for _ in driver.operator.restore_in_pieces(snapshot))


def live(driver: Driver, story: Sequence[Step], now: int = 0) -> int:
    """Process the records of the driver's key groups; return the watermark at the end."""
    owned = driver.operator.context.key_groups
    for step in story:
        match step:
            case Records(some, right):
                mine = [one for one in some if key_group(one[0], GROUPS) in owned]
                if mine:
                    push(driver, mine, now, right=right)
            case Advance(by):
                now += by
                driver.watermark(now).clock(now)
            case _:
                pass
    return now


def push(driver: Driver, some: Sequence[tuple[str, int, int]], now: int, *, right: bool) -> None:
    batch = Batch[Any](
        [(key, number) for key, number, _ in some],
        [max(0, now + ahead) for _, _, ahead in some],
        [key for key, _, _ in some],
    )
    operator = driver.operator
    if not isinstance(operator, TwoInputOperator):
        operator.process(batch)
    elif right:
        operator.process_right(batch)
    else:
        operator.process_left(batch)


@pytest.mark.parametrize("name", OPERATORS)
@given(before=stories(KEYS), after=stories(KEYS), parallelism=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_a_step_restored_in_pieces_equals_one_restored_at_once(
    name: str, before: list[Step], after: list[Step], parallelism: int
) -> None:
    former = driver_of(OPERATORS[name])
    now = live(former, before)
    snapshot = former.snapshot()

    for subtask in range(parallelism):
        whole, pieces = (
            driver_of(OPERATORS[name], subtask=subtask, parallelism=parallelism) for _ in range(2)
        )
        for driver in (whole, pieces):
            driver.time.at = former.time.at
        whole.restore(snapshot)
        restore_in_pieces_of_one_row(pieces, as_stored(snapshot))
        assert pieces.snapshot() == whole.snapshot()

        for driver in (whole, pieces):
            live(driver, after, now)
        assert pieces.batches() == whole.batches()
        assert pieces.side_records("late") == whole.side_records("late")
        assert pieces.snapshot() == whole.snapshot()
        assert pieces.size == whole.size


@pytest.mark.parametrize("name", OPERATORS)
def test_a_restore_has_a_piece_for_each_row(name: str) -> None:
    former = driver_of(OPERATORS[name])
    for right in (False, True, False):
        push(former, [(f"key {n}", 11, 50) for n in range(200)], 0, right=right)
    snapshot = former.snapshot()
    rows = max(len(some) for names in snapshot.keyed.values() for some in names.values())

    assert (
        restore_in_pieces_of_one_row(driver_of(OPERATORS[name]), as_stored(snapshot)) >= rows > 20
    )


def test_the_changes_after_a_restore_in_pieces_are_those_of_the_keys_that_changed() -> None:
    former = driver_of(OPERATORS["tumbling"])
    push(former, [(f"key {n}", 1, 3) for n in range(1000)], 0, right=False)
    restored = driver_of(OPERATORS["tumbling"])
    restore_in_pieces_of_one_row(restored, as_stored(former.snapshot()))

    push(restored, [("key 7", 1, 3)], 0, right=False)
    captured = restored.operator.capture(changes=True)

    assert captured is not None
    assert sum(map(len, (captured.encoded().replaced or {}).values())) == 1


class Postponed(af.KeyedProcess[str, int, int]):
    """Keep a value and a timer for each key."""

    last = af.ValueState("last", of=int)

    def process(self, value: int, ctx: af.Context[str]) -> None:
        ctx.state(self.last).set(value)
        ctx.set_event_timer(value + 1_000)
        ctx.set_processing_timer(value + 2_000)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[int]:
        return [at]


def test_a_key_is_one_object_in_the_state_and_the_timers_of_a_step() -> None:
    filled = OperatorHarness[int, int](
        lambda: KeyedProcessOperator(Postponed()), key=lambda n: f"key {n}"
    )
    filled.push_batch(range(600))
    snapshot = filled.snapshot()
    assert snapshot is not None

    context = filled.operator.context
    backend = keyed_backend(context, None)
    backend.cell(Postponed.last)
    timers = KeyTimers[KeyTimerQueue](context.alarm, backend.timers)
    for _ in backend.restore_beside(
        snapshot.keyed, partial(timers.restore_group, step=context.name)
    ):
        pass

    stored = {key: key for key in backend.keys("last")}
    assert len(stored) == 600
    for queue in timers.queues.values():
        found = queue.keys()
        assert len(found) == 600
        assert all(stored[key] is key for key in found)
