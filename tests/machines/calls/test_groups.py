"""Groups: their calls, and their start."""

from __future__ import annotations

from aflow.machines.calls.groups import Grouping, GroupSize


def line_of(size: int, delay: int, *calls: tuple[str, int]) -> Grouping[str]:
    line: Grouping[str] = Grouping(GroupSize(size, delay))
    for call, now in calls:
        line.add(call, now)
    return line


def test_a_full_group_is_ready_at_once_in_the_order_of_arrival() -> None:
    line = line_of(2, 50, ("b", 0), ("a", 0), ("c", 0))

    assert line.take(0, company=True) == ["b", "a"]
    assert line.take(0, company=True) is None
    assert len(line) == 1


def test_a_partial_group_is_ready_when_its_oldest_call_has_waited_for_the_delay() -> None:
    line = line_of(3, 50, ("a", 100), ("b", 130))

    assert line.earliest == 150
    assert line.take(149, company=True) is None
    assert line.take(150, company=True) == ["a", "b"]
    assert line.earliest is None


def test_calls_that_exceed_a_full_group_wait_for_the_delay() -> None:
    line = line_of(2, 50, ("a", 0), ("b", 0), ("c", 20))

    line.take(20, company=True)

    assert line.earliest == 70
    assert line.take(69, company=True) is None


def test_without_a_delay_all_available_calls_are_ready() -> None:
    line = line_of(3, 0, ("a", 7), ("b", 7))

    assert line.take(7, company=True) == ["a", "b"]


def test_a_group_that_is_not_taken_grows() -> None:
    line = line_of(3, 50, ("a", 0))

    line.add("b", 90)

    assert line.take(90, company=True) == ["a", "b"]


def test_calls_do_not_wait_for_others_that_cannot_arrive() -> None:
    line = line_of(3, 50, ("a", 0))

    assert line.due(0, company=True) == 0
    assert line.due(0, company=False) == 1
    assert line.take(0, company=False) == ["a"]
    assert line.take(0, company=False) is None


def test_full_groups_and_a_remainder_without_delay_are_all_ready() -> None:
    line = line_of(2, 50, ("a", 0), ("b", 0), ("c", 0))

    assert [line.due(0, company=True), line.due(50, company=True)] == [1, 2]
    assert line.due(0, company=False) == 2


def test_the_first_in_line_can_be_had_before_they_have_waited() -> None:
    line = line_of(3, 50, ("a", 0), ("b", 0))

    assert line.first(1) == ["a"]
    assert line.first(5) == ["b"]
    assert line.first(5) == []


def test_a_discarded_call_is_not_in_a_group_and_does_not_complete_one() -> None:
    line = line_of(3, 50, ("a", 0), ("b", 20), ("c", 20))

    assert line.discard("a")

    assert line.earliest == 70
    assert line.take(69, company=True) is None
    assert line.take(70, company=True) == ["b", "c"]


def test_to_discard_a_call_that_is_not_there_changes_nothing() -> None:
    line = line_of(2, 50, ("a", 0))

    assert not line.discard("b")
    assert len(line) == 1


def test_equal_calls_are_distinguished() -> None:
    line: Grouping[list[int]] = Grouping(GroupSize(5, 0))
    first, second = [1], [1]
    line.add(first, 0)
    line.add(second, 0)

    line.discard(second)

    group = line.take(0, company=True)
    assert group is not None
    assert [one is first for one in group] == [True]
