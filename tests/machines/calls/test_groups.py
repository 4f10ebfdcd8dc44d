"""Groups: their calls, and their start."""

from __future__ import annotations

from aflow.machines.calls.groups import Grouping, GroupSize


def line_of(size: int, delay: int, *calls: tuple[str, int]) -> Grouping[str]:
    line: Grouping[str] = Grouping(GroupSize(size, delay))
    for call, now in calls:
        line.add(call, now)
    return line


def test_a_full_group_goes_at_once_in_the_order_in_which_the_calls_came() -> None:
    line = line_of(2, 50, ("b", 0), ("a", 0), ("c", 0))

    assert line.take(0, company=True) == ["b", "a"]
    assert line.take(0, company=True) is None
    assert len(line) == 1


def test_a_group_that_is_not_full_goes_once_its_oldest_call_has_waited_long_enough() -> None:
    line = line_of(3, 50, ("a", 100), ("b", 130))

    assert line.earliest == 150
    assert line.take(149, company=True) is None
    assert line.take(150, company=True) == ["a", "b"]
    assert line.earliest is None


def test_those_that_a_full_group_leaves_behind_wait_for_as_long_as_others() -> None:
    line = line_of(2, 50, ("a", 0), ("b", 0), ("c", 20))

    line.take(20, company=True)

    assert line.earliest == 70
    assert line.take(69, company=True) is None


def test_without_a_delay_whatever_is_there_goes() -> None:
    line = line_of(3, 0, ("a", 7), ("b", 7))

    assert line.take(7, company=True) == ["a", "b"]


def test_a_group_that_nobody_takes_grows() -> None:
    line = line_of(3, 50, ("a", 0))

    line.add("b", 90)

    assert line.take(90, company=True) == ["a", "b"]


def test_nobody_waits_for_company_that_cannot_come() -> None:
    line = line_of(3, 50, ("a", 0))

    assert line.due(0, company=True) == 0
    assert line.due(0, company=False) == 1
    assert line.take(0, company=False) == ["a"]
    assert line.take(0, company=False) is None


def test_full_groups_and_a_rest_that_waits_for_nobody_are_all_to_be_taken() -> None:
    line = line_of(2, 50, ("a", 0), ("b", 0), ("c", 0))

    assert [line.due(0, company=True), line.due(50, company=True)] == [1, 2]
    assert line.due(0, company=False) == 2


def test_the_first_in_line_can_be_had_before_they_have_waited() -> None:
    line = line_of(3, 50, ("a", 0), ("b", 0))

    assert line.first(1) == ["a"]
    assert line.first(5) == ["b"]
    assert line.first(5) == []


def test_a_call_that_is_discarded_neither_goes_nor_counts_nor_makes_others_go() -> None:
    line = line_of(3, 50, ("a", 0), ("b", 20), ("c", 20))

    assert line.discard("a")

    assert line.earliest == 70
    assert line.take(69, company=True) is None
    assert line.take(70, company=True) == ["b", "c"]


def test_to_discard_a_call_that_is_not_there_changes_nothing() -> None:
    line = line_of(2, 50, ("a", 0))

    assert not line.discard("b")
    assert len(line) == 1


def test_calls_are_told_apart_even_if_they_are_equal() -> None:
    line: Grouping[list[int]] = Grouping(GroupSize(5, 0))
    first, second = [1], [1]
    line.add(first, 0)
    line.add(second, 0)

    line.discard(second)

    group = line.take(0, company=True)
    assert group is not None
    assert [one is first for one in group] == [True]
