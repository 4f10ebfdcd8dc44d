"""The last committed epoch of a stream, and the checks of a state folder before anything runs. All functions block.

Theory. Three records describe a stream: the manifests of epochs, Spark's checkpoint, and the output of the sinks. The
manifests decide. Spark's checkpoint is one batch ahead at most: Spark records a batch before it runs, and its end after
the epoch is committed. If one of the two was removed, or put back from a copy, batches would be skipped or processed
twice, so that is refused.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Final

from aflow.backfill.continuation import (
    Continuation,
    Restore,
    changes_since,
    folder_of,
    read_continuation,
    start_of_history,
)
from aflow.backfill.epoch_state import EpochState
from aflow.backfill.epoch_time import EpochTime
from aflow.backfill.epochs import EpochStore
from aflow.backfill.fragments import FragmentPlan
from aflow.backfill.live_savepoint import LiveSavepoint
from aflow.backfill.savepoint import SAVEPOINT, check_savepoint_path
from aflow.errors import FlowDefinitionError, RestoreError, readable
from aflow.graph.flow_graph import FlowGraph
from aflow.model.distribution import VERSION
from aflow.model.elements import CheckpointKind
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.handover import watermark_before
from aflow.runtime.checkpoints.directory.paths import local_folder
from aflow.runtime.checkpoints.settings import check_bool
from aflow.state.change_plan import ChangePlan
from aflow.state.manifest import Manifest, StreamPosition

#: Folders inside the state folder: Spark's checkpoint, and data between the fragments of an epoch.
SPARK: Final = "spark"
STAGING: Final = "staging"


@dataclass(frozen=True, slots=True)
class StreamFolders:
    """Folders of a stream and its end, as the user gives them; checked by ``opened_stream``."""

    state: str | PathLike[str]
    restore: Restore | None
    savepoint: str | PathLike[str] | None
    until: Timestamp | None
    """End of the stream (epoch ms)."""
    allow_dropped_state: bool

    @property
    def state_folder(self) -> Path:
        """The absolute folder of the state. Raises ``FlowDefinitionError`` for an invalid path."""
        return Path.cwd() / local_folder(self.state, "state")

    @property
    def savepoint_folder(self) -> Path | None:
        """The absolute folder of the savepoint. Raises as ``state_folder``."""
        path = self.savepoint
        return None if path is None else Path.cwd() / local_folder(path, "savepoint")


def opened_stream(
    graph: FlowGraph,
    plan: FragmentPlan,
    folders: StreamFolders,
    *,
    split_sources: Collection[str] = (),
) -> EpochState:
    """Hold the state folder, and return the epoch with which the stream continues; it is released after an error.

    ``split_sources`` are the sources whose rows have splits. Reads all state, to compare it with the flow. Raises
    ``CheckpointError`` for a folder in use and a savepoint that cannot be written, ``RestoreError`` for state of
    another flow, or that cannot be restored, and ``FlowDefinitionError`` for other arguments than those of the epochs
    before, and for a flow that is no stream.
    """
    check_bool(folders.allow_dropped_state, "allow_dropped_state")
    time_rule = EpochTime.of(plan, split_sources)
    store = EpochStore(folders.state_folder, plan.flow, plan.key_groups)
    last = store.open()
    try:
        if last is None:
            return _new(graph, plan, time_rule, store, folders)
        return _continued(graph, plan, time_rule, store, folders, last)
    except BaseException:
        store.close()
        raise


def _new(
    graph: FlowGraph,
    plan: FragmentPlan,
    time_rule: EpochTime,
    store: EpochStore,
    folders: StreamFolders,
) -> EpochState:
    allowed = folders.allow_dropped_state
    start = start_of_history(folders.restore, graph, plan, allow_dropped_state=allowed)
    if start is not None:
        start.check_until(folders.until)
    _check_batches(store.folder, None)
    savepoint = folders.savepoint_folder
    if savepoint is not None:
        check_savepoint_path(savepoint)
    return EpochState(
        plan=plan,
        time=time_rule,
        store=store,
        last=_first(plan, time_rule, start, folders.until),
        is_new=True,
        start=start,
        changes=ChangePlan(),
        savepoint=savepoint,
    )


def _continued(
    graph: FlowGraph,
    plan: FragmentPlan,
    time_rule: EpochTime,
    store: EpochStore,
    folders: StreamFolders,
    last: Manifest,
) -> EpochState:
    position, until = last.stream or StreamPosition(), folders.until
    _check_sources(store.folder, _source_names(plan), position.sources)
    _check_restored(store.folder, folders.restore, position.restored)
    _check_batches(store.folder, position.batch)
    position = _with_end(store.folder, position, until)
    savepoint = folders.savepoint_folder
    if savepoint is not None and (until is None or position.watermark < until - 1):
        check_savepoint_path(savepoint)
    allowed, start = folders.allow_dropped_state, None
    if position.restored and not last.steps:
        # Killed in the first epoch with records, which reads the savepoint.
        restored = LiveSavepoint(position.restored) if position.live else position.restored
        start = read_continuation(restored, graph, plan, allow_dropped_state=allowed)
    return EpochState(
        plan=plan,
        time=time_rule,
        store=store,
        last=replace(last, stream=position),
        is_new=False,
        start=start,
        changes=changes_since(last, store.folder, graph, allow_dropped_state=allowed),
        savepoint=savepoint,
    )


def _first(
    plan: FragmentPlan, time_rule: EpochTime, start: Continuation | None, until: Timestamp | None
) -> Manifest:
    now = time.time_ns() // 1_000_000
    return Manifest(
        id=SAVEPOINT if start is None else start.number,
        kind=CheckpointKind.PERIODIC,
        flow=plan.flow,
        key_groups=plan.key_groups,
        created_at=now,
        completed_at=now,
        steps=(),
        stream=replace(
            _first_times(plan, time_rule, start),
            restored="" if start is None else str(start.folder),
            until=until,
            sources=_source_names(plan),
            entries=0 if start is None else None,
        ),
        aflow=VERSION,
    )


def _first_times(
    plan: FragmentPlan, time_rule: EpochTime, start: Continuation | None
) -> StreamPosition:
    """Return the watermarks with which a stream begins."""
    begins, live = (None, None) if start is None else (start.begins, start.live)
    if live is None:
        watermark = MIN_TIMESTAMP if begins is None else watermark_before(begins)
        earned = dict.fromkeys(time_rule.lags, watermark)
        return StreamPosition(watermark=watermark, earned=earned, begins=begins)
    return StreamPosition(
        watermark=live.watermark(plan.cuts),
        watermarks=live.watermarks,
        earned={step: live.earned.get(step, MIN_TIMESTAMP) for step in time_rule.lags},
        begins=begins,
        newest=live.newest,
        live=True,
    )


def _source_names(plan: FragmentPlan) -> tuple[str, ...]:
    return tuple(sorted(one.head.name for one in plan.fragments if not one.keyed))


def _check_sources(folder: Path, names: tuple[str, ...], former: tuple[str, ...]) -> None:
    """Raise ``RestoreError`` unless the sources are those of the epochs: their offsets are stored by their order."""
    if names != former:
        raise RestoreError(
            f"the stream in {folder} has read the sources {_listed(former)}, and this flow has {_listed(names)}: one "
            f"could continue at the offsets of another. Give them their former names, or begin another stream in a new "
            f"state folder, with restore= of a savepoint"
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


def _check_restored(folder: Path, restore: Restore | None, restored: str) -> None:
    asked = "" if restore is None else str(folder_of(restore))
    if asked and asked != restored:
        began = f"the savepoint in {restored}" if restored else "no savepoint"
        raise FlowDefinitionError(
            f"the stream in {folder} has begun with {began}, and restore= is {asked}: leave restore= out to continue "
            f"the stream, or begin another one in a new state folder"
        )


def _with_end(folder: Path, position: StreamPosition, until: Timestamp | None) -> StreamPosition:
    """Return the position with the end ``until``.

    Raises ``FlowDefinitionError`` if records were processed, or left out, by another end.
    """
    bounds = [at for at in (position.until, until) if at is not None]
    if until != position.until and position.newest is not None and position.newest >= min(bounds):
        former = "no end" if position.until is None else f"until= {readable(position.until)}"
        raise FlowDefinitionError(
            f"the stream in {folder} had {former}, and has processed or left out records up to "
            f"{readable(position.newest)} by that: give an end after that moment, or the same end as before"
        )
    return replace(position, until=until)


def _check_batches(folder: Path, batch: int | None) -> None:
    """Raise ``RestoreError`` unless Spark's checkpoint is of the last epoch, whose batch is ``batch``."""
    checkpoint = folder / SPARK
    # Spark writes the offsets of a batch before it runs it, and keeps the last hundred.
    if batch is not None and batch not in _numbers(checkpoint / "offsets"):
        raise RestoreError(
            f"the last epoch in {folder} is of Spark's batch {batch}, which is not in Spark's checkpoint, "
            f"{checkpoint}: was one of them removed, or put back alone? Bring both back, or begin a new state folder"
        )
    done = max(_numbers(checkpoint / "commits"), default=-1)
    if done > (-1 if batch is None else batch):
        raise RestoreError(
            f"Spark's checkpoint {checkpoint} has completed batch {done}, and the last epoch in {folder} is "
            f"{'of none' if batch is None else f'of batch {batch}'}: was the state removed, or put back alone? Bring "
            f"both back, or begin a new state folder"
        )


def last_planned_batch(folder: Path) -> int | None:
    """Return the number of the last batch that Spark has begun, of the stream in ``folder``; None if it is new."""
    return max(_numbers(folder / SPARK / "offsets"), default=None)


def _numbers(folder: Path) -> frozenset[int]:
    def found() -> Iterator[int]:
        if folder.is_dir():
            for path in folder.iterdir():
                if path.name.isdigit():
                    yield int(path.name)

    return frozenset(found())
