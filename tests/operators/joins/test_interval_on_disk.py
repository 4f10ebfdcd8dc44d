"""Interval joins with records on disk have the results of those in memory, with as few resident records as possible."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import OperatorError
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.joins.interval import IntervalJoinOperator
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import At, Mode, TwoInputHarness
from tests.operators.joins.backends import every_engine, memory_and, with_backend
from tests.operators.joins.histories import (
    Advance,
    Harness,
    Left,
    Record,
    Restart,
    Step,
    histories,
    late_downstream,
    play,
    records,
)
from tests.operators.joins.test_interval import expected, pair


def harness(
    backend: InMemory | OnDisk,
    lower: int = -2,
    upper: int = 3,
    *,
    mode: Mode = Mode.STRAIGHT,
    parallelism: int = 1,
    subtask: int = 0,
    into: Any = pair,
    **options: Any,
) -> Harness:
    def make() -> IntervalJoinOperator:
        types: dict[str, Any] = {"left_type": Record, "right_type": Record}
        return with_backend(IntervalJoinOperator(lower, upper, into, **types | options), backend)

    return TwoInputHarness(
        make,
        left_key=lambda record: record.key,
        right_key=lambda record: record.key,
        mode=mode,
        parallelism=parallelism,
        subtask=subtask,
    )


bounds = st.tuples(st.integers(-150, 150), st.integers(0, 150)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1])
)


@every_engine
@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    history=histories(span=120),
    between=bounds,
    kind=st.sampled_from(Join),
    mode=st.sampled_from(Mode),
    resident=st.sampled_from([1, 4, 1000]),
)
def test_any_order_has_the_join_of_all_records(
    engine: DiskEngine,
    history: list[Step],
    between: tuple[int, int],
    kind: Join,
    mode: Mode,
    resident: int,
) -> None:
    with harness(OnDisk(engine, resident=resident), *between, kind=kind, mode=mode) as step:
        play(step, history)

        found = [(one.timestamp, one.value) for one in records(step)]
        assert sorted(found, key=repr) == sorted(expected(history, *between, kind), key=repr)
        assert late_downstream(step) == []
        assert step.size.entries == 0


@every_engine
@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    history=histories(span=120, late_lefts=True, late_rights=True),
    between=bounds,
    kind=st.sampled_from(Join),
)
def test_late_records_and_watermarks_are_those_of_a_join_in_memory(
    engine: DiskEngine, history: list[Step], between: tuple[int, int], kind: Join
) -> None:
    seen: list[list[str]] = []
    for backend in memory_and(engine):
        with harness(backend, *between, kind=kind) as step:
            play(step, history)

            late = [step.side(Tag[Record](tag)) for tag in (LATE_LEFT, LATE_RIGHT)]
            seen.append([*sorted(map(repr, step.output)), repr(late)])

    assert seen[0] == seen[1]


@every_engine
@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    history=histories(span=120, keys="abcdef"),
    moved_at=st.integers(0, 25),
    between=bounds,
    kind=st.sampled_from(Join),
    to_disk=st.booleans(),
    subtasks=st.integers(1, 3),
)
def test_state_moves_between_memory_and_disk_and_to_another_parallelism(
    engine: DiskEngine,
    history: list[Step],
    moved_at: int,
    between: tuple[int, int],
    kind: Join,
    to_disk: bool,
    subtasks: int,
) -> None:
    first, second = history[:moved_at], history[moved_at:]
    before, after = memory_and(engine) if to_disk else memory_and(engine)[::-1]
    stayed = harness(before, *between, kind=kind)
    _play(stayed, first)
    stayed.take()
    snapshot = stayed.snapshot()
    assert snapshot is not None

    _play(stayed, second)
    stayed.watermark(MAX_TIMESTAMP)
    moved: list[Any] = []
    for subtask in range(subtasks):
        options: dict[str, Any] = {"parallelism": subtasks, "subtask": subtask}
        with harness(after, *between, kind=kind, **options) as step:
            step.restore(snapshot)
            _play(step, second, owned=step)
            step.watermark(MAX_TIMESTAMP)
            moved += records(step)

    expected_records = [one for one in stayed.take() if isinstance(one, At)]
    stayed.close()
    assert sorted(map(repr, moved)) == sorted(map(repr, expected_records))


def _play(step: Harness, history: list[Step], owned: Harness | None = None) -> None:
    """Play the steps without restarts; with ``owned`` only the records whose keys it owns."""
    for each in history:
        if isinstance(each, Advance):
            step.watermark(each.to)
        if isinstance(each, Advance | Restart):
            continue
        context = step.operator.context
        mine = [
            one
            for one in each.records
            if owned is None or key_group(one.key, context.key_group_count) in context.key_groups
        ]
        if mine:
            push = step.left_batch if isinstance(each, Left) else step.right_batch
            push(mine, [one.at for one in mine])


@every_engine
@pytest.mark.parametrize("resident", [1, 1000])
def test_equal_keys_of_several_types_are_one_key(engine: DiskEngine, resident: int) -> None:
    step = keyed_harness(OnDisk(engine, resident=resident))
    ones: list[Any] = [1, True, 1.0, Decimal(1)]

    for number, key in enumerate(ones):
        step.left((key, number), number * 100)
        step.left(("1", -number), number * 100)
        step.restart()
    step.right((1, 9), 200)

    assert sorted(left[1] for left, _ in step.values) == [0, 1, 2, 3]
    step.close()


@every_engine
def test_keys_with_the_same_canonical_bytes_are_several_keys(engine: DiskEngine) -> None:
    step = keyed_harness(OnDisk(engine, resident=1))
    alike: list[Any] = [("a", "b"), "a\x1fb", ("a\x1fb",)]

    for number, key in enumerate(alike):
        step.left((key, number), 100)
    step.right((alike[1], 9), 100)

    assert step.values == [((alike[1], 1), (alike[1], 9))]
    step.close()


def both(left: Any, right: Any) -> tuple[Any, Any]:
    return left, right


def keyed_harness(backend: OnDisk) -> TwoInputHarness[Any, Any, Any]:
    def make() -> IntervalJoinOperator:
        return with_backend(IntervalJoinOperator(-1000, 1000, both), backend)

    return TwoInputHarness[Any, Any, Any](
        make, left_key=lambda one: one[0], right_key=lambda one: one[0]
    )


@every_engine
def test_a_record_without_an_encoding_fails_the_step_when_it_is_buffered(
    engine: DiskEngine,
) -> None:
    with (
        harness(OnDisk(engine), left_type=None, right_type=None) as step,
        pytest.raises(OperatorError, match=r"cannot keep left record .* of key 'a' on disk") as e,
    ):
        step.left(Record("a", 1, 7), 1)

    assert (e.value.key, e.value.record) == ("a", Record("a", 1, 7))


@every_engine
@pytest.mark.parametrize("key", [[1], float("nan")], ids=str)
def test_a_key_that_cannot_be_one_is_refused(engine: DiskEngine, key: Any) -> None:
    with (
        keyed_harness(OnDisk(engine)) as step,
        pytest.raises(OperatorError, match="cannot be a key"),
    ):
        step.left((key, 1), 1)


@every_engine
def test_an_error_of_the_function_names_the_key_and_both_records(engine: DiskEngine) -> None:
    def fail(one: Record, other: Record) -> Record:
        if other.number == 3:
            raise ValueError("no")
        return other

    with harness(OnDisk(engine, resident=1), into=fail) as step:
        one, others = Record("a", 11, 1), [Record("a", 10, 2), Record("a", 10, 3)]
        step.left(one, 11)
        with pytest.raises(OperatorError, match=r"left record .*11.* right record .*10.*no") as e:
            step.right_batch(others, [10, 10])

        assert (e.value.key, e.value.record, e.value.timestamp) == ("a", (one, others[1]), 10)
        assert step.values == [others[0]]


@every_engine
def test_the_database_is_removed_at_the_end(engine: DiskEngine, tmp_path: Path) -> None:
    step = harness(OnDisk(engine, tmp_path, resident=1))
    for at in range(10):
        step.left(Record(f"key {at}", at, at), at)
    during = list(tmp_path.iterdir())

    step.close()

    assert during
    assert list(tmp_path.iterdir()) == []


@every_engine
@pytest.mark.parametrize("kind", Join, ids=lambda kind: kind.name)
def test_keys_without_further_records_keep_no_state(engine: DiskEngine, kind: Join) -> None:
    most = 0
    with harness(OnDisk(engine, resident=10), -100, 100, kind=kind) as step:
        for at in range(0, 8_000, 10):
            step.left(Record(f"left {at}", at, at), at)
            step.right(Record(f"right {at}", at, at), at)
            step.watermark(at)
            if at % 200 == 0:
                most = max(most, step.size.entries)

    # Records expire after 100 ms, and slices of 400 ms are dropped when the last one has.
    assert 0 < most <= 2 * (400 + 100) // 10 + 2


@every_engine
@pytest.mark.parametrize("resident", [10, 100_000])
def test_records_of_dropped_slices_do_not_remain_in_chains_of_changes(
    engine: DiskEngine, resident: int
) -> None:
    """Changes do not name the keys of a dropped slice, so a complete capture replaces the chain from time to time."""
    chain: list[OperatorSnapshot] = []
    longest = 0
    with harness(OnDisk(engine, resident=resident), -100, 100) as step:
        for at in range(0, 8_000, 10):
            step.left(Record(f"left {at}", at, at), at)
            step.watermark(at)
            if at % 50 == 0:
                captured = step.operator.checkpoint(changes=True)
                assert captured is not None
                part = captured.encoded()
                chain = [*chain, part] if part.replaced is not None else [part]
                longest = max(longest, len(chain))

    # Rows of 400 ms are live: after as many have been dropped, 8 captures later, the next one is complete.
    assert 1 < longest <= 2 * (400 + 400) // 50
