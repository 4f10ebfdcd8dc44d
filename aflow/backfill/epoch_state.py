"""State of a running stream of micro-batches: its last committed epoch, and the manifest of the next one.

The engine runs the fragments of an epoch and prepares its output. ``EpochState`` decides the watermarks of the epoch
and the state with which each fragment begins, and commits the result. All methods block.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aflow.backfill.contents import newest_manifest
from aflow.backfill.continuation import Continuation, StepFiles
from aflow.backfill.epoch_time import BySplit, EpochTime, SourceActivity, StreamWatermarks
from aflow.backfill.epochs import (
    EpochPart,
    EpochStore,
    decoded_output,
    encoded_output,
    next_steps,
)
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.live_savepoint import LiveCalls
from aflow.backfill.savepoint import StatePart, encoded_part, write_savepoint
from aflow.connect import Committable
from aflow.errors import CheckpointError, RestoreError
from aflow.model.elements import CheckpointKind
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
        self._activity = SourceActivity(self.time, _steady(), self.position.splits)

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

    def watermarks(
        self, *, waited: int | None = None, cut: Timestamp | None = None
    ) -> StreamWatermarks:
        """Return the watermarks of the next epoch, which holds back records from ``cut`` (epoch ms) on.

        It has the rows of a batch if ``waited`` is None. Otherwise the engine has found no rows when it last looked for
        them, at most ``waited`` ms ago.
        """
        now, position = _steady(), self.position
        activity = self._activity.at(now, None if waited is None else now - waited)
        watermarks = self.time.watermarks(
            position.watermark,
            position.watermarks,
            position.earned,
            activity,
            splits=position.splits,
        )
        return watermarks if cut is None else watermarks.before(cut)

    def can_advance(self, *, waited: int = 0, cut: Timestamp | None = None) -> bool:
        """Return True if an epoch without records would advance a watermark, or end calls of a live job.

        Arguments are those of ``watermarks``.
        """
        if self.is_finished:
            return False
        has_calls = self.start is not None and self.start.has_calls
        return has_calls or self.watermarks(waited=waited, cut=cut).advance

    def files_of(self, fragment: Fragment) -> StepFiles | None:
        """Return the state with which a fragment begins; None if it has none."""
        if not fragment.keyed:
            return None
        if self.start is not None:
            return self.start.files_of(fragment.head.name)
        return self.store.files_of(self.last, fragment.head.name, self.changes)

    def calls_in(self, fragment: Fragment) -> LiveCalls:
        """Return the calls of a live job with which a fragment begins, by step."""
        return {} if self.start is None else self.start.calls_in(fragment)

    @property
    def sinks_with_output(self) -> list[str]:
        """The names of all sinks whose output ``output_of`` returns, also of those that the flow no longer has."""
        if self.is_new and self.start is not None:
            return sorted(self.start.prepared)
        return sorted(self.position.prepared)

    def output_of(self, sink: str) -> list[Committable]:
        """Return the output of a sink that the last epoch names; in the first one, that of the savepoint."""
        if self.is_new and self.start is not None:
            return [one for _, one in self.start.prepared.get(sink, ())]
        return decoded_output(self.last, sink)

    def begin(self, output: Mapping[str, Sequence[Committable]]) -> None:
        """Begin with ``output``, which names the restored state of each sink, and commit the first epoch if it is new.

        It is also committed again if it does not name the output of a sink that was added since, whose owner a later
        query could not know otherwise. Raises ``CheckpointError``.
        """
        begun = replace(self.last, stream=replace(self.position, prepared=_encoded(output)))
        if self.is_new or begun != self.last:
            self.store.commit(begun)
            self.last = begun
            self.is_new = False

    def commit(
        self,
        watermarks: StreamWatermarks,
        parts: Iterable[EpochPart],
        newest: Iterable[Mapping[str, Timestamp]],
        output: Mapping[str, Sequence[Committable]],
        *,
        batch: int | None,
        subtasks: int,
        entries: int | None = None,
        splits: Iterable[BySplit] = (),
        cut: Timestamp | None = None,
        held: tuple[str, ...] = (),
    ) -> None:
        """Commit the next epoch.

        ``newest`` has the newest timestamps that the partitions have assigned, by step, and ``splits`` the same of each
        split. ``entries`` is the number of values in the state. ``held`` names the rows with the records from ``cut``
        on, which wait for a savepoint. Raises ``CheckpointError`` for missing or duplicate parts, and if writing fails.
        """
        found = _newest_of_all(newest)
        in_splits = self._newest_by_split(splits)
        position, now = self.position, time.time_ns() // 1_000_000
        by_split = self.time.earned_by_split(position.splits, in_splits)
        arrived = [(step, split) for step, some in in_splits.items() for split in some]
        earned = self.time.over_splits(
            self.time.earned(watermarks.earned, found),
            by_split,
            watermarks.activity.idle_splits.difference(arrived),
        )
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
                watermark=watermarks.stream.after,
                watermarks={step: one.after for step, one in watermarks.steps.items()},
                earned=earned,
                splits=by_split,
                newest=max(known, default=None),
                prepared=_encoded(output),
                entries=entries,
                cut=cut,
                held=held,
            ),
        )
        self.store.commit(manifest)
        self.last, self.start, self.changes = manifest, None, ChangePlan()
        self._activity.on_epoch(watermarks, earned, found.keys(), _steady(), splits=in_splits)

    def _newest_by_split(self, partitions: Iterable[BySplit]) -> dict[str, dict[str, Timestamp]]:
        found = {step: dict[str, Timestamp]() for step in self.time.split_steps}
        for by_step in partitions:
            for step in by_step.keys() & found.keys():
                _keep_newest(found[step], by_step[step])
        return found

    def finish(self, subtasks: int) -> None:
        """Write the savepoint, unless that was done, if the watermark has come to the end of the stream.

        Raises ``CheckpointError``.
        """
        position, until = self.position, self.position.until
        if self.savepoint is None or until is None or position.watermark < until - 1:
            return
        # It appears at once, when it is complete. A driver that was killed may have written it.
        if self.savepoint.exists():
            self._check_own(self.savepoint)
        else:
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

    def _check_own(self, folder: Path) -> None:
        """Raise ``CheckpointError`` unless ``folder`` has the savepoint of the last epoch."""
        try:
            found, _ = newest_manifest(folder)
        except RestoreError as exc:
            raise CheckpointError(f"the savepoint of the stream cannot be written: {exc}") from exc
        own = (CheckpointKind.SAVEPOINT, self.plan.flow, self.plan.key_groups, self.last.id + 1)
        if (found.kind, found.flow, found.key_groups, found.id) != own:
            raise CheckpointError(
                f"{folder} has another savepoint than that of this stream, of flow {found.flow!r} with number "
                f"{found.id}: give savepoint= a new folder"
            )

    def _parts(self, subtasks: int) -> Iterator[StatePart]:
        for fragment in self.plan.fragments:
            if not fragment.keyed:
                continue
            files = self.files_of(fragment)
            for subtask, groups in enumerate(ranges(self.plan.key_groups, subtasks)):
                state = {} if files is None else {fragment.head.name: files.read(groups)}
                yield StatePart(fragment, subtask, subtasks, encoded_part(state))


def _newest_of_all(partitions: Iterable[Mapping[str, Timestamp]]) -> dict[str, Timestamp]:
    found: dict[str, Timestamp] = {}
    for some in partitions:
        _keep_newest(found, some)
    return found


def _keep_newest(found: dict[str, Timestamp], some: Mapping[str, Timestamp]) -> None:
    for name, at in some.items():
        found[name] = max(at, found.get(name, MIN_TIMESTAMP))


def _steady() -> int:
    """Return the milliseconds of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


def _encoded(output: Mapping[str, Sequence[Committable]]) -> dict[str, tuple[bytes, ...]]:
    return {sink: encoded_output(sink, some) for sink, some in output.items() if some}
