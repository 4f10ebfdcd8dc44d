"""Key groups: the division among subtasks, and the router that the hash partitioner asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow.model.key_groups import (
    DEFAULT_KEY_GROUPS,
    KeyGroupRange,
    key_group,
    ranges,
    subtask_of,
)
from aflow.model.keys import stable_hash


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, int]:
    key_groups = draw(st.integers(1, 300))
    return key_groups, draw(st.integers(1, key_groups))


def test_a_key_belongs_to_the_group_of_its_hash_modulo_the_number_of_groups() -> None:
    assert key_group("JFK", 128) == 31  # as pmod(crc32('JFK'), 128) in Spark SQL
    assert key_group("JFK") == stable_hash("JFK") % DEFAULT_KEY_GROUPS


def test_a_thousand_keys_reach_every_group() -> None:
    assert {key_group(number) for number in range(1000)} == set(range(DEFAULT_KEY_GROUPS))


def test_three_subtasks_share_128_groups_as_flink_divides_them() -> None:
    assert ranges(128, 3) == [KeyGroupRange(0, 43), KeyGroupRange(43, 86), KeyGroupRange(86, 128)]


@given(divisions())
def test_ranges_cover_every_group_once_in_order_and_differ_in_size_by_at_most_one(
    division: tuple[int, int],
) -> None:
    key_groups, parallelism = division

    shares = ranges(key_groups, parallelism)

    assert [group for share in shares for group in share] == list(range(key_groups))
    assert len(shares) == parallelism
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(divisions())
def test_the_subtask_of_a_group_is_the_one_whose_range_holds_it(division: tuple[int, int]) -> None:
    key_groups, parallelism = division
    shares = ranges(key_groups, parallelism)

    owners = [subtask_of(group, key_groups, parallelism) for group in range(key_groups)]

    assert all(group in shares[owner] for group, owner in enumerate(owners))
    assert owners == sorted(owners)


def test_a_range_holds_its_start_and_not_its_stop() -> None:
    share = KeyGroupRange(2, 4)

    assert [group for group in range(6) if group in share] == [2, 3]
    assert "2" not in share


@pytest.mark.parametrize(
    ("key_groups", "parallelism", "complaint"),
    [
        (4, 5, "parallelism 5 is more than the 4 key groups"),
        (4, 0, "parallelism must be at least 1, not 0"),
        (0, 1, "key_groups must be at least 1, not 0"),
    ],
)
def test_an_impossible_division_is_refused(
    key_groups: int, parallelism: int, complaint: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        ranges(key_groups, parallelism)
    with pytest.raises(FlowDefinitionError, match=complaint):
        subtask_of(0, key_groups, parallelism)


@pytest.mark.parametrize("group", [-1, 128])
def test_a_group_that_does_not_exist_has_no_subtask(group: int) -> None:
    with pytest.raises(FlowDefinitionError, match=f"key group {group} is not among the 128 groups"):
        subtask_of(group, 128, 2)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2)])
def test_a_range_that_runs_backwards_or_below_zero_is_refused(start: int, stop: int) -> None:
    with pytest.raises(FlowDefinitionError, match="0 <= start <= stop"):
        KeyGroupRange(start, stop)


def test_a_key_has_no_group_among_none() -> None:
    with pytest.raises(FlowDefinitionError, match="at least 1, not 0"):
        key_group("JFK", 0)
