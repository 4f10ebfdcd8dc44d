"""Start of a backfill from the savepoint that an earlier one left.

Theory. A backfill up to T1 leaves a savepoint with the state of its keyed steps at T1 and, in the state of each step
that assigns timestamps to the records of a source, T1 itself (``aflow.operators.handover``). A live job continues from
it, and so does a backfill: it takes the records from T1 on, by the same timestamps, and its keyed steps begin with that
state. So history up to T2 in two runs equals history up to T2 in one.

Time needs no state of its own. The watermark of a step stopped at T1 minus the margins of its fragment; records of the
next run are not older than T1 minus ``end_margin``, and each is preceded by the watermark of its own time minus
``watermark_lag``. So no record is late, whatever has fired fired before it, and restored windows and timers fire in
their order, also in a partition without records, whose watermark advances at its end.

The driver calls ``read_continuation`` once. It reads each part, one at a time, and refuses what cannot be restored, by
the rules of a live job, before anything runs. Each task then reads the parts that overlap its key groups
(``StepFiles.read``): any number of former partitions is divided among any number of new ones. The two halves are
independent: a caller that has just written a savepoint itself needs ``StepFiles`` alone.

The savepoint of a live job has positions of its sources instead of a moment: rows of a table have no such positions, so
the caller has to say that the rows are those which the job has not read. See ``live_savepoint``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from aflow.backfill.contents import newest_manifest
from aflow.backfill.fragment_run import StateReader
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.live_savepoint import (
    LiveCalls,
    LiveSavepoint,
    LiveState,
    first_of_live_job,
    live_state,
)
from aflow.backfill.savepoint_steps import ReadStep, prepared_output, read_steps
from aflow.connect import Committable
from aflow.errors import FlowDefinitionError, RestoreError, readable
from aflow.graph.declared_steps import declared_step
from aflow.graph.flow_graph import FlowGraph
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import Timestamp
from aflow.operators.handover import handed_over
from aflow.runtime.checkpoints.directory.files import DISK
from aflow.runtime.checkpoints.directory.paths import local_folder
from aflow.runtime.checkpoints.directory.reader import ReadSource, clip_to_groups, read_chain
from aflow.runtime.checkpoints.settings import check_bool
from aflow.state.change_plan import ChangePlan, change_plan
from aflow.state.manifest import Manifest, SubtaskState
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot, merge

Restore: TypeAlias = str | PathLike[str] | LiveSavepoint
"""The savepoint of a backfill or of a stream, by its path, or that of a live job."""


@dataclass(frozen=True, slots=True)
class StepFiles:
    """Stored state of one step, as parts of a savepoint. Plain data, which can be sent to another process."""

    folder: Path
    step: str
    subtasks: tuple[SubtaskState, ...]
    changes: ChangePlan
    """The change of each state, if the flow was changed."""

    def read_ahead(self, groups: KeyGroupRange) -> StateReader:
        """Read as ``read`` does, and return a function that returns the state once and then does not hold it."""
        return [self.read(groups)].pop

    def read(self, groups: KeyGroupRange) -> OperatorSnapshot:
        """Return the state of ``groups``; blocks. Raises ``RestoreError`` if a file is missing or damaged.

        Only the files with state of these key groups are read.
        """
        source = ReadSource(DISK, self.folder)
        clipped = (clip_to_groups(one, groups) for one in self.subtasks)
        with wrap_read_errors(f"the state of step {self.step!r} in {self.folder}"):
            merged = merge(read_chain(self.step, one.chain, source) for one in clipped if one.chain)
            return self.changes.without_dropped(self.step, merged)


@dataclass(frozen=True, slots=True)
class Continuation:
    """A checked savepoint from which a backfill of a flow continues."""

    folder: Path
    """Absolute."""
    manifest: Manifest
    begins: Timestamp | None
    """End of the earlier history (epoch ms): the first moment of this one. None: a live job has skipped no records."""
    changes: ChangePlan
    prepared: Mapping[str, Sequence[tuple[int, Committable]]]
    """Output that was prepared for each sink, with the number of its savepoint. It may be committed already."""
    live: LiveState | None = None
    """For the savepoint of a live job; None for that of a backfill or a stream."""

    @property
    def number(self) -> int:
        """Return the number of the next savepoint."""
        return self.manifest.id + 1

    def files_of(self, step: str) -> StepFiles | None:
        """Return the stored state of ``step``; None for a new step."""
        for one in self.manifest.steps:
            if one.name == step:
                return StepFiles(self.folder, step, one.subtasks, self.changes)
        return None

    def calls_in(self, fragment: Fragment) -> LiveCalls:
        """Return the calls that were under way in a fragment, by step, except those of its keyed head."""
        return {} if self.live is None else self.live.calls.get(fragment.index, {})

    @property
    def has_calls(self) -> bool:
        """True if calls were under way."""
        return self.live is not None and bool(self.live.calls)

    def check_until(self, until: Timestamp | None) -> None:
        """Raise ``FlowDefinitionError`` unless the history ends after it begins; ``until`` is epoch ms."""
        if until is None:
            return
        if self.begins is not None and until <= self.begins:
            raise FlowDefinitionError(
                f"until= is {readable(until)}, and the savepoint in {self.folder} has processed everything before "
                f"{readable(self.begins)}: give a later moment"
            )
        newest = None if self.live is None else self.live.newest
        if newest is not None and until <= newest:
            raise FlowDefinitionError(
                f"until= is {readable(until)}, and the live job that wrote {self.folder} has processed records up to "
                f"{readable(newest)}, which would be processed again by what follows: give a later moment"
            )


def read_continuation(
    restore: Restore,
    graph: FlowGraph,
    plan: FragmentPlan,
    *,
    allow_dropped_state: bool = False,
) -> Continuation:
    """Return the savepoint ``restore``, checked against the flow; blocks, and reads all parts one after the other.

    A path is a folder, its manifest, or a ``file:`` URI. Raises ``FlowDefinitionError`` for an invalid path, and
    ``RestoreError`` for files that are missing or damaged, for another flow or number of key groups, for a savepoint
    of the other kind, and for state that cannot be read, or that would be lost without permission.
    """
    manifest, folder = newest_manifest(folder_of(restore))
    if manifest.flow != plan.flow:
        raise RestoreError(
            f"the savepoint in {folder} is of flow {manifest.flow!r}, and this flow is {plan.flow!r}"
        )
    if manifest.key_groups != plan.key_groups:
        raise RestoreError(
            f"the keys in {folder} are stored in {manifest.key_groups} key groups, and this backfill has "
            f"{plan.key_groups}: pass key_groups={manifest.key_groups}"
        )
    if not plan.cuts:
        raise FlowDefinitionError(
            f"flow {plan.flow!r} has no event_time(…), so nothing tells which records a savepoint has processed already"
        )
    steps = {one.step.name: one for one in read_steps(manifest, folder)}
    _check_kind(restore, folder, first_of_live_job(steps))
    if isinstance(restore, LiveSavepoint):
        changes = _checked_changes(steps.values(), graph, allow_dropped_state=allow_dropped_state)
        live = live_state(folder, graph, plan, steps)
        begins = live.begins
    else:
        live, begins = None, _start_moment(folder, plan, steps)
        changes = _checked_changes(steps.values(), graph, allow_dropped_state=allow_dropped_state)
    prepared = prepared_output(plan.sinks, steps)
    return Continuation(folder, manifest, begins, changes, prepared, live)


def folder_of(restore: Restore) -> Path:
    """Return the absolute path of a savepoint. Raises ``FlowDefinitionError`` for an invalid path of a local folder."""
    if isinstance(restore, LiveSavepoint):
        return restore.folder
    return Path.cwd() / local_folder(restore, "restore")


def _check_kind(restore: Restore, folder: Path, of_live_job: str | None) -> None:
    """Raise ``RestoreError`` for a savepoint of the other kind; ``of_live_job`` is a step that only a live job has."""
    if isinstance(restore, LiveSavepoint):
        if of_live_job is None:
            raise RestoreError(
                f"the savepoint in {folder} is of one moment of event time, as those of backfills and streams are, and "
                f"LiveSavepoint is for those of live jobs: pass the path itself"
            )
    elif of_live_job is not None:
        raise RestoreError(
            f"{folder} is a savepoint or checkpoint of a live job: step {of_live_job!r} has the progress of its "
            f"sources, which nothing says of rows. If the rows of each source are exactly the records that the job has "
            f"not read, pass restore=LiveSavepoint(path)"
        )


def changes_since(
    manifest: Manifest, folder: Path, graph: FlowGraph, *, allow_dropped_state: bool = False
) -> ChangePlan:
    """Return the change of each state in ``manifest`` if the flow continues from it; blocks.

    Reads all parts, one after the other. Raises ``RestoreError`` for files that are missing or damaged, and for state
    that cannot be read, or that would be lost without permission.
    """
    return _checked_changes(
        read_steps(manifest, folder), graph, allow_dropped_state=allow_dropped_state
    )


def _checked_changes(
    steps: Iterable[ReadStep], graph: FlowGraph, *, allow_dropped_state: bool
) -> ChangePlan:
    changes = change_plan(
        [one.contents for one in steps], [declared_step(node, 1) for node in graph]
    )
    changes.check(allow_dropped_state=allow_dropped_state)
    return changes


def start_of_history(
    restore: Restore | None,
    graph: FlowGraph,
    plan: FragmentPlan,
    *,
    allow_dropped_state: bool,
) -> Continuation | None:
    """Return the savepoint at ``restore`` as ``read_continuation`` does; None without one, at the beginning of history.

    Raises ``FlowDefinitionError`` for a permission that has no effect.
    """
    check_bool(allow_dropped_state, "allow_dropped_state")
    if restore is not None:
        return read_continuation(restore, graph, plan, allow_dropped_state=allow_dropped_state)
    if allow_dropped_state:
        raise FlowDefinitionError(
            "allow_dropped_state=True permits the loss of restored state, and nothing is restored: give restore= too, "
            "or leave it out"
        )
    return None


def _start_moment(folder: Path, plan: FragmentPlan, steps: Mapping[str, ReadStep]) -> Timestamp:
    """Return the moment at which all sources continue. Raises ``RestoreError`` unless a backfill has stored it."""
    moments: dict[Timestamp, str] = {}
    for name in sorted(plan.cuts):
        found = steps.get(name)
        begins = None if found is None else handed_over(found.of_operator, name)
        if found is None or begins is None:
            raise RestoreError(
                f"the savepoint in {folder} does not say where step {name!r} begins: it is new in the flow, or was "
                f"renamed, or no backfill wrote the savepoint; name the step as before, or run the backfill over all "
                f"of history"
            )
        moments[begins] = name
    if len(moments) > 1:
        listed = " and ".join(f"{name!r} at {readable(at)}" for at, name in moments.items())
        raise RestoreError(f"the savepoint in {folder} begins at several moments: {listed}")
    return next(iter(moments))
