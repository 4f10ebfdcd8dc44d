"""As-of joins with records on disk have the results of those in memory, with as few resident records as possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import OperatorError
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.joins.as_of import AsOfJoinOperator
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk
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
from tests.operators.joins.test_as_of import KeepsAllVersions, kinds, left, pair, right

tolerances = st.none() | st.integers(0, 150)


def harness(
    backend: InMemory | OnDisk,
    kind: Join = Join.LEFT,
    *,
    tolerance: int | None = None,
    mode: Mode = Mode.STRAIGHT,
    into: Any = pair,
    typed: bool = True,
    parallelism: int = 1,
    subtask: int = 0,
) -> Harness:
    of = Record if typed else None
    return TwoInputHarness(
        lambda: with_backend(
            AsOfJoinOperator(into, kind=kind, tolerance=tolerance, left_type=of, right_type=of),
            backend,
        ),
        left_key=lambda record: record.key,
        right_key=lambda record: record.key,
        mode=mode,
        parallelism=parallelism,
        subtask=subtask,
    )


@every_engine
@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    history=histories(span=120, late_rights=True),
    tolerance=tolerances,
    kind=kinds,
    mode=st.sampled_from(Mode),
    resident=st.sampled_from([1, 4, 1000]),
)
def test_each_record_is_joined_to_the_version_of_its_time(
    engine: DiskEngine,
    history: list[Step],
    tolerance: int | None,
    kind: Join,
    mode: Mode,
    resident: int,
) -> None:
    model = KeepsAllVersions(tolerance)
    model.play(history)
    backend = OnDisk(engine, resident=resident)
    with harness(backend, kind, tolerance=tolerance, mode=mode) as step:
        play(step, history)

        expected = [both for both in model.results if kind is Join.LEFT or both[1] is not None]
        assert sorted(step.values, key=repr) == sorted(expected, key=repr)
        times = [one.timestamp for one in records(step)]
        assert times == sorted(one.at for one, _ in expected)
        assert late_downstream(step) == []
        assert step.size.entries == 0


@every_engine
@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    history=histories(span=120, late_lefts=True, late_rights=True),
    tolerance=tolerances,
    kind=kinds,
)
def test_results_and_late_records_are_those_of_a_join_in_memory(
    engine: DiskEngine, history: list[Step], tolerance: int | None, kind: Join
) -> None:
    seen: list[list[Any]] = []
    for backend in memory_and(engine):
        with harness(backend, kind, tolerance=tolerance) as step:
            play(step, history)

            late = [step.side(Tag[Record](tag)) for tag in (LATE_LEFT, LATE_RIGHT)]
            seen.append([step.output, late])

    assert seen[0] == seen[1]


@every_engine
@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    history=histories(span=120, keys="abcdef", late_rights=True),
    moved_at=st.integers(0, 25),
    tolerance=tolerances,
    to_disk=st.booleans(),
    subtasks=st.integers(1, 3),
)
def test_state_moves_between_memory_and_disk_and_to_another_parallelism(
    engine: DiskEngine,
    history: list[Step],
    moved_at: int,
    tolerance: int | None,
    to_disk: bool,
    subtasks: int,
) -> None:
    first, second = history[:moved_at], history[moved_at:]
    before, after = memory_and(engine) if to_disk else memory_and(engine)[::-1]
    stayed = harness(before, tolerance=tolerance)
    _play(stayed, first)
    stayed.take()
    snapshot = stayed.snapshot()
    assert snapshot is not None

    _play(stayed, second)
    stayed.watermark(MAX_TIMESTAMP)
    moved: list[Any] = []
    for subtask in range(subtasks):
        with harness(after, tolerance=tolerance, parallelism=subtasks, subtask=subtask) as step:
            step.restore(snapshot)
            _play(step, second)
            step.watermark(MAX_TIMESTAMP)
            moved += records(step)

    expected = [one for one in stayed.take() if isinstance(one, At)]
    stayed.close()
    assert sorted(map(repr, moved)) == sorted(map(repr, expected))


def _play(step: Harness, history: list[Step]) -> None:
    """Play the steps without restarts, with the records whose keys the subtask owns."""
    context = step.operator.context
    for each in history:
        if isinstance(each, Advance):
            step.watermark(each.to)
        if isinstance(each, Advance | Restart):
            continue
        mine = [
            one
            for one in each.records
            if key_group(one.key, context.key_group_count) in context.key_groups
        ]
        if mine:
            push = step.left_batch if isinstance(each, Left) else step.right_batch
            push(mine, [one.at for one in mine])


@every_engine
@pytest.mark.parametrize("tolerance", [None, 100])
def test_versions_of_a_busy_key_do_not_accumulate(
    engine: DiskEngine, tolerance: int | None
) -> None:
    most = 0
    with harness(OnDisk(engine, resident=10), tolerance=tolerance) as step:
        for at in range(0, 4_000, 10):
            right(step, at)
            step.watermark(at)
            if at % 100 == 0:
                most = max(most, step.size.entries)

    # Those of the last 100 ms and of the slice of 200 ms before, or the newest one and the next.
    assert 0 < most <= (2 if tolerance is None else 31)


@every_engine
@pytest.mark.parametrize("push", [left, right])
def test_a_record_without_an_encoding_fails_the_step_when_it_is_buffered(
    engine: DiskEngine, push: Any
) -> None:
    with (
        harness(OnDisk(engine), typed=False) as step,
        pytest.raises(OperatorError, match=rf"cannot keep {push.__name__} record .* on disk") as e,
    ):
        push(step, 1, 7)

    assert (e.value.key, e.value.record) == ("a", Record("a", 1, 7))


@every_engine
def test_results_before_a_failed_one_are_emitted(engine: DiskEngine) -> None:
    def fail(one: Record, other: Record | None) -> Record:
        if one.number == 3:
            raise ValueError("no")
        return one

    with harness(OnDisk(engine, resident=1), into=fail) as step:
        first, failed = left(step, 10, 2), left(step, 11, 3)
        with pytest.raises(OperatorError, match="failed to join left record") as e:
            step.watermark(20)

        assert (e.value.record, e.value.timestamp) == ((failed, None), 11)
        assert step.values == [first]


@every_engine
def test_the_database_is_removed_at_the_end(engine: DiskEngine, tmp_path: Path) -> None:
    step = harness(OnDisk(engine, tmp_path, resident=1))
    for at in range(10):
        right(step, at, key=f"key {at}")
    during = list(tmp_path.iterdir())

    step.close()

    assert during
    assert list(tmp_path.iterdir()) == []
