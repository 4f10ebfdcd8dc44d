"""The restores of a sink's lineage of runs, in a hidden object of its folder.

Theory. A restore of checkpoint R removes the output of later checkpoints. A later checkpoint C of a run that began
before that restore must not be restored afterwards: its output is incomplete, and a checkpoint without records names no
object that could be missed. So runs are numbered: a fresh run is 0, and each restore begins the next one. The object
lists each run with its restored checkpoint, and a committable has the number of its run. C of run r may be restored if
no run after r began from a checkpoint before C.

A restore of R makes the entries of runs that began from R or a later checkpoint superfluous: whatever they refuse, the
new entry refuses. So the checkpoints of the list increase, and an attempt that fails again and again adds one entry.

An object that a rule of the bucket removed is as an empty one: the numbers of runs go on from that of the committable.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, cast

from aflow.checkpoints import BucketError, NoObject
from aflow_connectors.s3.bucket import Bucket

_FOLDER: Final = ".restores"
#: Bytes of the largest list that is read: more than 100,000 restores.
_MOST: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class RestoreLog:
    """The runs of an owner that began with a restore: their numbers and restored checkpoints, oldest first.

    Invariant: numbers and checkpoints increase strictly.
    """

    runs: tuple[tuple[int, int], ...] = ()

    def withdrawn_down_to(self, checkpoint: int, *, run: int) -> int | None:
        """Return the checkpoint whose restore has removed output that ``checkpoint`` of ``run`` needs, if any."""
        return next(
            (restored for number, restored in self.runs if number > run and restored < checkpoint),
            None,
        )

    def restored(self, checkpoint: int, *, run: int) -> tuple[RestoreLog, int]:
        """Return the log with a new run, which begins from ``checkpoint`` of ``run``, and the number of the new run."""
        newest = max((number for number, _ in self.runs), default=0)
        new = max(newest, run) + 1
        kept = tuple(one for one in self.runs if one[1] < checkpoint)
        return RestoreLog((*kept, (new, checkpoint))), new

    @classmethod
    def read(cls, bucket: Bucket, owner: str) -> RestoreLog:
        """Read the log of ``owner``. Raises ``BucketError``, also for an object with other content."""
        key = _key(owner)
        try:
            data, _ = bucket.read(key, limit=_MOST)
        except NoObject:
            return cls()
        try:
            rows = cast("object", json.loads(data))
        except ValueError:
            rows = None
        runs: list[tuple[int, int]] = []
        for row in cast("list[object]", rows) if isinstance(rows, list) else [rows]:
            match row:
                case [int(number), int(checkpoint)]:
                    runs.append((number, checkpoint))
                case _:
                    raise BucketError(f"{bucket.shown(key)} is damaged: it is no list of restores")
        return cls(tuple(runs))

    def write(self, bucket: Bucket, owner: str) -> None:
        """Replace the log of ``owner``. Raises ``BucketError``."""
        bucket.write(_key(owner), [json.dumps(self.runs).encode()])


def _key(owner: str) -> str:
    return f"{_FOLDER}/{owner}.json"
