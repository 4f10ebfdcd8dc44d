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
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING
from uuid import uuid4

from aflow.backfill.epoch_state import EpochState
from aflow.backfill.fragments import Fragment, FragmentPlan
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
from aflow_connectors.spark.backfill.driver import table_of_exits
from aflow_connectors.spark.backfill.folders import uri_of
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner
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
from aflow_connectors.spark.stream.rows import StreamRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        for one in self._destinations():
            one.close()
        shutil.rmtree(self._staging, ignore_errors=True)
        self.state.store.close()

    def cancel(self) -> None:
        """Let the epoch in progress end without its commit, if that has not begun. Called in another thread."""
        self._is_cancelled = True

    def can_advance(self) -> bool:
        """Return True if an epoch without rows would advance a watermark, while Spark waits for rows."""
        return self.state.can_advance(waited=self._waited)

    def run_batch(self, rows: DataFrame, batch: int) -> None:
        """Run the epoch of Spark's ``batch``, unless it was committed."""
        last, source = self.state.position.batch, self.rows.of_source
        if self._begun is not None and batch <= self._begun:
            self._recorder.on_replay()
        if last is None or batch > last:
            self._run(rows.sparkSession, lambda one: source(one.head.name, rows), batch)

    def run_without_rows(self) -> None:
        """Run an epoch that only advances time."""
        session, source = self.session, self.rows.empty
        self._run(
            session,
            lambda one: source(one.head.name, session),
            self.state.position.batch,
            waited=self._waited,
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

    def _run(
        self,
        session: SparkSession,
        rows: Callable[[Fragment], DataFrame],
        batch: int | None,
        *,
        waited: int | None = None,
    ) -> None:
        began = monotonic()
        state, number = self.state, self.state.last.id + 1
        has_rows = batch != state.position.batch
        staging = self._staging / self.query / str(number)
        try:
            staging.mkdir(parents=True)
        except OSError as exc:
            raise CheckpointError(f"{staging} cannot be made: {described(exc)}") from exc
        watermarks, folder = state.watermarks(waited=waited), state.store.folder
        epoch = TaskEpoch(number, watermarks, folder, self.query, self.cache_bytes)
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
        parts = [one.part for one in counts if one.part is not None]
        state.store.check_written(parts)
        self._refuse_cancelled()
        state.commit(
            epoch.watermarks,
            parts,
            [one.newest for one in counts],
            output,
            batch=batch,
            subtasks=self.subtasks,
            entries=entries_after(
                state.position.entries, [(one.part, one.entries) for one in counts]
            ),
            splits=[one.splits for one in counts],
        )
        self._may_repeat = False
        for destination in self._destinations():
            destination.publish()
        state.finish(self.subtasks)
        shutil.rmtree(staging, ignore_errors=True)
        state.store.clean(state.last)
        ended = monotonic()
        seconds = {
            "fragments": computed - began,
            "results": written - computed,
            "commit": ended - written,
        }
        self._record(counts, seconds, has_rows=has_rows)

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
        )

    def _function(self, fragment: Fragment, epoch: TaskEpoch) -> MapBatches:
        context = EpochContext(epoch, self.state.files_of(fragment))
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
        self, counts: Sequence[StepCounts], seconds: Mapping[str, float], *, has_rows: bool
    ) -> None:
        sources = {one.head.name for one in self.plan.fragments if not one.keyed}
        report = EpochReport(
            steps=[one.counted for one in counts],
            records=sum(
                out for one in counts for name, (_, out) in one.steps.items() if name in sources
            ),
            results={sink: records_into(self.plan.exits_into(sink), counts) for sink in self.sinks},
            seconds=seconds,
            state_bytes_read=sum(one.state_read for one in counts),
        )
        self._recorder.on_epoch(self._position(), report, has_rows=has_rows)

    def _destinations(self) -> list[AnyEpochDestination]:
        return [one for one in self.sinks.values() if one is not None]
