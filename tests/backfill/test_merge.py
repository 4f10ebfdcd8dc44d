"""Record blocks that arrive by their first times are merged into the order of event time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.backfill.blocks import ExchangedRows
from aflow.backfill.exchange import DecodedBlock
from aflow.backfill.merge import BlockMerger

RecordBlock = tuple[int, int, list[int]]
"""Input, place, times."""


def _opened(times: list[int], place: int) -> DecodedBlock:
    values = [(place, number) for number in range(len(times))]
    return DecodedBlock([object() for _ in times], times, list(values))


def _merged(record_blocks: list[RecordBlock]) -> tuple[list[tuple[int, int, int, int]], int]:
    """Time, input, place and number of each record, in the order of emission; and the maximum number held."""
    together, most = BlockMerger(), 0
    arrived: list[ExchangedRows] = []
    for number, place, times in sorted(record_blocks, key=lambda one: (one[2][0], one[0], one[1])):
        arrived += together.add(times[0], number, place, _opened(times, place))
        most = max(most, together.held)
    arrived += together.end()
    assert together.held == 0
    rows = [
        (time, number, *value)
        for some in arrived
        for time, number, value in zip(some.times, some.inputs, some.values, strict=True)
    ]
    return rows, most


record_blocks = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(0, 40), min_size=1, max_size=6).map(sorted)),
    max_size=12,
).map(lambda some: [(number, place, times) for place, (number, times) in enumerate(some)])


@given(record_blocks, st.integers(1, 8))
def test_records_are_ordered_by_time_then_input_then_place_then_arrival(
    record_blocks: list[RecordBlock], together: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aflow.backfill.merge._MIN_SORTED", together)
        patch.setattr("aflow.backfill.merge._MAX_EMITTED", 3)

        rows, _ = _merged(record_blocks)

    expected = [
        (time, number, place, at)
        for number, place, times in record_blocks
        for at, time in enumerate(times)
    ]
    assert rows == sorted(expected)


def test_parcels_that_do_not_overlap_are_handed_on_as_they_are() -> None:
    together = BlockMerger()
    first = _opened([1, 2, 2], 0)

    handed = [*together.add(1, 0, 0, first), *together.add(3, 0, 1, _opened([3], 1))]

    assert [one.values for one in handed] == [first.values]
    assert handed[0].values is first.values


def test_only_overlapping_records_are_held() -> None:
    record_blocks = [(0, at, [at * 5, at * 5 + 20]) for at in range(20_000)]

    rows, most = _merged(record_blocks)

    assert len(rows) == 40_000
    assert most < 5_000
