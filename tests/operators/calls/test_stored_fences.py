"""Watermarks that wait for calls in snapshots: they keep their place, and no restore loses or invents one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aflow.errors import RestoreError
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.settings import CallOrder
from aflow.model.elements import Watermark
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, key_group, subtask_of
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.calls.stored_fences import FENCES
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import At
from tests.operators.calls.harness import CallHarness


def itself(value: Any) -> Any:
    return value


QUEUES: dict[str, dict[str, Any]] = {
    "ordered": {},
    "unordered": {"order": CallOrder.UNORDERED},
    "by key": {"order": CallOrder.BY_KEY, "key": itself},
    "cached": {"cache": Cache(10)},
    "cached by key": {"cache": Cache(10), "order": CallOrder.BY_KEY, "key": itself},
    "grouped": {"groups": GroupSize(1, 0)},
    "cached and grouped": {"cache": Cache(10), "groups": GroupSize(1, 0)},
}


def snapshot_of(step: CallHarness) -> OperatorSnapshot:
    snapshot = step.snapshot()
    assert snapshot is not None
    return snapshot


def give(step: CallHarness, value: object) -> None:
    """The call for ``value``, or for a list of it alone, gives itself."""
    asked = value if value in step.asked else [value]
    step.returns(asked, asked)


def subtasks(
    count: int, *snapshots: OperatorSnapshot, queue: dict[str, Any] | None = None
) -> list[CallHarness]:
    steps = [
        CallHarness(subtask=subtask, parallelism=count, **(queue or {})) for subtask in range(count)
    ]
    for step in steps if snapshots else ():
        step.restore(*snapshots)
    return steps


def key_of_subtask(subtask: int, count: int) -> int:
    groups = DEFAULT_KEY_GROUPS
    return next(
        key for key in range(1000) if subtask_of(key_group(key, groups), groups, count) == subtask
    )


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_a_watermark_keeps_its_place_among_restored_records(queue: dict[str, Any]) -> None:
    step = CallHarness(**queue)
    step.push("a", at=[1])
    step.watermark(1)
    step.push("b", at=[2])
    step.push("c", at=[3])
    step.watermark(3)

    again = CallHarness(**queue)
    again.restore(snapshot_of(step))
    again.push("d", at=[4])
    for value in "abcd":
        give(again, value)

    assert again.output == [
        At("a", 1),
        Watermark(1),
        At("b", 2),
        At("c", 3),
        Watermark(3),
        At("d", 4),
    ]


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_a_watermark_behind_settled_and_pending_calls_keeps_its_place(
    queue: dict[str, Any],
) -> None:
    step = CallHarness(**queue)
    step.mails_wait = True
    for value in "abc":
        step.push(value, at=[1])
    step.watermark(1)
    step.push("d", at=[2])
    step.watermark(2)
    for value in "ad":
        give(step, value)

    again = CallHarness(**queue)
    again.restore(snapshot_of(step))
    for value in "bc":
        give(again, value)

    assert not again.under_way
    assert [one for one in again.output if isinstance(one, Watermark)] == [
        Watermark(1),
        Watermark(2),
    ]
    assert again.output.index(Watermark(1)) == 3
    assert again.output.index(Watermark(2)) == 5


def test_watermarks_that_the_inputs_repeat_after_a_restore_are_dropped() -> None:
    step = CallHarness()
    step.push("a", at=[1])
    step.watermark(5)

    again = CallHarness()
    again.restore(snapshot_of(step))
    again.watermark(4)
    again.watermark(5)
    again.returns("a", "a")
    again.watermark(6)

    assert again.output == [At("a", 1), Watermark(5), Watermark(6)]


def test_the_end_of_time_is_not_stored() -> None:
    step = CallHarness()
    step.push("a", at=[1])
    step.watermark(5)
    step.watermark(MAX_TIMESTAMP)

    again = CallHarness()
    again.restore(snapshot_of(step))
    again.returns("a", "a")

    assert again.output == [At("a", 1), Watermark(5)]


def test_a_snapshot_without_watermarks_of_an_earlier_version_is_restored() -> None:
    step = CallHarness()
    step.push("a", at=[1])
    step.watermark(5)
    operator = dict(snapshot_of(step).operator)
    del operator[FENCES]

    again = CallHarness()
    again.restore(OperatorSnapshot(operator=operator))
    again.returns("a", "a")
    again.watermark(5)

    assert again.output == [At("a", 1), Watermark(5)]


def test_bytes_that_are_no_watermarks_fail_the_restore() -> None:
    step = CallHarness()

    with pytest.raises(RestoreError, match="step 'step' cannot read the watermarks"):
        step.restore(OperatorSnapshot(operator={FENCES: (b"rubbish",)}))


# ------------------------------------------------------------------------------------------------ rescaling


def waiting_at(watermarks: Sequence[int], queue: dict[str, Any] | None = None) -> list[Any]:
    """Snapshots of subtasks, each with one call under way and then its watermark."""
    steps = subtasks(len(watermarks), queue=queue)
    for number, (step, watermark) in enumerate(zip(steps, watermarks, strict=True)):
        step.push(key_of_subtask(number, len(steps)), at=[1])
        step.watermark(watermark)
    return [snapshot_of(step) for step in steps]


@pytest.mark.parametrize("queue", [QUEUES["ordered"], QUEUES["by key"]], ids=["ordered", "by key"])
def test_after_a_rescale_the_smallest_watermark_follows_the_records_of_all(
    queue: dict[str, Any],
) -> None:
    (merged,) = subtasks(1, *waiting_at([7, 5], queue), queue=queue)
    for value in [*merged.asked]:
        assert not any(isinstance(one, Watermark) for one in merged.output)
        merged.returns(value, value)

    assert merged.output[2:] == [Watermark(5)]


@pytest.mark.parametrize("queue", [QUEUES["ordered"], QUEUES["by key"]], ids=["ordered", "by key"])
def test_a_new_subtask_without_records_emits_the_watermark_of_the_others_at_once(
    queue: dict[str, Any],
) -> None:
    steps = subtasks(3, *waiting_at([7], queue), queue=queue)

    empty = [step for step in steps if not step.asked]

    assert [step.output for step in empty] == [[Watermark(7)]] * 2
    assert not any(step.step.busy for step in empty)


def test_a_former_subtask_without_watermark_holds_that_of_the_others_back() -> None:
    steps = subtasks(2)
    steps[0].push("a", at=[1])
    steps[0].watermark(7)
    steps[1].push("b", at=[1])

    (merged,) = subtasks(1, *map(snapshot_of, steps))
    for value in "ab":
        merged.returns(value, value)

    assert merged.output == [At("a", 1), At("b", 1)]


@pytest.mark.parametrize("behind", ["idle", "ended"])
def test_a_former_subtask_that_was_idle_or_had_ended_holds_no_watermark_back(behind: str) -> None:
    steps = subtasks(2)
    steps[0].push("a", at=[1])
    steps[0].watermark(7)
    steps[1].watermark(3)
    if behind == "idle":
        steps[1].idle()
    else:
        steps[1].watermark(MAX_TIMESTAMP)

    (merged,) = subtasks(1, *map(snapshot_of, steps))
    merged.returns("a", "a")

    assert merged.output == [At("a", 1), Watermark(7)]


def test_a_watermark_survives_a_rescale_in_a_job_whose_input_is_idle() -> None:
    step = CallHarness()
    step.push("a", at=[1])
    step.watermark(7)
    step.idle()

    again, _ = subtasks(2, snapshot_of(step))
    again.returns("a", "a")

    assert again.output == [At("a", 1), Watermark(7)]
