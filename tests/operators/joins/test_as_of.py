"""As-of joins: the version for a record, the order of emission, late versions, kept state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import CheckpointError, FlowDefinitionError, OperatorError
from aflow.model.elements import Watermark
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.joins.as_of import AsOfJoinOperator
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join
from aflow.testing import At, Mode, TwoInputHarness
from tests.operators.joins.histories import (
    Advance,
    Harness,
    Left,
    Record,
    Right,
    Step,
    histories,
    late_downstream,
    lefts,
    play,
    records,
    rights,
)

Pair = tuple[Record, Record | None]

A = "a"
B = "b"


def pair(left: Record, right: Record | None) -> Pair:
    return left, right


def harness(
    kind: Join = Join.LEFT,
    *,
    tolerance: int | None = None,
    mode: Mode = Mode.STRAIGHT,
    parallelism: int = 1,
    subtask: int = 0,
    typed: bool = True,
    into: Any = pair,
) -> Harness:
    of = Record if typed else None
    return TwoInputHarness(
        lambda: AsOfJoinOperator(into, kind=kind, tolerance=tolerance, left_type=of, right_type=of),
        left_key=lambda record: record.key,
        right_key=lambda record: record.key,
        mode=mode,
        parallelism=parallelism,
        subtask=subtask,
    )


def left(step: Harness, at: int, number: int = 0, key: str = A) -> Record:
    record = Record(key, at, number)
    step.left(record, at)
    return record


def right(step: Harness, at: int, number: int = 0, key: str = A) -> Record:
    record = Record(key, at, number)
    step.right(record, at)
    return record


def late_rights(step: Harness) -> list[Record]:
    return [one.value for one in step.side(Tag[Record](LATE_RIGHT))]


every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_a_record_is_joined_to_the_newest_version_up_to_its_time_in_any_order_of_arrival(
    mode: Mode,
) -> None:
    step = harness(mode=mode)
    one = left(step, 10)
    right(step, 11)
    met = right(step, 8)
    right(step, 5)

    step.watermark(10)

    assert step.values == [(one, met)]


@every_way
def test_of_versions_with_the_timestamp_of_the_record_the_last_to_arrive_is_joined(
    mode: Mode,
) -> None:
    step = harness(mode=mode)
    right(step, 10, 1)
    one = left(step, 10)
    right(step, 12, 2)
    met = right(step, 10, 3)

    step.watermark(MAX_TIMESTAMP)

    assert step.values == [(one, met)]


@every_way
def test_a_record_is_buffered_until_its_time_and_emitted_before_that_watermark(mode: Mode) -> None:
    step = harness(mode=mode)
    one = left(step, 10)

    step.watermark(9)
    step.watermark(10)

    assert step.output == [Watermark(9), At((one, None), 10), Watermark(10)]


@every_way
def test_records_are_emitted_in_time_order(mode: Mode) -> None:
    step = harness(mode=mode)
    for at, key in ((30, A), (10, B), (20, A)):
        left(step, at, key=key)

    step.watermark(MAX_TIMESTAMP)

    assert [one.timestamp for one in records(step)] == [10, 20, 30]


@every_way
def test_a_version_is_joined_to_any_number_of_records(mode: Mode) -> None:
    step = harness(mode=mode)
    met = right(step, 1)
    step.watermark(5)
    left(step, 10)
    step.watermark(20)
    left(step, 1000)

    step.watermark(2000)

    assert [found for _, found in step.values] == [met, met]


@every_way
def test_without_a_version_a_left_join_emits_the_record_with_none_and_an_inner_one_nothing(
    mode: Mode,
) -> None:
    for kind, count in ((Join.LEFT, 1), (Join.INNER, 0)):
        step = harness(kind, mode=mode)
        right(step, 10, key=B)
        right(step, 11)
        left(step, 10)

        step.watermark(MAX_TIMESTAMP)

        assert [found for _, found in step.values] == [None] * count


@every_way
def test_a_version_older_than_the_tolerance_is_not_joined(mode: Mode) -> None:
    step = harness(tolerance=5, mode=mode)
    met = right(step, 10)
    left(step, 15)
    left(step, 16)

    step.watermark(MAX_TIMESTAMP)

    assert [found for _, found in step.values] == [met, None]


@pytest.mark.parametrize("kind", [Join.RIGHT, Join.FULL])
def test_right_records_are_not_emitted_without_a_left_one(kind: Join) -> None:
    with pytest.raises(FlowDefinitionError, match=f"INNER or LEFT, not {kind.name}"):
        AsOfJoinOperator(pair, kind=kind)


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="not negative: -1 ms"):
        AsOfJoinOperator(pair, tolerance=-1)


# --------------------------------------------------------------------------------------- lateness


@every_way
def test_a_left_record_at_or_before_the_watermark_is_emitted_to_the_late_output(mode: Mode) -> None:
    step = harness(mode=mode)
    step.watermark(10)

    late = [left(step, 10), left(step, 9)]
    step.watermark(MAX_TIMESTAMP)

    assert step.values == []
    assert [one.value for one in step.side(Tag[Record](LATE_LEFT))] == late


@every_way
def test_a_late_version_is_valid_for_later_records(mode: Mode) -> None:
    step = harness(mode=mode)
    right(step, 5)
    step.watermark(10)

    met = right(step, 8)
    one = left(step, 11)
    step.watermark(MAX_TIMESTAMP)

    assert step.values == [(one, met)]
    assert late_rights(step) == []


@every_way
def test_a_late_version_replaces_one_with_its_timestamp(mode: Mode) -> None:
    step = harness(mode=mode)
    right(step, 8, 1)
    step.watermark(10)

    met = right(step, 8, 2)
    one = left(step, 11)
    step.watermark(MAX_TIMESTAMP)

    assert step.values == [(one, met)]


@every_way
def test_a_late_version_superseded_by_a_newer_one_is_emitted_to_the_late_output(mode: Mode) -> None:
    step = harness(mode=mode)
    right(step, 5)
    right(step, 8)
    step.watermark(10)

    late = right(step, 7)

    assert late_rights(step) == [late]
    assert step.size.entries == 1


@every_way
def test_a_late_version_beyond_the_tolerance_is_emitted_to_the_late_output(mode: Mode) -> None:
    step = harness(tolerance=5, mode=mode)
    step.watermark(10)

    late, heeded = right(step, 5), right(step, 6)
    one = left(step, 11)
    step.watermark(11)

    assert late_rights(step) == [late]
    assert step.values == [(one, heeded)]


def test_a_record_without_a_timestamp_is_an_error_that_names_the_step_and_the_input() -> None:
    step = harness()

    with pytest.raises(OperatorError, match=r"'step'.* left input .*event_time"):
        step.left(Record(A, 1, 1))


# --------------------------------------------------------------------------------------- clean-up


@every_way
def test_no_state_is_kept_after_the_end_of_time(mode: Mode) -> None:
    step = harness(mode=mode)
    for at in range(20):
        left(step, at, key=f"left {at}")
        right(step, at, key=f"right {at}")
    assert step.size.entries == 40

    step.watermark(MAX_TIMESTAMP)

    assert (step.size.entries, step.size.event_timers) == (0, 0)


def test_of_a_busy_key_only_the_versions_that_matter_are_kept() -> None:
    step = harness()
    most = 0
    for at in range(10, 1000):
        right(step, at)
        step.watermark(at - 5)
        most = max(most, step.size.entries)

    assert most <= 7


def test_superseded_versions_are_dropped_although_their_key_gets_no_new_one() -> None:
    step = harness()
    for at in range(10):
        right(step, at)

    step.watermark(2000)

    assert (step.size.entries, step.size.event_timers) == (1, 0)


def test_with_a_tolerance_keys_without_further_records_keep_no_state() -> None:
    step = harness(tolerance=100)
    most = 0
    for at in range(0, 10_000, 10):
        right(step, at, key=f"right {at}")
        left(step, at, key=f"left {at}")
        step.watermark(at)
        most = max(most, step.size.entries)

    assert most <= 10 + 2
    step.watermark(20_000)
    assert (step.size.entries, step.size.event_timers) == (0, 0)


def test_with_a_tolerance_a_busy_key_that_becomes_idle_keeps_no_state() -> None:
    step = harness(tolerance=100)
    for at in range(0, 1000, 10):
        right(step, at)
        step.watermark(at)

    step.watermark(990 + 100 + 100 // 8)

    assert (step.size.entries, step.size.event_timers) == (0, 0)


# ------------------------------------------------------------------------------ failures and state


def test_an_error_of_the_function_names_the_key_and_both_records() -> None:
    def fail(one: Record, other: Record) -> None:
        raise ValueError("no")

    step = harness(into=fail)
    one, other = left(step, 11), right(step, 10)

    with pytest.raises(OperatorError, match=r"left record .*11.* right record .*10.*'a'.*no") as e:
        step.watermark(20)

    assert (e.value.key, e.value.record, e.value.timestamp) == (A, (one, other), 11)


def test_a_record_without_an_encoding_fails_the_checkpoint_and_is_named() -> None:
    step = harness(typed=False)
    right(step, 1)

    with pytest.raises(CheckpointError, match="right records of key 'a'"):
        step.snapshot()


def test_watermarks_that_the_inputs_repeat_after_a_restore_are_not_emitted_again() -> None:
    before = harness()
    before.watermark(100)
    snapshot = before.snapshot()
    assert snapshot is not None

    after = harness()
    after.restore(snapshot)
    after.watermark(50)
    after.watermark(100)
    repeated = after.take()
    after.watermark(101)

    assert repeated == []
    assert after.take() == [Watermark(101)]


def test_state_is_restored_by_the_owner_of_the_key_at_another_parallelism() -> None:
    before = harness()
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        right(before, 5, key=key)
        left(before, 20, key=key)
    before.watermark(10)
    snapshot = before.snapshot()
    assert snapshot is not None

    joined: list[str] = []
    for subtask in range(3):
        step = harness(parallelism=3, subtask=subtask)
        step.restore(snapshot)
        step.watermark(MAX_TIMESTAMP)
        found = [one.key for one, other in step.values if other == Record(one.key, 5, 0)]
        assert {key_group(key, 128) * 3 // 128 for key in found} == {subtask}
        joined += found

    assert sorted(joined) == sorted(keys)


# -------------------------------------------------------------------------------------- properties


tolerances = st.none() | st.integers(0, 15)
kinds = st.sampled_from([Join.LEFT, Join.INNER])


def newest(one: Record, versions: list[Record], tolerance: int | None) -> Record | None:
    """Return the version that ``merge_asof`` finds; of several with one timestamp the last in the list."""
    good = [
        (other.at, index)
        for index, other in enumerate(versions)
        if other.key == one.key
        and other.at <= one.at
        and (tolerance is None or one.at - other.at <= tolerance)
    ]
    return versions[max(good)[1]] if good else None


@given(history=histories(), tolerance=tolerances, kind=kinds, mode=st.sampled_from(Mode))
def test_any_order_without_late_records_has_the_join_of_all_records(
    history: list[Step], tolerance: int | None, kind: Join, mode: Mode
) -> None:
    step = harness(kind, tolerance=tolerance, mode=mode)

    play(step, history)

    expected = [(one, newest(one, rights(history), tolerance)) for one in lefts(history)]
    if kind is Join.INNER:
        expected = [both for both in expected if both[1] is not None]
    assert sorted(step.values, key=repr) == sorted(expected, key=repr)
    times = [one.timestamp for one in records(step)]
    assert times == sorted(one.at for one, _ in expected)
    assert late_downstream(step) == []
    assert step.size.entries == 0


@dataclass
class KeepsAllVersions:
    """A reference that keeps and searches every version."""

    tolerance: int | None
    versions: list[Record] = field(default_factory=list[Record])
    waiting: list[Record] = field(default_factory=list[Record])
    results: list[Pair] = field(default_factory=list[Pair])

    def play(self, history: list[Step]) -> None:
        for step in [*history, Advance(MAX_TIMESTAMP)]:
            match step:
                case Left(some):
                    self.waiting += some
                case Right(some):
                    self.versions += some
                case Advance(to):
                    due = [one for one in self.waiting if one.at <= to]
                    self.waiting = [one for one in self.waiting if one.at > to]
                    self.results += [
                        (one, newest(one, self.versions, self.tolerance)) for one in due
                    ]
                case _:
                    pass


@given(history=histories(late_rights=True), tolerance=tolerances, mode=st.sampled_from(Mode))
def test_versions_that_are_dropped_or_rejected_make_no_difference(
    history: list[Step], tolerance: int | None, mode: Mode
) -> None:
    step = harness(tolerance=tolerance, mode=mode)
    model = KeepsAllVersions(tolerance)

    play(step, history)
    model.play(history)

    assert sorted(step.values, key=repr) == sorted(model.results, key=repr)
