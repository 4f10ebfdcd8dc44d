"""Epochs of a stream on the driver: Spark jobs, results, and the commit of each. All methods block.

Theory. The state of the stream is its last committed epoch: a manifest that names files with the state of each keyed
step, the watermark, Spark's batch, and the output of each sink. An epoch

1. runs the fragments over the rows of a batch, with the state of the preceding epoch,
2. prepares the output and calls functions,
3. commits its manifest,
4. makes the output visible.

After a crash before 3 the epoch has not happened: the next query removes its files, and Spark repeats the batch.
After a crash between 3 and the end of Spark's batch, the next query makes the output visible, if it is not, and skips
the batch that Spark repeats.

A savepoint of the running stream is one of its end at a moment T, without an end: epochs hold back the records from T
on (``HeldRows``) until the watermark arrives at T, the savepoint is written, and one epoch processes those records.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from aflow.backfill.epoch_state import EpochState
from aflow.backfill.epoch_time import StreamWatermarks
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.live_savepoint import LiveCalls
from aflow.backfill.stream_progress import (
    BatchReport,
    EpochPosition,
    EpochReport,
    ProgressRecorder,
    StreamProgress,
    entries_after,
)
from aflow.backfill.stream_recovery import SPARK, STAGING, last_planned_batch
from aflow.connect import Committable
from aflow.errors import CheckpointError, ConnectorError, described
from aflow.model.time import Timestamp
from aflow_connectors.spark.backfill.driver import table_of_exits
from aflow_connectors.spark.backfill.folders import uri_of
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner, ReusedPlans
from aflow_connectors.spark.backfill.fragment_task import TaskEpoch, description_of
from aflow_connectors.spark.backfill.rows import StepCounts, files_into, records_into
from aflow_connectors.spark.executor.functions import MapBatches
from aflow_connectors.spark.stream.destinations import (
    AnyEpochDestination,
    EpochCall,
    EpochFolder,
    publish_former,
)
from aflow_connectors.spark.stream.epoch_task import EpochContext, epoch_function
from aflow_connectors.spark.stream.held_rows import HELD, HeldRows
from aflow_connectors.spark.stream.rows import StreamRows
from aflow_connectors.spark.stream.savepoint_request import (
    StreamSavepointRequest,
    check_folder,
    check_repeatable,
    first_cut,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RowsOf: TypeAlias = "Callable[[Fragment], DataFrame]"
"""Returns the rows of the source with which a fragment begins."""


@dataclass(slots=True, kw_only=True)
class Epochs:
    """The epochs of one stream."""

    session: SparkSession
    state: EpochState
    rows: StreamRows
    sinks: Mapping[str, AnyEpochDestination | None]
    pickled: Mapping[int, bytes]
    """Description of each fragment for executors, by its index."""
    subtasks: int
    interval: float
    """Seconds between two triggers."""
    cache_bytes: int
    """Bytes of state that a worker process keeps; 0 for none."""
    query: str = field(default_factory=lambda: uuid4().hex)
    """Identity of this driver. Jobs of a killed one may go on, and write into the staging folder of theirs."""
    _recorder: ProgressRecorder = field(init=False)
    #: Number of the last batch that an earlier query has begun; None if there is none.
    _begun: int | None = field(init=False, default=None)
    _is_ended: bool = False
    _is_cancelled: bool = False
    #: True until an epoch of this query is committed: the next one may repeat the epoch of a killed driver.
    _may_repeat: bool = True
    _request: StreamSavepointRequest | None = None
    _reused: ReusedPlans = field(default_factory=ReusedPlans)

    def __post_init__(self) -> None:
        self._recorder = ProgressRecorder(
            self.flow,
            steps=dict.fromkeys(node.name for one in self.plan.fragments for node in one.nodes),
            sinks=self.sinks,
            interval=self.interval,
        )

    @property
    def plan(self) -> FragmentPlan:
        return self.state.plan

    @property
    def flow(self) -> str:
        return self.plan.flow

    @property
    def checkpoint(self) -> str:
        """The place of Spark's checkpoint."""
        return uri_of(self.state.store.folder / SPARK)

    @property
    def is_finished(self) -> bool:
        """True if the stream has come to its end, and its savepoint is written."""
        return self.state.is_finished

    def begin(self) -> None:
        """Restore the output to the last committed epoch: publish what it names, and remove that of later ones.

        Raises ``SinkError`` for output of others, and ``RestoreError`` for output that was lost.
        """
        shutil.rmtree(self._staging, ignore_errors=True)
        for sink in self.state.sinks_with_output:
            if not isinstance(self.sinks.get(sink), EpochFolder):
                publish_former(sink, self.state.output_of(sink))
        self._begun = last_planned_batch(self.state.store.folder)
        self._held.clean(self.state.position.held)
        self.state.begin(
            {
                sink: one.recover(self.state.output_of(sink))
                for sink, one in self.sinks.items()
                if one is not None
            }
        )
        self.state.finish(self.subtasks)
        self._recorder.begin(self._position())

    def end(self) -> None:
        """Release locks and remove temporary files, once: then another query may own the folder."""
        if self._is_ended:
            return
        self._is_ended = True
        self._end_request(
            CheckpointError(
                f"the stream of flow {self.flow!r} ended before its watermark had arrived at the moment of the "
                f"savepoint, which was not written; the next query over the same state folder continues"
            )
        )
        for one in self._destinations():
            one.close()
        shutil.rmtree(self._staging, ignore_errors=True)
        self.state.store.close()

    def cancel(self) -> None:
        """Let the epoch in progress end without its commit, if that has not begun. Called in another thread."""
        self._is_cancelled = True

    def begin_savepoint(self, request: StreamSavepointRequest) -> None:
        """Hold back the records of the epochs that follow, from a moment on that no record has reached.

        The savepoint is written when the watermark arrives there. Raises ``CheckpointError`` for a folder that exists
        and before the first record, and ``FlowDefinitionError`` for a flow that cannot hold back records.
        """
        if self._active_request() is not None:
            raise CheckpointError(
                f"the stream of flow {self.flow!r} is being asked for a savepoint already: wait for that one"
            )
        cut = first_cut(self.state)
        check_folder(request.path, self.state.store.folder)
        check_repeatable(self.plan, {name for name, one in self.sinks.items() if one is not None})
        self._held.check()
        request.cut = cut
        self._request = request

    def can_advance(self) -> bool:
        """Return True if an epoch without new rows would advance a watermark, or process records that wait."""
        cut = self._cut
        return self._must_release(cut) or self.state.can_advance(waited=self._waited, cut=cut)

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """Run the epoch of Spark's ``batch``, unless it was committed."""
        last, session = self.state.position.batch, rows.sparkSession
        if self._begun is not None and batch <= self._begun:
            self._recorder.on_replay()
        if last is not None and batch <= last:
            return
        cut = self._cut  # once: the request may be withdrawn meanwhile
        if self._must_release(cut):
            self._release(session)
        if cut is None:
            self._run(session, lambda one: self.rows.of_source(one.head.name, rows), batch)
            return
        # Both epochs of these rows read the stored ones, so they read the same.
        new = self._held.write(rows, self.state.last.id + 1, self.query)
        self._run(
            session,
            lambda one: self._held.read(session, one.head.name, [new]),
            batch,
            cut=cut,
            held=(*self.state.position.held, new),
        )

    def run_without_rows(self) -> None:
        """Run an epoch that only advances time, or that processes the records that wait."""
        session, position, cut = self.session, self.state.position, self._cut
        if self._must_release(cut):
            self._release(session)
        else:
            self._run(
                session,
                lambda one: self.rows.empty(one.head.name, session),
                position.batch,
                waited=self._waited,
                cut=cut,
                held=position.held,
            )

    def progress(self) -> StreamProgress:
        """Return the progress up to the last committed epoch; in any thread."""
        return self._recorder.progress(time_ns() // 1_000_000)

    @property
    def batch(self) -> int | None:
        """Spark's number of the last batch of a committed epoch."""
        return self.state.position.batch

    def on_batch(self, report: BatchReport) -> None:
        """Record the report of Spark on a batch that it has completed."""
        self._recorder.on_batch(report)

    def _position(self) -> EpochPosition:
        state = self.state
        return EpochPosition(
            epoch=state.last.id,
            batch=state.position.batch,
            watermark=state.watermark,
            earned=state.position.earned,
            state_bytes=state.size,
            state_entries=state.position.entries,
            committed_at=state.last.completed_at,
            savepoint=state.savepoint if state.is_finished else None,
        )

    @property
    def _staging(self) -> Path:
        return self.state.store.folder / STAGING

    @property
    def _waited(self) -> int:
        """The longest time (ms) since Spark has looked for rows, if it has found none."""
        return round(self.interval * 1000)

    @property
    def _held(self) -> HeldRows:
        return HeldRows(self.state.store.folder / HELD, self.rows)

    def _active_request(self) -> StreamSavepointRequest | None:
        request = self._request
        return None if request is None or request.is_withdrawn else request

    @property
    def _cut(self) -> Timestamp | None:
        """The moment of the savepoint that the stream is asked for."""
        request = self._active_request()
        return None if request is None else request.cut

    def _must_release(self, cut: Timestamp | None) -> bool:
        """Return True if records wait, and not for a savepoint of ``cut``."""
        position = self.state.position
        return bool(position.held) and position.cut != cut

    def _release(self, session: SparkSession) -> None:
        """Run the epoch of the records that have waited."""
        position = self.state.position
        self._run(
            session,
            lambda one: self._held.read(session, one.head.name, position.held),
            position.batch,
            begins=position.cut,
        )

    def _end_request(self, failure: Exception | None) -> None:
        request, self._request = self._active_request(), None
        if request is not None:
            request.on_end(failure)

    def _finish(self) -> None:
        """Write the savepoints that are due: that of the end of the stream, and the one that it is asked for."""
        self.state.finish(self.subtasks)
        request = self._active_request()
        if request is None or request.cut is None or self.state.position.cut != request.cut:
            return
        if self.state.position.watermark < request.cut - 1:
            return
        try:
            self.state.write_savepoint(request.path, request.cut, self.subtasks)
        except CheckpointError as exc:
            self._end_request(exc)  # of the savepoint alone: the stream continues
        else:
            self._end_request(None)

    def _epoch(
        self,
        watermarks: StreamWatermarks,
        begins: Timestamp | None,
        cut: Timestamp | None,
    ) -> TaskEpoch:
        """Return an epoch that processes the records from ``begins`` up to ``cut``, within those of the stream."""
        position = self.state.position
        return TaskEpoch(
            self.state.last.id + 1,
            watermarks,
            self.state.store.folder,
            begins=position.begins if begins is None else begins,
            until=position.until if cut is None else cut,
            query=self.query,
            cache_bytes=self.cache_bytes,
        )

    def _new_staging(self, epoch: int) -> Path:
        """Create the folder for the data between the fragments of an epoch."""
        staging = self._staging / self.query / str(epoch)
        try:
            staging.mkdir(parents=True)
        except OSError as exc:
            raise CheckpointError(f"{staging} cannot be made: {described(exc)}") from exc
        return staging

    def _run(
        self,
        session: SparkSession,
        rows: RowsOf,
        batch: int | None,
        *,
        waited: int | None = None,
        begins: Timestamp | None = None,
        cut: Timestamp | None = None,
        held: tuple[str, ...] = (),
    ) -> None:
        """Run an epoch and commit it.

        Records before ``begins`` were processed before, and those from ``cut`` on wait in the rows ``held``.
        """
        began = monotonic()
        state, number = self.state, self.state.last.id + 1
        has_rows = batch != state.position.batch
        staging = self._new_staging(number)
        epoch = self._epoch(state.watermarks(waited=waited, cut=cut), begins, cut)
        runner = self._runner(session, rows, staging, epoch)
        for fragment in self.plan.fragments:
            self._refuse_cancelled()
            runner.run(fragment)
        counts = runner.counts()
        computed = monotonic()
        output = {
            sink: self._prepare(sink, one, runner, counts, number)
            for sink, one in self.sinks.items()
            if one is not None
        }
        written = monotonic()
        self._commit(epoch, counts, output, batch, cut=cut, held=held)
        for destination in self._destinations():
            destination.publish()
        self._finish()
        shutil.rmtree(staging, ignore_errors=True)
        self._held.clean(held)
        state.store.clean(state.last)
        ended = monotonic()
        seconds = {
            "fragments": computed - began,
            "results": written - computed,
            "commit": ended - written,
        }
        self._record(counts, seconds, has_rows=has_rows, are_new=begins is None)

    def _commit(
        self,
        epoch: TaskEpoch,
        counts: Sequence[StepCounts],
        output: Mapping[str, Sequence[Committable]],
        batch: int | None,
        *,
        cut: Timestamp | None,
        held: tuple[str, ...],
    ) -> None:
        state = self.state
        parts = [one.part for one in counts if one.part is not None]
        state.store.check_written(parts)
        self._refuse_cancelled()
        entries = [(one.part, one.entries) for one in counts]
        state.commit(
            epoch.watermarks,
            parts,
            [one.newest for one in counts],
            output,
            batch=batch,
            subtasks=self.subtasks,
            entries=entries_after(state.position.entries, entries),
            splits=[one.splits for one in counts],
            cut=cut,
            held=held,
        )
        self._may_repeat = False

    def _runner(
        self,
        session: SparkSession,
        rows: Callable[[Fragment], DataFrame],
        staging: Path,
        epoch: TaskEpoch,
    ) -> FragmentRunner:
        called = {name for name, one in self.sinks.items() if isinstance(one, EpochCall)}
        return FragmentRunner(
            session,
            self.plan,
            uri_of(staging),
            self.subtasks,
            function=lambda fragment: self._function(fragment, epoch),
            rows=rows,
            written_by_executors=frozenset(self.sinks.keys() - called),
            state=epoch.folder,
            calls=lambda fragment: self._calls(fragment, epoch),
            reused=self._reused,
        )

    def _function(self, fragment: Fragment, epoch: TaskEpoch) -> MapBatches:
        calls: LiveCalls = self.state.calls_in(fragment) if fragment.keyed else {}
        return self._mapped(fragment, EpochContext(epoch, self.state.files_of(fragment), calls))

    def _calls(self, fragment: Fragment, epoch: TaskEpoch) -> MapBatches | None:
        calls: LiveCalls = {} if fragment.keyed else self.state.calls_in(fragment)
        context = EpochContext(epoch, None, calls, has_rows=False)
        return self._mapped(fragment, context) if calls else None

    def _mapped(self, fragment: Fragment, context: EpochContext) -> MapBatches:
        description = description_of(fragment, self.plan)
        return epoch_function(self.pickled[fragment.index], context, description=description)

    def _refuse_cancelled(self) -> None:
        if self._is_cancelled:
            raise ConnectorError(f"the stream of flow {self.flow!r} was stopped at once")

    def _prepare(
        self,
        sink: str,
        destination: AnyEpochDestination,
        runner: FragmentRunner,
        counts: Sequence[StepCounts],
        epoch: int,
    ) -> Sequence[Committable]:
        exits = self.plan.exits_into(sink)
        if isinstance(destination, EpochFolder):
            return destination.prepare(epoch, files_into(exits, counts))
        columns = destination.columns()
        # A killed driver may have passed this epoch with other records, which the function has to replace.
        if records_into(exits, counts) or (self._may_repeat and columns is not None):
            table = table_of_exits(runner, exits, sink, columns)
            if table is not None:
                destination.call(table, epoch)
        return ()

    def _record(
        self,
        counts: Sequence[StepCounts],
        seconds: Mapping[str, float],
        *,
        has_rows: bool,
        are_new: bool,
    ) -> None:
        """Record an epoch, with its records unless they were counted when they arrived (``are_new`` is False)."""
        sources = {one.head.name for one in self.plan.fragments if not one.keyed}
        records = sum(
            out for one in counts for name, (_, out) in one.steps.items() if name in sources
        )
        report = EpochReport(
            steps=[one.counted for one in counts],
            records=records if are_new else 0,
            results={sink: records_into(self.plan.exits_into(sink), counts) for sink in self.sinks},
            seconds=seconds,
            state_bytes_read=sum(one.state_read for one in counts),
        )
        self._recorder.on_epoch(self._position(), report, has_rows=has_rows)

    def _destinations(self) -> list[AnyEpochDestination]:
        return [one for one in self.sinks.values() if one is not None]
