"""A process keeps the state of its tasks, and uses it only if it is the state with which the next task begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from aflow.backfill.kept_state import DueKeys, KeptState
from aflow.backfill.state_cache import IDLE, Chain, StateCache, StateOwner
from aflow.errors import InternalError
from aflow.model.key_groups import KeyGroupRange
from aflow.state.manifest import FileRef, Link
from aflow.state.snapshot import STATES, OperatorSnapshot, replay
from tests.backfill.epoch_tasks import MUCH, rows_of

ROWS, TIMERS = "rows", "@event timers"
OWNER = StateOwner(Path("/stream"), "query", "fragment", KeyGroupRange(0, 64))


def chain(*numbers: int) -> Chain:
    return tuple(Link(FileRef(f"parts/{one}", 1, ""), 0, 64) for one in numbers)


def state(rows: int = 1) -> KeptState:
    some = tuple((b"%d" % key, b"v") for key in range(rows))
    return KeptState(OperatorSnapshot({3: {ROWS: some}}))


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


# The cache


def test_the_state_of_a_chain_is_taken_once() -> None:
    """A task that fails after that leaves no state."""
    cache, kept = StateCache(), state()
    cache.put(OWNER, chain(1, 2), kept, MUCH)

    found = cache.take(OWNER, chain(1, 2))

    assert found is not None
    assert found.state is kept
    assert cache.take(OWNER, chain(1, 2)) is None


def test_the_state_of_an_earlier_epoch_is_used_with_the_parts_that_follow() -> None:
    cache = StateCache()
    cache.put(OWNER, chain(1, 2), state(), MUCH)

    found = cache.take(OWNER, chain(1, 2, 3, 4))

    assert found is not None
    assert found.chain == chain(1, 2)


@pytest.mark.parametrize(
    "committed",
    [chain(1, 3), chain(1, 3, 2), chain(1), chain(3), ()],
    ids=[
        "the attempt did not count",
        "nor in a later epoch",
        "its epoch was not committed",
        "another task has written all state",
        "no state",
    ],
)
def test_the_state_of_another_chain_is_not_used_and_removed(committed: Chain) -> None:
    cache = StateCache()
    cache.put(OWNER, chain(1, 2), state(), MUCH)

    assert cache.take(OWNER, committed) is None
    assert not len(cache)


@pytest.mark.parametrize(
    "other",
    [
        replace(OWNER, fragment="another"),
        replace(OWNER, groups=KeyGroupRange(0, 63)),
        replace(OWNER, folder=Path("/another"), query="another"),
    ],
    ids=["fragment", "key groups", "stream"],
)
def test_the_state_of_another_task_is_not_used_and_stays(other: StateOwner) -> None:
    cache = StateCache()
    cache.put(OWNER, chain(1), state(), MUCH)

    assert cache.take(other, chain(1)) is None
    assert cache.take(OWNER, chain(1)) is not None


def test_a_new_query_over_the_same_folder_removes_the_state_of_the_former_one() -> None:
    cache = StateCache()
    cache.put(OWNER, chain(1), state(), MUCH)

    assert cache.take(replace(OWNER, query="another"), chain(1)) is None
    assert not len(cache)


def test_state_of_another_query_that_was_unused_for_long_is_removed() -> None:
    clock = Clock()
    cache = StateCache(clock)
    other = replace(OWNER, folder=Path("/another"), query="another")
    cache.put(other, chain(1), state(), MUCH)
    clock.seconds = IDLE / 2
    cache.put(OWNER, chain(1), state(), MUCH)

    clock.seconds = IDLE + 1
    cache.take(replace(OWNER, fragment="of the same query"), chain(1))

    assert cache.take(OWNER, chain(1)) is not None
    assert not len(cache)


def test_state_beyond_the_limit_leaves_and_the_least_recently_used_first() -> None:
    cache, size = StateCache(), state(100).size
    owners = [replace(OWNER, fragment=f"{number}") for number in range(3)]
    for owner in owners[:2]:
        cache.put(owner, chain(1), state(100), 2 * size)
    found = cache.take(owners[0], chain(1))
    assert found is not None
    cache.put(owners[0], chain(1), found.state, 2 * size)

    cache.put(owners[2], chain(1), state(100), 2 * size)

    assert cache.size == 2 * size
    assert cache.take(owners[1], chain(1)) is None
    assert cache.take(owners[0], chain(1)) is not None
    cache.put(owners[0], chain(1), state(201), 2 * size)
    assert not len(cache), "one state is too large"


# The state


def at_of(data: bytes) -> tuple[int, ...]:
    return (int(data),)


TIMES = {TIMERS: at_of}
GROUPS = {3: (b"a", b"b", b"c", b"d"), 5: (b"e", b"f")}


def test_changes_of_random_epochs_lead_to_the_state_that_a_reader_finds() -> None:
    random = Random(11)
    whole = [_drawn(random, {group: set(keys) for group, keys in GROUPS.items()})]
    kept = KeptState(whole[0])
    for _ in range(60):
        keys = {
            group: {key for key in some if random.random() < 0.4} for group, some in GROUPS.items()
        }
        begun = kept.selected(keys)
        captured = _drawn(random, keys, begun)

        changes = kept.changes(keys, captured)

        if changes is not None:
            kept.apply(changes, TIMES)
            whole.append(changes)
        assert rows_of(kept.selected(keys)) == rows_of(captured)
        assert rows_of(kept.complete()) == rows_of(replay(whole))
        assert kept.changes(keys, captured) is None
        assert kept.size == KeptState(kept.complete()).size
        assert len(kept) == len(KeptState(kept.complete()))


def _drawn(
    random: Random, keys: dict[int, set[bytes]], before: OperatorSnapshot | None = None
) -> OperatorSnapshot:
    """The whole state of some keys: rows, of which a key may have several, and timers."""
    keyed: dict[int, dict[str, tuple[tuple[bytes, bytes], ...]]] = {}
    for group, some in keys.items():
        rows: dict[bytes, list[tuple[bytes, bytes]]] = {key: [] for key in some}
        for name in (ROWS, "more", TIMERS):
            found: list[tuple[bytes, bytes]] = []
            for key in sorted(rows):
                if before is not None and random.random() < 0.5:
                    found += [
                        one for one in before.keyed.get(group, {}).get(name, ()) if one[0] == key
                    ]
                else:
                    values = random.sample(range(1, 9), random.choice([0, 1, 1, 2]))
                    found += [(key, b"%d" % value) for value in values]
            if found:
                keyed.setdefault(group, {})[name] = tuple(found)
        if group in keyed:
            keyed[group][STATES] = ((b"rows", b"int"),)
    operator = {"@watermark": (b"%d" % random.randrange(3),)}
    return OperatorSnapshot(keyed, operator, members=frozenset([TIMERS]))


def test_captured_state_of_a_key_that_was_not_restored_is_refused() -> None:
    kept = state(2)

    with pytest.raises(InternalError, match="keys that were not restored"):
        kept.changes({3: {b"0"}}, OperatorSnapshot({3: {ROWS: ((b"1", b"v"),)}}))


def test_keys_are_due_at_the_time_of_their_rows() -> None:
    timers = ((b"a", b"10"), (b"a", b"30"), (b"b", b"20"), (b"c", b"40"))
    kept = KeptState(OperatorSnapshot({3: {TIMERS: timers}}, members=frozenset([TIMERS])))
    kept.expect({3: {b"a", b"b", b"c"}}, TIMES, 0)

    assert kept.take_due(9) == {}
    assert kept.take_due(20) == {3: {b"a", b"b"}}
    assert kept.take_due(20) == {}, "expected once"
    gone = OperatorSnapshot(
        replaced={}, removed={3: {TIMERS: ((b"a", b"30"), (b"c", b"40"))}}, members=kept_members()
    )
    changed = kept.apply(gone, TIMES)
    kept.expect({3: {*changed[3], b"b"}}, TIMES, 20)
    assert kept.take_due(100) == {3: {b"a", b"b"}}, "rows of the past are due at once"


def kept_members() -> frozenset[str]:
    return frozenset([TIMERS])


def test_due_keys_are_removed_with_their_times() -> None:
    due = DueKeys()
    for at in range(1000):
        due.add(at, 1, b"a")
        due.add(at, 1, b"b")
    for at in range(1, 1000):
        due.discard(at, 1, b"a")
        due.discard(at, 1, b"b")
    due.discard(5, 2, b"a")
    due.add(7, 2, b"c")

    assert due.take(5) == {1: {b"a", b"b"}}
    assert due.take(1000) == {2: {b"c"}}
