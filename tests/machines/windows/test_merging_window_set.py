"""Windows that merge, and the state windows of their contents."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aflow.errors import FlowDefinitionError, InternalError
from aflow.machines.windows.merging_window_set import (
    AddedWindow,
    Merge,
    Merged,
    MergeFunction,
    MergingWindowSet,
    merge_touching,
)
from aflow.model.windows import TimeWindow

W = TimeWindow

#: Few timestamps, so that windows touch; those of no length are points.
windows = st.tuples(st.integers(-30, 30), st.integers(0, 8)).map(lambda at: W(at[0], sum(at)))


def added(*some: TimeWindow, merging: MergeFunction = merge_touching) -> MergingWindowSet:
    made = MergingWindowSet(merging)
    for window in some:
        made.add(window)
    return made


def test_windows_that_overlap_or_touch_are_merged_in_groups() -> None:
    found = merge_touching([W(4, 6), W(0, 2), W(9, 12), W(2, 3), W(5, 7), W(20, 30)])

    assert found == [
        Merged(W(0, 3), [W(0, 2), W(2, 3)]),
        Merged(W(4, 7), [W(4, 6), W(5, 7)]),
    ]


def test_a_long_window_keeps_the_group_together_that_short_ones_inside_of_it_would_end() -> None:
    found = merge_touching([W(0, 10), W(1, 2), W(9, 12)])

    assert found == [Merged(W(0, 12), [W(0, 10), W(1, 2), W(9, 12)])]


def test_windows_before_1970_are_merged_like_others() -> None:
    assert merge_touching([W(-5, 0), W(-9, -5)]) == [Merged(W(-9, 0), [W(-9, -5), W(-5, 0)])]


@given(st.lists(windows, max_size=12))
def test_merged_groups_do_not_touch_and_cover_their_windows(some: list[TimeWindow]) -> None:
    groups = merge_touching(some)

    alone = [window for window in some if not any(window in group.windows for group in groups)]
    left = [group.window for group in groups] + alone
    assert sum(len(group.windows) for group in groups) + len(alone) == len(some)
    assert all(len(group.windows) >= 2 for group in groups)
    assert not any(one.touches(other) for at, one in enumerate(left) for other in left[at + 1 :])
    for cover, members in groups:
        assert cover == W(min(w.start for w in members), max(w.end for w in members))


def test_a_window_that_touches_none_is_its_own_state_window() -> None:
    some = added(W(0, 5))

    joined = some.add(W(6, 9))

    assert joined == AddedWindow(W(6, 9), None)
    assert dict(some) == {W(0, 5): W(0, 5), W(6, 9): W(6, 9)}


def test_a_window_that_grows_keeps_its_state_window() -> None:
    some = added(W(5, 9))

    first, second = some.add(W(3, 6)), some.add(W(9, 12))

    assert first == AddedWindow(W(3, 9), Merge(W(3, 9), W(5, 9), [W(5, 9)], []))
    assert second == AddedWindow(W(3, 12), Merge(W(3, 12), W(5, 9), [W(3, 9)], []))
    assert some.state_window(W(3, 12)) == W(5, 9)
    assert some.state_window(W(5, 9)) is None


def test_of_windows_that_merge_the_state_window_of_the_first_is_kept() -> None:
    some = added(W(8, 10), W(2, 4), W(5, 6))

    joined = some.add(W(4, 8))

    assert joined.merge == Merge(
        W(2, 10), W(2, 4), [W(2, 4), W(5, 6), W(8, 10)], [W(5, 6), W(8, 10)]
    )
    assert dict(some) == {W(2, 10): W(2, 4)}


@pytest.mark.parametrize("inside", [W(0, 9), W(0, 4), W(4, 9), W(3, 3), W(9, 9)], ids=str)
def test_a_window_inside_an_existing_one_changes_nothing(inside: TimeWindow) -> None:
    some = added(W(0, 5), W(5, 9))

    assert some.add(inside) == AddedWindow(W(0, 9), None)
    assert dict(some) == {W(0, 9): W(0, 5)}


def test_a_retired_window_may_be_added_again() -> None:
    some = added(W(0, 5), W(4, 8))

    some.retire(W(0, 8))

    assert (dict(some), some.state_window(W(0, 8))) == ({}, None)
    assert some.add(W(0, 8)) == AddedWindow(W(0, 8), None)


def test_a_window_that_was_merged_into_another_cannot_be_retired() -> None:
    some = added(W(0, 5), W(4, 8))

    with pytest.raises(InternalError, match=r"start=0, end=5.*cannot be retired.*start=0, end=8"):
        some.retire(W(0, 5))


def test_the_items_of_an_iteration_restore_the_set() -> None:
    some = added(W(0, 5), W(4, 8), W(20, 30))
    restored = MergingWindowSet()

    for window, state_window in some:
        restored.restore(window, state_window)

    assert dict(restored) == dict(some) == {W(0, 8): W(0, 5), W(20, 30): W(20, 30)}


def always(*merged: Merged) -> MergeFunction:
    """Merge the same windows, once there are two windows."""
    return lambda some: list(merged) if len(some) > 1 else []


@pytest.mark.parametrize(
    "members",
    [[W(6, 9)], [W(6, 9), W(1, 2)], [W(0, 5), W(0, 5), W(6, 9)]],
    ids=["with nothing", "with one that is not there", "with one twice"],
)
def test_merging_windows_that_do_not_exist_is_refused(members: list[TimeWindow]) -> None:
    some = added(W(0, 5), merging=always(Merged(W(0, 9), members)))

    with pytest.raises(FlowDefinitionError, match=r"each once: \[TimeWindow\(start=0, end=5\)\]"):
        some.add(W(6, 9))
    assert dict(some) == {W(0, 5): W(0, 5)}


def test_merging_into_an_existing_window_that_was_left_out_is_refused() -> None:
    def last_two(some: Sequence[TimeWindow]) -> list[Merged]:
        return [Merged(W(0, 9), list(some[-2:]))] if len(some) > 2 else []

    some = added(W(0, 9), W(3, 5), merging=last_two)

    with pytest.raises(FlowDefinitionError, match="exists but was left out"):
        some.add(W(4, 6))


def test_adding_a_window_that_was_merged_is_refused() -> None:
    def up_to_eight(some: Sequence[TimeWindow]) -> list[Merged]:
        return [group for group in merge_touching(some) if group.windows != [W(0, 5), W(0, 8)]]

    some = added(W(0, 5), W(4, 8), merging=up_to_eight)

    with pytest.raises(FlowDefinitionError, match=r"which began as .*start=0, end=5.* itself"):
        some.add(W(0, 5))


def test_a_group_without_the_added_window_is_merged_when_one_of_it_is_added() -> None:
    some = added(merging=lambda some: merge_touching(some) if len(some) > 2 else [])
    some.add(W(0, 5))
    some.add(W(5, 9))

    some.add(W(20, 30))
    assert len(dict(some)) == 3
    assert some.add(W(8, 10)).window == W(0, 10)


class MergingWindows(RuleBasedStateMachine):
    """Rules that compare the set with the union of intervals, and the contents with those that an
    operator would store.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set = MergingWindowSet()
        #: By brute force: the windows that each window is the union of.
        self.unions: dict[TimeWindow, list[TimeWindow]] = {}
        #: The operator's contents, by state window.
        self.filed: dict[TimeWindow, list[TimeWindow]] = {}
        self.ever_added: set[TimeWindow] = set()

    @rule(window=windows)
    def add(self, window: TimeWindow) -> None:
        before = dict(self.set)
        self.ever_added.add(window)
        union, touched, members = self._joined_by_force(window)

        actual, merge = self.set.add(window)

        assert actual == union
        if touched in ([], [union]):
            assert merge is None
        else:
            assert merge is not None
            assert (merge.target, merge.sources) == (union, touched)
            states = [before[source] for source in touched]
            assert [merge.state_window, *merge.merged_state_windows] == states
            for state in merge.merged_state_windows:
                self.filed[merge.state_window] += self.filed.pop(state)
        for source in touched:
            del self.unions[source]
        self.unions[union] = members
        filed_under = self.set.state_window(actual)
        assert filed_under is not None
        self.filed.setdefault(filed_under, []).append(window)

    @precondition(lambda self: self.unions)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        window = data.draw(st.sampled_from(sorted(self.unions)))
        state = self.set.state_window(window)
        assert state is not None

        self.set.retire(window)

        assert self.set.state_window(window) is None
        assert sorted(self.filed.pop(state)) == sorted(self.unions.pop(window))

    @rule()
    def restore(self) -> None:
        restored = MergingWindowSet()
        for window, state_window in self.set:
            restored.restore(window, state_window)
        self.set = restored

    @invariant()
    def there_are_the_unions_and_no_others(self) -> None:
        assert {window for window, _ in self.set} == self.unions.keys()
        assert len(dict(self.set)) == len(self.unions)

    @invariant()
    def each_window_has_a_folder_of_its_own_with_all_that_it_is_made_of(self) -> None:
        states = [state for _, state in self.set]
        assert len(set(states)) == len(states)
        assert set(states) == self.filed.keys()
        assert set(states) <= self.ever_added
        for window, state in self.set:
            assert sorted(self.filed[state]) == sorted(self.unions[window])

    def _joined_by_force(
        self, window: TimeWindow
    ) -> tuple[TimeWindow, list[TimeWindow], list[TimeWindow]]:
        """Return the merged window of ``window``, the windows in it by start, and the windows that
        they were made of.
        """
        # In half milliseconds: a point is one, and windows that touch share one.
        taken = set(range(2 * window.start, 2 * window.end + 1))
        touched: list[TimeWindow] = []
        while more := [
            other
            for other in self.unions
            if other not in touched and taken & set(range(2 * other.start, 2 * other.end + 1))
        ]:
            touched += more
            taken.update(*(range(2 * other.start, 2 * other.end + 1) for other in more))
        members = [window] + [each for other in touched for each in self.unions[other]]
        return W(min(taken) // 2, max(taken) // 2), sorted(touched), members


TestMergingWindows = MergingWindows.TestCase
TestMergingWindows.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
