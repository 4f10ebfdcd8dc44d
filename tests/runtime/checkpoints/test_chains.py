"""The parts that a checkpoint of a subtask refers to."""

from __future__ import annotations

from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.chains import LONG, SubtaskChains
from aflow.state.manifest import FileRef, Link
from aflow.state.snapshot import OperatorSnapshot

COMPLETE = OperatorSnapshot()
CHANGES = OperatorSnapshot(replaced={})


def file(number: int, size: int = 100) -> FileRef:
    return FileRef(f"parts/{number}", size, "")


def link(number: int, size: int = 100) -> Link:
    return Link(file(number, size), 0, 128)


def chains() -> SubtaskChains:
    return SubtaskChains(KeyGroupRange(0, 128), incremental=True)


def test_the_first_part_of_a_step_must_be_complete() -> None:
    mine = chains()

    assert not mine.changes_do("sums")

    mine.stored(file(1), {"sums": COMPLETE})
    assert mine.changes_do("sums")


def test_changes_are_added_to_the_chain_and_a_complete_part_begins_it_anew() -> None:
    mine = chains()
    mine.stored(file(1), {"sums": COMPLETE, "other": COMPLETE})

    mine.stored(file(2), {"sums": CHANGES, "other": COMPLETE})

    assert mine.now(["sums", "other"]) == {"sums": (link(1), link(2)), "other": (link(2),)}


def test_after_a_loss_everything_begins_anew() -> None:
    mine = chains()
    mine.stored(file(1), {"sums": COMPLETE})

    mine.lost()

    assert not mine.changes_do("sums")
    assert mine.losses == 1


def test_a_chain_becomes_long_by_number_or_by_weight() -> None:
    many, heavy = chains(), chains()
    many.stored(file(0, 10_000), {"sums": COMPLETE})
    heavy.stored(file(0, 100), {"sums": COMPLETE})

    for number in range(1, LONG + 1):
        many.stored(file(number, 1), {"sums": CHANGES})
    for number in range(1, 5):
        heavy.stored(file(number, 50), {"sums": CHANGES})

    assert many.chains["sums"].long
    assert heavy.chains["sums"].long


def test_a_compacted_chain_keeps_parts_that_were_added_meanwhile() -> None:
    mine = chains()
    mine.stored(file(1), {"sums": COMPLETE})
    mine.stored(file(2), {"sums": CHANGES})
    former = mine.now(["sums"])["sums"]
    mine.stored(file(3), {"sums": CHANGES})

    mine.compacted("sums", former, file(9))

    assert mine.now(["sums"])["sums"] == (link(9), link(3))


def test_a_chain_that_was_restarted_meanwhile_is_not_changed() -> None:
    mine = chains()
    mine.stored(file(1), {"sums": COMPLETE})
    former = mine.now(["sums"])["sums"]
    mine.stored(file(2), {"sums": COMPLETE})

    mine.compacted("sums", former, file(9))

    assert mine.now(["sums"])["sums"] == (link(2),)


def test_without_incremental_checkpoints_every_part_is_complete() -> None:
    mine = SubtaskChains(KeyGroupRange(0, 128), incremental=False)

    mine.stored(file(1), {"sums": COMPLETE})

    assert not mine.changes_do("sums")
