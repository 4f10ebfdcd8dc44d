"""State of a running stream of micro-batches: its last committed epoch, and the manifest of the next one.

The engine runs the fragments of an epoch and prepares its output. ``EpochState`` decides the watermarks of the epoch
and the state with which each fragment begins, and commits the result. All methods block.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aflow.backfill.continuation import Continuation, StepFiles
from aflow.backfill.epoch_time import EpochTime, EpochWatermarks, SourceActivity
from aflow.backfill.epochs import (
    EpochPart,
    EpochStore,
    decoded_output,
    encoded_output,
    next_steps,
)
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.savepoint import StatePart, encoded_part, write_savepoint
from aflow.connect import Committable
from aflow.model.key_groups import ranges
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.state.change_plan import ChangePlan
from aflow.state.manifest import Manifest, StreamPosition


@dataclass(slots=True, kw_only=True)
class EpochState:
    """The last committed epoch of a stream, which one driver holds."""

    plan: FragmentPlan
    time: EpochTime
    store: EpochStore
    last: Manifest
    is_new: bool
    """True if ``last`` is not committed yet: it is the first epoch, in which nothing was processed."""
    start: Continuation | None
    """Savepoint that the first epoch with records reads; None after it, and without one."""
    changes: ChangePlan
    """Changes of the flow since ``last``."""
    savepoint: Path | None
    #: True once the savepoint is written.
    is_finished: bool = False
    _activity: SourceActivity = field(init=False)

    def __post_init__(self) -> None:
        self._activity = SourceActivity(self.time, _steady())

    @property
    def position(self) -> StreamPosition:
        assert self.last.stream is not None
        return self.last.stream

    @property
    def watermark(self) -> Timestamp | None:
        """The watermark (epoch ms) at the end of the last epoch; None before any."""
        at = self.position.watermark
        return None if at == MIN_TIMESTAMP else at

    @property
    def size(self) -> int:
        """Bytes of the stored state."""
        return sum(file.size for file in self.last.files)

    def watermarks(self, cut: Timestamp | None = None) -> EpochWatermarks:
        """Return the watermarks of the next epoch, which holds back records from ``cut`` (epoch ms) on."""
        before, idle = self.position.watermark, self._activity.idle(_steady())
        after = self.time.after(before, self.position.earned, idle)
        return EpochWatermarks(before, after if cut is None else max(before, min(after, cut - 1)))

    def can_advance(self, cut: Timestamp | None = None) -> bool:
        """Return True if an epoch without records, which holds back those from ``cut`` on, would advance time."""
        watermarks = self.watermarks(cut)
        return not self.is_finished and watermarks.after > watermarks.before

    def files_of(self, fragment: Fragment) -> StepFiles | None:
        """Return the state with which a fragment begins; None if it has none."""
        if not fragment.keyed:
            return None
        if self.start is not None:
            return self.start.files_of(fragment.head.name)
        return self.store.files_of(self.last, fragment.head.name, self.changes)

    def output_of(self, sink: str) -> list[Committable]:
        """Return the output of a sink that the last epoch names; in the first one, that of the savepoint."""
        if self.is_new and self.start is not None:
            return [one for _, one in self.start.prepared.get(sink, ())]
        return decoded_output(self.last, sink)

    def begin(self, output: Mapping[str, Sequence[Committable]]) -> None:
        """Begin with ``output``, which names the restored state of each sink, and commit the first epoch if it is new.

        Raises ``CheckpointError``.
        """
        self.last = replace(self.last, stream=replace(self.position, prepared=_encoded(output)))
        if self.is_new:
            self.store.commit(self.last)
            self.is_new = False

    def commit(
        self,
        watermarks: EpochWatermarks,
        parts: Iterable[EpochPart],
        newest: Iterable[Mapping[str, Timestamp]],
        output: Mapping[str, Sequence[Committable]],
        *,
        batch: int | None,
        subtasks: int,
        cut: Timestamp | None = None,
        held: tuple[str, ...] = (),
    ) -> None:
        """Commit the next epoch.

        ``newest`` has the newest timestamps that the partitions have assigned, by step. ``held`` names the rows with
        the records from ``cut`` on, which wait for a savepoint. Raises ``CheckpointError`` for missing or duplicate
        parts, and if writing fails.
        """
        found: dict[str, Timestamp] = {}
        for some in newest:
            for step, at in some.items():
                found[step] = max(at, found.get(step, MIN_TIMESTAMP))
        self._activity.observe(found, _steady())
        position, now = self.position, time.time_ns() // 1_000_000
        known = [at for at in (position.newest, *found.values()) if at is not None]
        manifest = replace(
            self.last,
            id=self.last.id + 1,
            created_at=now,
            completed_at=now,
            steps=next_steps(
                self.last.steps,
                parts,
                {one.head.name: one.head.what for one in self.plan.fragments if one.keyed},
                subtasks=subtasks,
                key_groups=self.plan.key_groups,
            ),
            stream=replace(
                position,
                batch=batch,
                watermark=watermarks.after,
                earned=self.time.earned(position.earned, found),
                newest=max(known, default=None),
                prepared=_encoded(output),
                cut=cut,
                held=held,
            ),
        )
        self.store.commit(manifest)
        self.last, self.start, self.changes = manifest, None, ChangePlan()

    def finish(self, subtasks: int) -> None:
        """Write the savepoint, unless that was done, if the watermark has come to the end of the stream.

        Raises ``CheckpointError``.
        """
        position, until = self.position, self.position.until
        if self.savepoint is None or until is None or position.watermark < until - 1:
            return
        # It appears at once, when it is complete. A driver that was killed may have written it.
        if not self.savepoint.exists():
            self.write_savepoint(self.savepoint, until, subtasks)
        self.is_finished = True

    def write_savepoint(self, path: Path, until: Timestamp, subtasks: int) -> None:
        """Write the state as a savepoint of the moment ``until`` (epoch ms) to the new folder ``path``.

        All records before it are in the state, and no others. Raises ``CheckpointError``.
        """
        write_savepoint(
            path,
            self.plan,
            self._parts(subtasks),
            until=until,
            created_at=time.time_ns() // 1_000_000,
            number=self.last.id + 1,
            prepared={
                sink: [(self.last.id, one) for one in self.output_of(sink)]
                for sink in self.position.prepared
            },
        )

    def _parts(self, subtasks: int) -> Iterator[StatePart]:
        for fragment in self.plan.fragments:
            if not fragment.keyed:
                continue
            files = self.files_of(fragment)
            for subtask, groups in enumerate(ranges(self.plan.key_groups, subtasks)):
                state = {} if files is None else {fragment.head.name: files.read(groups)}
                yield StatePart(fragment, subtask, subtasks, encoded_part(state))


def _steady() -> int:
    """Return the milliseconds of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


def _encoded(output: Mapping[str, Sequence[Committable]]) -> dict[str, tuple[bytes, ...]]:
    return {sink: encoded_output(sink, some) for sink, some in output.items() if some}
