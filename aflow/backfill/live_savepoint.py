"""Savepoint of a live job, from which a backfill or a stream continues.

Theory. A live job has processed some records of each split of its sources. Rows of a table have no positions in those
splits, and records of one moment may be processed and unprocessed at the same time, so event time cannot select the
rest. The caller selects it: the rows are exactly the records that the job has not read, and ``LiveSavepoint`` says so.
All else that the savepoint holds is carried exactly, or refused by the name of its step before anything runs:

- **Keyed state, windows and event timers** are restored by their step, as in a live job, with the watermark of the step
  and those of key groups that were ahead of it: a record that was late remains late.
- **Watermarks of splits** are those of sources that are not read any more. The ``event_time`` step of a stream begins
  at the least of them; over history rows are sorted, and no watermark is needed.
- **Calls under way, and results that were not emitted** are restored by the step that made the calls. Downstream of a
  keyed step each subtask takes its own. A fragment that begins at a source has one partition more for them, which has
  no rows. Results have the times of their records, and a keyed step downstream has waited for them.
- **Prepared output** of sinks is committed, or passed on to the next savepoint, as that of a backfill is.
- **Records in flight**, to a step or to the writer of a sink, are in unaligned checkpoints only. They are refused.
- **Timers and windows of processing time** are refused: a fragment has no clock.

The run has to end after the newest record in the state, since its own savepoint is of one moment of event time, and the
records from that moment on are processed by what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

from aflow.backfill.contents import newest_manifest
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.savepoint_steps import ReadStep, read_steps
from aflow.connect import Position
from aflow.errors import RestoreError, readable
from aflow.graph.flow_graph import FlowGraph
from aflow.graph.nodes import Kind, Node
from aflow.model.time import MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.operators.calls.stored import CALLS
from aflow.operators.calls.stored_fences import FENCES
from aflow.operators.calls.stored_results import RESULTS
from aflow.operators.group_watermarks import stored_watermark
from aflow.operators.handover import BEGINS, NEWEST, handed_over, newest_stored, watermark_before
from aflow.operators.key_timers import TIMER_NAMES
from aflow.operators.split_watermarks import STATE, RestoredWatermarks
from aflow.runtime.checkpoints.directory.paths import local_folder
from aflow.runtime.checkpoints.sections import IN_FLIGHT, PENDING, PROGRESS, WAITING, read_progress
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot

#: State of steps that make calls, which a step of another kind does not read.
_OF_CALLS: Final = frozenset({CALLS, RESULTS, FENCES})

LiveCalls: TypeAlias = Mapping[str, OperatorSnapshot]
"""Stored calls that were under way in some steps, by step."""


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """Progress of a live job in one split of a source."""

    position: Position | None
    """Next position in the terms of the source: an offset, a line, an id. None: the beginning of the split."""
    skip: int
    """Records from the position on that the job has read, too."""
    ended: bool
    """True if the split was read to its end."""


@dataclass(frozen=True, slots=True)
class LiveSavepoint:
    """A savepoint of a live job, for ``restore=`` of a backfill or a stream.

    It states that the rows of each source are exactly the records that the job has not read: the positions of the job's
    sources have no meaning for the rows, and are not used. A row that the job has read is processed twice, one that is
    missing is lost. ``positions`` returns where the sources of the job stopped. Records before a moment that an earlier
    backfill has processed are skipped, as the job has skipped them.
    """

    path: str | PathLike[str]
    """A savepoint, a folder of aligned checkpoints (the newest is read), or a manifest; a ``file:`` URI is accepted."""

    @property
    def folder(self) -> Path:
        """Return the absolute path. Raises ``FlowDefinitionError`` for an invalid path of a local folder."""
        return Path.cwd() / local_folder(self.path, "restore")

    def positions(self) -> dict[str, dict[str, StoredPosition]]:
        """Return the positions at which the sources of the job stopped, by source and split; blocks.

        Raises ``RestoreError`` for files that are missing or damaged.
        """
        manifest, folder = newest_manifest(self.folder)
        found: dict[str, dict[str, StoredPosition]] = {}
        for one in read_steps(manifest, folder):
            if PROGRESS in one.of_operator.operator:
                source = one.step.name
                with wrap_read_errors(f"the state of step {source!r} in {folder}"):
                    found[source] = dict(_positions(source, one.of_operator))
        return found


def _positions(source: str, snapshot: OperatorSnapshot) -> Iterator[tuple[str, StoredPosition]]:
    progress = read_progress(source, snapshot, 0)
    for split, place in sorted(progress.places.items()):
        yield split, StoredPosition(place.position, place.skip, ended=False)
    for split in sorted(progress.ended):
        yield split, StoredPosition(None, 0, ended=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """State of a live job beside that of its keyed steps."""

    begins: Timestamp | None
    """Moment (epoch ms) before which the job has skipped records; None if it has skipped none."""
    newest: Timestamp | None
    """Newest timestamp (epoch ms) of all records in the state; None if there are none."""
    earned: Mapping[str, Timestamp]
    """Watermark (epoch ms) of each step that assigns timestamps, as far as it had one."""
    watermarks: Mapping[str, Timestamp]
    """Watermark (epoch ms) of each keyed step, as far as it has stored one: the least of its subtasks."""
    calls: Mapping[int, LiveCalls] = field(default_factory=dict[int, LiveCalls])
    """Calls under way of steps that are not the heads of their fragments, by fragment and step."""

    def watermark(self, cuts: Mapping[str, object]) -> Timestamp:
        """Return the watermark of a stream whose steps ``cuts`` assign timestamps, at its beginning."""
        marks = [self.earned.get(name, MIN_TIMESTAMP) for name in cuts]
        return min([*marks, *self.watermarks.values()], default=MIN_TIMESTAMP)


def first_of_live_job(steps: Mapping[str, ReadStep]) -> str | None:
    """Return the name of a step whose state only a live job has written; None for the savepoint of a backfill."""
    of_live_job = {PROGRESS, IN_FLIGHT, WAITING, STATE, NEWEST}
    return next(
        (name for name in steps if of_live_job & steps[name].of_operator.operator.keys()), None
    )


def live_state(
    folder: Path, graph: FlowGraph, plan: FragmentPlan, steps: Mapping[str, ReadStep]
) -> LiveState:
    """Return the state of the live job that wrote ``steps``.

    Raises ``RestoreError`` that names the step for state that cannot be carried over.
    """
    _refuse_in_flight(folder, steps)
    _refuse_processing_time(folder, graph, steps)
    _refuse_unplaced(folder, graph, plan, steps)
    return LiveState(
        begins=_begins(folder, plan, steps),
        newest=_newest(folder, plan, steps),
        earned=dict(_earned(plan, steps)),
        watermarks=dict(_watermarks(plan, steps)),
        calls=_calls(plan, steps),
    )


def _refuse_in_flight(folder: Path, steps: Mapping[str, ReadStep]) -> None:
    for name, one in steps.items():
        where = {IN_FLIGHT: f"step {name!r}", WAITING: f"sink {name!r}"}
        for state in where.keys() & one.of_operator.operator.keys():
            if one.of_operator.operator[state]:
                raise RestoreError(
                    f"{folder} is an unaligned checkpoint, with records in flight to {where[state]}, and only a live "
                    f"job can process those: take a savepoint, which has none (job.savepoint(path), or "
                    f"job.stop(savepoint=path)), and restore that"
                )


def _refuse_processing_time(folder: Path, graph: FlowGraph, steps: Mapping[str, ReadStep]) -> None:
    for node in graph:
        found = steps.get(node.name)
        if found is None:
            continue
        if TIMER_NAMES[TimeDomain.PROCESSING] in found.contents.others:
            raise RestoreError(
                f"step {node.name!r} has timers of processing time in {folder}, and rows have no clock by which they "
                f"could fire: take a savepoint when they have fired, or continue with a live job"
            )
        windows = node.windows
        if (
            windows is not None
            and windows.assigner.domain is TimeDomain.PROCESSING
            and found.has_keys
        ):
            raise RestoreError(
                f"step {node.name!r} has windows of processing time in {folder}, and over rows it has windows of event "
                f"time: take a savepoint when they have fired, or continue with a live job"
            )


def _refuse_unplaced(
    folder: Path, graph: FlowGraph, plan: FragmentPlan, steps: Mapping[str, ReadStep]
) -> None:
    """Refuse state that no step of a fragment restores. No step that a fragment may contain has any today."""
    heads = {one.head.name for one in plan.fragments}
    for node in graph:
        found = steps.get(node.name)
        if found is None or (node.name in heads and node.kind is not Kind.SOURCE):
            continue
        known = _known_state(node)
        foreign = sorted(
            {name for name, held in found.of_operator.operator.items() if held} - known
        )
        if found.has_keys or foreign:
            what = ", ".join(map(repr, foreign)) or "keyed state"
            raise RestoreError(
                f"step {node.name!r} has {what} in {folder}, which no step over rows restores: continue with a live job"
            )


def _known_state(node: Node) -> frozenset[str]:
    """Return the names of the operator state that a step may have which is not the head of a keyed fragment."""
    if node.kind is Kind.SOURCE:
        return frozenset({PROGRESS})
    if node.kind is Kind.SINK:
        return frozenset({PENDING})
    if node.begins_time:
        return frozenset({STATE, BEGINS, NEWEST})
    return _OF_CALLS


def _begins(folder: Path, plan: FragmentPlan, steps: Mapping[str, ReadStep]) -> Timestamp | None:
    """Return the moment before which all sources skip records. Raises ``RestoreError`` if it is not the same."""
    found = {
        name: handed_over(steps[name].of_operator, name)
        for name in sorted(plan.cuts)
        if name in steps
    }
    if len(set(found.values())) > 1:
        listed = " and ".join(
            f"{name!r} {'none' if at is None else f'those before {readable(at)}'}"
            for name, at in found.items()
        )
        raise RestoreError(
            f"the live job in {folder} skips records of an earlier backfill, and not at one moment: {listed}; continue "
            f"with a live job"
        )
    return next(iter(found.values()), None)


def _newest(folder: Path, plan: FragmentPlan, steps: Mapping[str, ReadStep]) -> Timestamp | None:
    newest = MIN_TIMESTAMP
    for name in plan.cuts:
        if name not in steps:
            continue  # new in the flow
        found = newest_stored(steps[name].of_operator, name)
        if found is None:
            raise RestoreError(
                f"step {name!r} has not stored its newest timestamp in {folder}, which an older version of aflow has "
                f"written: restore a live job from it, and take a savepoint of that one"
            )
        newest = max(newest, found)
    return None if newest == MIN_TIMESTAMP else newest


def _earned(plan: FragmentPlan, steps: Mapping[str, ReadStep]) -> Iterator[tuple[str, Timestamp]]:
    for name in plan.cuts:
        if name not in steps:
            continue
        snapshot = steps[name].of_operator
        splits = RestoredWatermarks()
        splits.read(snapshot, name, (0, 1))
        marks = list(splits.splits.values())
        begins = handed_over(snapshot, name)
        least = min(marks, default=MIN_TIMESTAMP)
        yield name, least if begins is None else max(least, watermark_before(begins))


def _watermarks(
    plan: FragmentPlan, steps: Mapping[str, ReadStep]
) -> Iterator[tuple[str, Timestamp]]:
    for fragment in plan.fragments:
        found = steps.get(fragment.head.name)
        at = None if found is None or not fragment.keyed else stored_watermark(found.of_operator)
        if at is not None:
            yield fragment.head.name, at


def _calls(plan: FragmentPlan, steps: Mapping[str, ReadStep]) -> dict[int, LiveCalls]:
    """Return the calls of each fragment. A step of several fragments, after a union, makes them in the first one."""
    placed: set[str] = set()
    found: dict[int, LiveCalls] = {}
    for fragment in plan.fragments:
        names = _with_calls(fragment, steps) - placed
        if names:
            found[fragment.index] = {name: steps[name].of_operator for name in sorted(names)}
            placed |= names
    return found


def _with_calls(fragment: Fragment, steps: Mapping[str, ReadStep]) -> set[str]:
    return {
        node.name
        for node in fragment.nodes
        if not (node is fragment.head and fragment.keyed)
        and node.name in steps
        and steps[node.name].of_operator.operator.get(CALLS)
    }
