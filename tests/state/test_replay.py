"""Replayed changes and merged subtasks, compared with a simple implementation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from aflow.state.snapshot import STATES, Entry, OperatorSnapshot, merge, replay

#: Names of rows and of sets.
ROWS = ("last", "all")
SETS = ("@event timers", "@processing timers")

Keyed = dict[int, dict[str, tuple[Entry, ...]]]
Content = dict[tuple[int, str], "Counter[Entry]"]

groups = st.integers(0, 2)
keys = st.sampled_from([b"a", b"b", b"c", b"d"])
entries = st.tuples(keys, st.sampled_from([b"1", b"2", b"3"]))
described = st.dictionaries(st.sampled_from([b"last", b"all"]), st.sampled_from([b"v1", b"v2"]))


def filed(rows: dict[tuple[int, str], list[Entry]]) -> Keyed:
    keyed: Keyed = {}
    for (group, name), some in rows.items():
        keyed.setdefault(group, {})[name] = tuple(some)
    return keyed


@st.composite
def snapshots(draw: st.DrawFn, *, complete: bool) -> OperatorSnapshot:
    """Return a possible snapshot: its rows are of replaced keys, and no member is both added and removed."""
    replaced = draw(st.dictionaries(groups, st.frozensets(keys)))
    rows: dict[tuple[int, str], list[Entry]] = {}
    for group, name in draw(st.sets(st.tuples(groups, st.sampled_from(ROWS)))):
        some = draw(st.lists(entries, max_size=6))
        changed = replaced.get(group, frozenset())
        rows[group, name] = [one for one in some if complete or one[0] in changed]
    removed: dict[tuple[int, str], list[Entry]] = {}
    for group, name in draw(st.sets(st.tuples(groups, st.sampled_from(SETS)))):
        there = draw(st.sets(entries, max_size=6))
        gone = draw(st.sets(entries, max_size=6)) - there
        rows[group, name] = sorted(there)
        removed[group, name] = [] if complete else sorted(gone)
    for group, states in draw(st.dictionaries(groups, described)).items():
        rows[group, STATES] = list(states.items())
    return OperatorSnapshot(
        filed(rows),
        {"@positions": tuple(draw(st.lists(st.binary(max_size=2), max_size=2)))},
        {"rules": tuple(draw(st.lists(st.binary(max_size=2), max_size=2)))},
        None if complete else replaced,
        {} if complete else filed(removed),
        frozenset(SETS),
    )


@st.composite
def chains(draw: st.DrawFn) -> list[OperatorSnapshot]:
    changes = draw(st.lists(snapshots(complete=False), max_size=5))
    return [draw(snapshots(complete=True)), *changes]


def content(snapshot: OperatorSnapshot) -> Content:
    """Return the entries regardless of order, without empty names."""
    return {
        (group, name): Counter(some)
        for group, names in snapshot.keyed.items()
        for name, some in names.items()
        if some
    }


def one_after_the_other(chain: Sequence[OperatorSnapshot]) -> Content:
    """Return the state after all changes, oldest first."""
    there: dict[tuple[int, str], list[Entry]] = {}
    for snapshot in chain:
        for group, gone in (snapshot.replaced or {}).items():
            for name in ROWS:
                there[group, name] = [e for e in there.get((group, name), []) if e[0] not in gone]
        for group, names in snapshot.removed.items():
            for name, some in names.items():
                there[group, name] = [e for e in there.get((group, name), []) if e not in some]
        for group, names in snapshot.keyed.items():
            for name, some in names.items():
                before = there.setdefault((group, name), [])
                if name in SETS:
                    before.extend(entry for entry in some if entry not in before)
                elif name == STATES:
                    there[group, name] = list({**dict(before), **dict(some)}.items())
                else:
                    before.extend(some)
    return {place: Counter(some) for place, some in there.items() if some}


@given(chains())
def test_a_replayed_chain_equals_the_changes_in_order(
    chain: list[OperatorSnapshot],
) -> None:
    result = replay(chain)

    assert content(result) == one_after_the_other(chain)


@given(chains())
def test_a_replayed_chain_is_complete_with_the_newest_operator_and_broadcast_state(
    chain: list[OperatorSnapshot],
) -> None:
    result = replay(chain)

    assert result.complete
    assert not result.removed
    assert result.operator == chain[-1].operator
    assert result.broadcast == chain[-1].broadcast
    assert result.members == frozenset(SETS)


@given(chains(), st.data())
def test_any_beginning_of_a_chain_may_be_replayed_first(
    chain: list[OperatorSnapshot], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(chain)))

    compacted = [replay(chain[:cut]), *chain[cut:]]

    assert content(replay(compacted)) == content(replay(chain))


@given(chains(), st.sets(groups))
def test_a_chain_may_be_restricted_before_or_after_it_is_replayed(
    chain: list[OperatorSnapshot], wanted: set[int]
) -> None:
    before = replay([snapshot.restricted_to(wanted) for snapshot in chain])

    assert content(before) == content(replay(chain).restricted_to(wanted))


def test_complete_snapshots_of_different_key_groups_are_combined() -> None:
    left = OperatorSnapshot({0: {"last": ((b"a", b"1"),)}}, {"@at": (b"left",)})
    right = OperatorSnapshot({1: {"last": ((b"b", b"1"),)}}, {"@at": (b"right",)})
    changes = OperatorSnapshot({1: {"last": ((b"b", b"2"),)}}, replaced={1: frozenset({b"b"})})

    result = replay([left, right, changes])

    assert result == OperatorSnapshot({0: {"last": ((b"a", b"1"),)}, 1: {"last": ((b"b", b"2"),)}})


def test_a_replaced_key_without_rows_is_removed() -> None:
    before = OperatorSnapshot({0: {"last": ((b"a", b"1"),), "all": ((b"a", b"2"), (b"b", b"3"))}})

    result = replay([before, OperatorSnapshot(replaced={0: frozenset({b"a"})})])

    assert result == OperatorSnapshot({0: {"all": ((b"b", b"3"),)}})


def test_a_single_snapshot_is_its_own_replay() -> None:
    only = OperatorSnapshot({0: {"last": ()}}, {"@at": (b"x",)})

    assert replay([only]) is only


def test_changes_alone_are_replayed_on_empty_state() -> None:
    changes = OperatorSnapshot(
        {0: {"last": ((b"a", b"1"),)}}, replaced={0: frozenset({b"a", b"b"})}
    )

    assert replay([changes]) == OperatorSnapshot({0: {"last": ((b"a", b"1"),)}})


@given(st.lists(snapshots(complete=True), max_size=4))
def test_subtasks_are_merged_in_their_order_and_equal_copies_are_kept_once(
    of_subtasks: list[OperatorSnapshot],
) -> None:
    apart = [
        OperatorSnapshot(
            {group + 3 * subtask: names for group, names in one.keyed.items()},
            one.operator,
            one.broadcast,
            members=one.members,
        )
        for subtask, one in enumerate(of_subtasks)
    ]

    result = merge(apart)

    assert result.complete
    assert result.keyed == {group: names for one in apart for group, names in one.keyed.items()}
    parts = [part for one in apart for part in one.operator["@positions"]]
    assert list(result.operator.get("@positions", ())) == parts
    copies = [copy for one in apart for copy in one.broadcast["rules"]]
    assert list(result.broadcast.get("rules", ())) == list(dict.fromkeys(copies))
