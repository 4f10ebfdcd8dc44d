"""Which calls are made together, and when."""

from __future__ import annotations

from aflow.machines.calls.grouping import Grouping


def line_of(size: int, delay: int, *calls: tuple[str, int]) -> Grouping[str]:
    line: Grouping[str] = Grouping(size, delay)
    for call, now in calls:
        line.add(call, now)
    return line


def test_a_full_group_goes_at_once_in_the_order_in_which_the_calls_came() -> None:
    line = line_of(2, 50, ("b", 0), ("a", 0), ("c", 0))

    assert line.take(0) == ["b", "a"]
    assert line.take(0) is None
    assert len(line) == 1


def test_a_group_that_is_not_full_goes_once_its_oldest_call_has_waited_long_enough() -> None:
    line = line_of(3, 50, ("a", 100), ("b", 130))

    assert line.earliest == 150
    assert line.take(149) is None
    assert line.take(150) == ["a", "b"]
    assert line.earliest is None


def test_those_that_a_full_group_leaves_behind_wait_for_as_long_as_others() -> None:
    line = line_of(2, 50, ("a", 0), ("b", 0), ("c", 20))

    line.take(20)

    assert line.earliest == 70
    assert line.take(69) is None


def test_without_a_delay_whatever_is_there_goes() -> None:
    line = line_of(3, 0, ("a", 7), ("b", 7))

    assert line.take(7) == ["a", "b"]


def test_a_group_that_nobody_takes_grows() -> None:
    line = line_of(3, 50, ("a", 0))

    line.add("b", 90)

    assert line.take(90) == ["a", "b"]


def test_nobody_waits_for_company_that_cannot_come() -> None:
    line = line_of(3, 50, ("a", 0))

    line.more_may_come = False

    assert line.earliest == 0
    assert line.is_due(0)
    assert line.take(0) == ["a"]
    assert line.take(0) is None


def test_who_comes_where_nobody_else_can_come_does_not_wait_either() -> None:
    line = line_of(3, 50)
    line.more_may_come = False

    line.add("again", 10)

    assert line.take(10) == ["again"]


def test_once_company_may_come_again_calls_wait_for_the_rest_of_their_time() -> None:
    line = line_of(3, 50, ("a", 0))
    line.more_may_come = False
    line.more_may_come = True

    assert line.take(49) is None
    assert line.take(50) == ["a"]


def test_a_call_that_is_discarded_neither_goes_nor_counts_nor_makes_others_go() -> None:
    line = line_of(3, 50, ("a", 0), ("b", 20), ("c", 20))

    assert line.discard("a")

    assert line.earliest == 70
    assert line.take(69) is None
    assert line.take(70) == ["b", "c"]


def test_to_discard_a_call_that_is_not_there_changes_nothing() -> None:
    line = line_of(2, 50, ("a", 0))

    assert not line.discard("b")
    assert len(line) == 1


def test_calls_are_told_apart_even_if_they_are_equal() -> None:
    line: Grouping[list[int]] = Grouping(5, 0)
    first, second = [1], [1]
    line.add(first, 0)
    line.add(second, 0)

    line.discard(second)

    group = line.take(0)
    assert group is not None
    assert [one is first for one in group] == [True]


def test_the_earliest_moment_is_past_if_a_group_is_full() -> None:
    assert line_of(2, 50, ("a", 10), ("b", 20)).earliest == 10
