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

Only the savepoint of a backfill is accepted. That of a live job has positions of its sources instead of a moment: rows
of a table have no such positions, so nothing says which of them are processed already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from aflow.backfill.contents import newest_manifest
from aflow.backfill.fragment_run import StateReader
from aflow.backfill.fragments import FragmentPlan
from aflow.connect import Committable
from aflow.errors import FlowDefinitionError, RestoreError, readable
from aflow.graph.declared_steps import declared_step
from aflow.graph.flow_graph import FlowGraph
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import Timestamp
from aflow.operators.handover import BEGINS, handed_over
from aflow.runtime.checkpoints.directory.files import DISK
from aflow.runtime.checkpoints.directory.paths import local_folder
from aflow.runtime.checkpoints.directory.reader import ReadSource, clip_to_groups, read_chain
from aflow.runtime.checkpoints.sections import IN_FLIGHT, PROGRESS, WAITING, read_committables
from aflow.runtime.checkpoints.settings import check_bool
from aflow.state.change_plan import ChangePlan, StepContents, StoredStep, change_plan
from aflow.state.manifest import Manifest, StepState, SubtaskState
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot, merge

#: State of live jobs that has no meaning over history, by the reason.
_LIVE_ONLY: Final = {
    PROGRESS: "it has read its source up to positions that rows of a table do not have",
    IN_FLIGHT: "records were on their way to it",
    WAITING: "records were on their way to it",
}


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
    begins: Timestamp
    """End of the earlier history (epoch ms): the first moment of this one."""
    changes: ChangePlan
    prepared: Mapping[str, Sequence[tuple[int, Committable]]]
    """Output that was prepared for each sink, with the number of its savepoint. It may be committed already."""

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

    def check_until(self, until: Timestamp | None) -> None:
        """Raise ``FlowDefinitionError`` unless the history ends after it begins; ``until`` is epoch ms."""
        if until is not None and until <= self.begins:
            raise FlowDefinitionError(
                f"until= is {readable(until)}, and the savepoint in {self.folder} has processed everything before "
                f"{readable(self.begins)}: give a later moment"
            )


def read_continuation(
    path: str | PathLike[str],
    graph: FlowGraph,
    plan: FragmentPlan,
    *,
    allow_dropped_state: bool = False,
) -> Continuation:
    """Return the savepoint at ``path``, checked against the flow; blocks, and reads all parts one after the other.

    ``path`` is a folder, its manifest, or a ``file:`` URI. Raises ``FlowDefinitionError`` for an invalid path, and
    ``RestoreError`` for files that are missing or damaged, for another flow or number of key groups, for a checkpoint
    of a live job, and for state that cannot be read, or that would be lost without permission.
    """
    manifest, folder = newest_manifest(Path.cwd() / local_folder(path, "restore"))
    if manifest.flow != plan.flow:
        raise RestoreError(
            f"the savepoint in {folder} is of flow {manifest.flow!r}, and this flow is {plan.flow!r}"
        )
    if manifest.key_groups != plan.key_groups:
        raise RestoreError(
            f"the keys in {folder} are stored in {manifest.key_groups} key groups, and this backfill has "
            f"{plan.key_groups}: pass key_groups={manifest.key_groups}"
        )
    steps = {one.step.name: one for one in _read_steps(manifest, folder)}
    begins = _start_moment(folder, plan, steps)
    changes = _checked_changes(steps.values(), graph, allow_dropped_state=allow_dropped_state)
    return Continuation(folder, manifest, begins, changes, _prepared(plan, steps))


def changes_since(
    manifest: Manifest, folder: Path, graph: FlowGraph, *, allow_dropped_state: bool = False
) -> ChangePlan:
    """Return the change of each state in ``manifest`` if the flow continues from it; blocks.

    Reads all parts, one after the other. Raises ``RestoreError`` for files that are missing or damaged, and for state
    that cannot be read, or that would be lost without permission.
    """
    return _checked_changes(
        _read_steps(manifest, folder), graph, allow_dropped_state=allow_dropped_state
    )


def _checked_changes(
    steps: Iterable[_ReadStep], graph: FlowGraph, *, allow_dropped_state: bool
) -> ChangePlan:
    changes = change_plan(
        [one.contents for one in steps], [declared_step(node, 1) for node in graph]
    )
    changes.check(allow_dropped_state=allow_dropped_state)
    return changes


def start_of_history(
    restore: str | PathLike[str] | None,
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


@dataclass(frozen=True, slots=True)
class _ReadStep:
    """A step of a savepoint that was read and checked, without its keyed state."""

    step: StepState
    contents: StoredStep
    of_operator: OperatorSnapshot


def _read_steps(manifest: Manifest, folder: Path) -> Iterator[_ReadStep]:
    """Yield the steps, with one part in memory at a time. Raises ``RestoreError`` for one of a live job."""
    source = ReadSource(DISK, folder)
    for step in manifest.steps:
        contents = StepContents(step)
        operator: list[OperatorSnapshot] = []
        with wrap_read_errors(f"the state of step {step.name!r} in {folder}"):
            for one in step.subtasks:
                state = read_chain(step.name, one.chain, source)
                contents.add(state)
                operator.append(state.restricted_to(()))
        merged = merge(operator)
        for name in merged.operator:
            if name in _LIVE_ONLY:
                raise _of_live_job(folder, step.name, _LIVE_ONLY[name])
        yield _ReadStep(step, contents.stored(), merged)


def _prepared(
    plan: FragmentPlan, steps: Mapping[str, _ReadStep]
) -> dict[str, Sequence[tuple[int, Committable]]]:
    """Return the prepared output of sinks of the flow; that of a removed sink is dropped like its state."""
    sinks = plan.sinks
    found = (
        (name, read_committables(name, steps[name].of_operator)) for name in steps if name in sinks
    )
    return {name: some for name, some in found if some}


def _start_moment(folder: Path, plan: FragmentPlan, steps: Mapping[str, _ReadStep]) -> Timestamp:
    """Return the moment at which all sources continue. Raises ``RestoreError`` unless a backfill has stored it."""
    moments: dict[Timestamp, str] = {}
    if not plan.cuts:
        raise FlowDefinitionError(
            f"flow {plan.flow!r} has no event_time(…), so nothing tells which records a savepoint has processed already"
        )
    for name in sorted(plan.cuts):
        found = steps.get(name)
        begins = None if found is None else handed_over(found.of_operator, name)
        if found is None or begins is None:
            raise RestoreError(
                f"the savepoint in {folder} does not say where step {name!r} begins: it is new in the flow, or was "
                f"renamed, or no backfill wrote the savepoint; name the step as before, or run the backfill over all "
                f"of history"
            )
        if set(found.of_operator.operator) != {BEGINS}:
            raise _of_live_job(folder, name, "it has watermarks of the splits of its source")
        moments[begins] = name
    if len(moments) > 1:
        listed = " and ".join(f"{name!r} at {readable(at)}" for at, name in moments.items())
        raise RestoreError(f"the savepoint in {folder} begins at several moments: {listed}")
    return next(iter(moments))


def _of_live_job(folder: Path, step: str, reason: str) -> RestoreError:
    return RestoreError(
        f"{folder} is a savepoint or checkpoint of a live job, and only one that a backfill wrote can be extended over "
        f"history (step {step!r}: {reason}); restore=… takes the folder given to an earlier backfill as savepoint="
    )
