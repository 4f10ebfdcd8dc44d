"""Joins with records on time and late ones: each record is joined, or late and in a side output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from aflow.model.tags import Tag
from aflow.model.time import MIN_TIMESTAMP
from aflow.operators.joins.as_of import AsOfJoinOperator
from aflow.operators.joins.interval import IntervalJoinOperator
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT, Join
from aflow.testing import Mode, TwoInputHarness
from tests.operators.joins.histories import (
    Advance,
    Harness,
    Left,
    Record,
    Right,
    Step,
    histories,
    late_downstream,
    play,
)

Pair = tuple[Record | None, Record | None]


def pair(left: Record | None, right: Record | None) -> Pair:
    return left, right


def arrivals(history: Iterable[Step]) -> Iterator[tuple[bool, Record, bool]]:
    """Return each record, with True for a left one, and True if it is at or before the watermark."""
    watermark = MIN_TIMESTAMP
    for step in history:
        match step:
            case Advance(to):
                watermark = to
            case Left(records) | Right(records):
                for one in records:
                    yield isinstance(step, Left), one, one.at <= watermark
            case _:
                pass


def late(step: Harness, tag: str) -> list[Record]:
    return sorted(one.value for one in step.side(Tag[Record](tag)))


bounds = st.tuples(st.integers(-15, 15), st.integers(0, 15)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1])
)


@given(
    history=histories(late_lefts=True, late_rights=True),
    between=bounds,
    kind=st.sampled_from(Join),
    mode=st.sampled_from(Mode),
)
def test_an_interval_join_joins_all_records_on_time_and_emits_all_others_as_late(
    history: list[Step], between: tuple[int, int], kind: Join, mode: Mode
) -> None:
    lower, upper = between
    step: Harness = TwoInputHarness(
        lambda: IntervalJoinOperator(
            lower, upper, pair, kind=kind, left_type=Record, right_type=Record
        ),
        left_key=lambda record: record.key,
        right_key=lambda record: record.key,
        mode=mode,
    )

    play(step, history)

    came = list(arrivals(history))
    lefts = [one for is_left, one, is_late in came if is_left and not is_late]
    rights = [one for is_left, one, is_late in came if not is_left and not is_late]
    assert sorted(step.values, key=repr) == sorted(
        _join_pair(lefts, rights, between, kind), key=repr
    )
    assert late(step, LATE_LEFT) == sorted(one for left, one, is_late in came if left and is_late)
    assert late(step, LATE_RIGHT) == sorted(
        one for left, one, is_late in came if not left and is_late
    )
    assert late_downstream(step) == []


def _join_pair(
    lefts: list[Record], rights: list[Record], between: tuple[int, int], kind: Join
) -> list[Pair]:
    lower, upper = between
    pairs = [
        (one, other)
        for one in lefts
        for other in rights
        if one.key == other.key and lower <= other.at - one.at <= upper
    ]
    met = {record for both in pairs for record in both}
    found: list[Pair] = list(pairs)
    if kind.keeps_left:
        found += [(one, None) for one in lefts if one not in met]
    if kind.keeps_right:
        found += [(None, one) for one in rights if one not in met]
    return found


@given(
    history=histories(late_lefts=True, late_rights=True),
    tolerance=st.none() | st.integers(0, 15),
    mode=st.sampled_from(Mode),
)
def test_an_as_of_join_emits_each_left_record_once_joined_or_late(
    history: list[Step], tolerance: int | None, mode: Mode
) -> None:
    step: Harness = TwoInputHarness(
        lambda: AsOfJoinOperator(
            pair, kind=Join.LEFT, tolerance=tolerance, left_type=Record, right_type=Record
        ),
        left_key=lambda record: record.key,
        right_key=lambda record: record.key,
        mode=mode,
    )

    play(step, history)

    came = list(arrivals(history))
    on_time = [one for is_left, one, is_late in came if is_left and not is_late]
    rights_on_time = {one for is_left, one, is_late in came if not is_left and not is_late}
    assert sorted(left for left, _ in step.values) == sorted(on_time)
    assert late(step, LATE_LEFT) == sorted(one for left, one, is_late in came if left and is_late)
    assert rights_on_time.isdisjoint(late(step, LATE_RIGHT))
    assert late_downstream(step) == []
