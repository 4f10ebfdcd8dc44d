"""The rows that executors and driver hand each other, which all have one layout."""

from __future__ import annotations

from typing import Final

import msgspec

#: ``exit``: the number of an exit, by which a record leaves its fragment, or one of those below.
#: ``part``: the partition of the reader that the row goes to, or the one that it tells of. ``input``: of its head.
#: ``ts``: event time (epoch ms), or the number of a piece.
#: ``place``: where the row stood in what was made, so that equal times have an order.
#: ``payload``: as ``aflow.backfill.exchange`` encodes records.
LAYOUT: Final = "exit int, part int, input int, ts long, place long, payload binary"

#: A piece of the state that a partition of a keyed fragment leaves, if that is not in a file.
STATE: Final = -1
#: What a partition tells of itself, ``StepCounts`` as JSON.
REPORT: Final = -2


class StepCounts(msgspec.Struct, frozen=True):
    """How many records went into each step of a fragment in one partition, and how many came out."""

    fragment: int
    subtask: int
    steps: dict[str, tuple[int, int]]
    exits: dict[int, int]
    """Records that left, by the number of the exit."""
    left_out: int
    """Records at or behind the end of the history."""
    files: dict[int, str] = {}
    """What the partition has written itself, by the number of the exit: the name of a file."""
    state: str = ""
    """The name of the file with what it remembers; empty if there is none."""
