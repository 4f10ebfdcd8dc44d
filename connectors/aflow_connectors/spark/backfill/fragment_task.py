"""One fragment on an executor: its description, pickled on the driver, and its run over a partition.

Arrow batches of a partition are the input, Arrow batches of rows the output. Rows carry records to another fragment or
to a sink, and the state of the partition; if results and state are written to files, a row carries the names of the
files. Neither accumulators nor folders are used: only the rows of the attempt that Spark accepts count, and those of
other attempts are ignored.

Fragments are pickled once, on the driver, so that pickling errors are raised early.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from aflow.backfill.blocks import ExitBatch, InputRows
from aflow.backfill.continuation import Continuation, StepFiles
from aflow.backfill.epoch_time import StreamWatermarks
from aflow.backfill.exchange import ExitEncoder, decode_block
from aflow.backfill.fragment_run import FragmentResult, Partition, StateReader, run_fragment
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.live_savepoint import LiveCalls
from aflow.backfill.merge import BlockMerger
from aflow.backfill.portable_fragment import check_picklable, portable_copy
from aflow.backfill.savepoint import encoded_part
from aflow.backfill.state_cache import StateCache, StateOwner
from aflow.backfill.task_state import CacheUse, TaskPlace, TaskState
from aflow.errors import ConnectorError
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow_connectors.spark.backfill.executor_files import FileTarget, ResultFiles, write_state
from aflow_connectors.spark.backfill.rows import REPORT, STATE, StepCounts
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.columns import RowsIn, RowsOut
from aflow_connectors.spark.dataframe.split_column import SplitColumn
from aflow_connectors.spark.executor.bridge import BridgeInput, BridgeOutput, bridged
from aflow_connectors.spark.executor.functions import MapBatches, Payload, executor_function
from aflow_connectors.spark.executor.resource_pool import pooled_resources
from aflow_connectors.spark.executor.serialization import (
    classes_of_main,
    dumps,
    modules_of,
    register_classes,
)

#: A row's place combines the fragment, the partition and the number of the record block in it: 2^9, 2^22 and 2^32.
_BLOCK_BITS: Final = 32
_PARTITION_BITS: Final = 22


@dataclass(frozen=True, slots=True)
class TaskEpoch:
    """An epoch of a stream, for executors."""

    number: int
    watermarks: StreamWatermarks
    folder: Path
    """Folder with the state of the stream."""
    begins: Timestamp | None
    """Moment (epoch ms) before which records are skipped; None if none are."""
    until: Timestamp | None
    """Moment (epoch ms) from which on records are left out; None if none are."""
    query: str = ""
    """Unique for each driver."""
    cache_bytes: int = 0
    """Bytes of state that a worker process keeps; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentTask:
    """Description of a fragment for executors; the same for all partitions."""

    flow: str
    fragment: Fragment
    """Copied by ``portable_copy``."""
    subtasks: int
    """Number of partitions of keyed fragments."""
    key_groups: int
    until: Timestamp | None
    """End of the history (epoch ms); None if it is all. A stream has an interval for each epoch."""
    begins: Timestamp | None = None
    """Beginning of the history (epoch ms); None if it is all."""
    restored_from: Path | None = None
    """Folder of the savepoint from which the backfill continues."""
    restored: StepFiles | None = None
    """State with which the step that reads by key begins; None if there is none."""
    calls: LiveCalls = field(default_factory=dict[str, Any])
    """Calls of a live job that were under way in other steps, by step."""
    source: RowsIn[Any] | None = None
    """Converts the rows of a DataFrame to records: for a fragment that begins at a source."""
    split: SplitColumn | None = None
    """The splits of the source; None if its rows have none."""
    files: Mapping[int, FileTarget] = field(default_factory=dict[int, FileTarget])
    """Files that the executor writes itself, by the number of the exit."""
    dropped: frozenset[int] = frozenset()
    """Exits whose records are counted and dropped."""
    state: Path | None = None
    """Folder into which the executor writes state; None if it emits state as rows."""
    epoch: TaskEpoch | None = None
    """For one epoch of a stream."""


def execute(
    task: FragmentTask,
    number: int,
    batches: Iterator[Any],
    *,
    digest: str = "",
    cache: StateCache | None = None,
) -> Iterator[Any]:
    """Run the fragment over partition ``number``, whose rows are the Arrow ``batches``; yield Arrow batches.

    Resources of the calls are kept in this process under ``digest``, which identifies ``task``, and state of an epoch
    in ``cache``.
    """
    upstream_reports: list[Any] = []
    execution = _Execution(task, number, digest, cache)
    execution.read_state()
    batches_out = bridged(execution.blocks(batches, upstream_reports), execution.work)
    with ResultFiles(task.files, number) as files, closing(batches_out):
        for exit_batch in batches_out:
            exit = exit_batch.exit.number
            if exit in files:
                files.write(exit, exit_batch.batch.values)
            elif exit not in task.dropped:
                yield execution.encoded(exit_batch)
        names = files.finish()
    yield from upstream_reports
    yield from execution.state_rows(names)


def decode(columns: RowsOut, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the columns of the record blocks of a sink, on executors."""
    for batch in batches:
        for payload in batch.column("payload"):
            yield columns.batch(decode_block(memoryview(payload.as_buffer()), 0).values)


class _Execution:
    """One fragment over one partition."""

    def __init__(
        self, task: FragmentTask, number: int, digest: str, cache: StateCache | None
    ) -> None:
        self._task = task
        self._number = number
        self._digest = digest
        self._keyed = task.fragment.keyed
        self._encoders = {
            exit.number: ExitEncoder(exit, key_groups=task.key_groups, readers=task.subtasks)
            for exit in task.fragment.exits
        }
        fragment = task.fragment.index << _PARTITION_BITS
        #: Place of the next emitted record block.
        self._place = (fragment | number) << _BLOCK_BITS
        self._restored: StateReader | None = None
        #: The state of a keyed fragment in an epoch.
        self._state = None if task.epoch is None else self._state_of(task.epoch, cache)
        self._result: FragmentResult | None = None

    def _state_of(self, epoch: TaskEpoch, cache: StateCache | None) -> TaskState | None:
        if not self._keyed:
            return None
        step, groups = self._task.fragment.head.name, self._groups
        owner = StateOwner(epoch.folder, epoch.query, self._digest, groups)
        use = None
        if cache is not None and epoch.cache_bytes:
            use = CacheUse(cache, owner, epoch.cache_bytes)
        place = TaskPlace(epoch.folder, epoch.number, step, self._number, groups)
        return TaskState(place, self._task.restored, use)

    def read_state(self) -> None:
        """Read the stored state of the partition; blocks.

        Raises ``ConnectorError`` if this executor does not see the savepoint, also in a fragment without state, which
        runs before the others.
        """
        task = self._task
        if task.restored_from is not None and not task.restored_from.is_dir():
            raise ConnectorError(
                f"executor {socket.gethostname()} cannot see {task.restored_from}, from which flow {task.flow!r} "
                f"continues: it must be in a folder that driver and executors see alike"
            )
        if self._state is not None:
            self._state.read()
        elif task.restored is not None:
            self._restored = task.restored.read_ahead(self._groups)

    @property
    def _groups(self) -> KeyGroupRange:
        """Key groups of the partition of a keyed fragment."""
        return ranges(self._task.key_groups, self._task.subtasks)[self._number]

    def blocks(self, batches: Iterator[Any], upstream_reports: list[Any]) -> Iterator[InputRows]:
        """Yield the rows of the partition; append the reports of upstream fragments to ``upstream_reports``."""
        if self._keyed:
            rows = self._exchanged_rows(batches, upstream_reports)
            return rows if self._state is None else self._state.look_ahead(rows)
        return self._source_rows(batches)

    def _source_rows(self, batches: Iterator[Any]) -> Iterator[InputRows]:
        source, split = self._task.source, self._task.split
        for batch in batches:
            if source is None or not batch.num_rows:
                continue
            records = source.records(batch)
            if split is None:
                yield records
            else:
                yield from split.divided(batch, records)

    def _exchanged_rows(
        self, batches: Iterator[Any], upstream_reports: list[Any]
    ) -> Iterator[InputRows]:
        merger = BlockMerger()
        for batch in batches:
            reports = _reports_in(batch.column("exit"))
            if reports:
                # With our schema: Spark may have inferred that a column is never null, which is another schema.
                columns = batch.slice(0, reports).columns
                upstream_reports.append(pa.RecordBatch.from_arrays(columns, schema=_schema()))
            rows = batch.slice(reports)
            if rows.num_rows:
                self._check_part(rows.column("part"))
            columns = (rows.column(name) for name in ("ts", "input", "place", "payload"))
            for time, number, place, payload in zip(*columns, strict=True):
                data = memoryview(payload.as_buffer())
                record_block = decode_block(data, time.as_py())
                yield from merger.add(time.as_py(), number.as_py(), place.as_py(), record_block)
        yield from merger.end()

    def _check_part(self, parts: Any) -> None:
        for part in (parts[0].as_py(), parts[-1].as_py()):
            if part != self._number:
                raise ConnectorError(
                    f"Spark gave partition {self._number} rows of partition {part}: something between the two has "
                    f"moved rows, such as a setting that coalesces partitions"
                )

    async def work(self, inbox: BridgeInput[InputRows], outbox: BridgeOutput[ExitBatch]) -> None:
        """Run the fragment on the loop of the worker."""
        task = self._task
        interval = task.epoch or task
        partition = Partition(
            subtask=self._number if self._keyed else 0,
            subtasks=task.subtasks if self._keyed else 1,
            until=interval.until,
            begins=interval.begins,
            key_groups=task.key_groups,
            watermarks=None if task.epoch is None else task.epoch.watermarks.of(task.fragment),
            changes=self._state is not None and not self._state.needs_complete_part,
        )
        async with pooled_resources(self._digest, task.fragment, task.flow) as resources:
            self._result = await run_fragment(
                task.fragment,
                partition,
                inbox,
                outbox,
                restored=self._restored,
                selector=self._state,
                calls=task.calls,
                resources=resources,
                flow=task.flow,
            )

    def encoded(self, exit_batch: ExitBatch) -> Any:
        """Return emitted records as rows."""
        exit = exit_batch.exit
        record_blocks = list(self._encoders[exit.number].record_blocks(exit_batch.batch))
        count, place = len(record_blocks), self._place
        self._place += count
        return _rows(
            [exit.number] * count,
            [record_block.part for record_block in record_blocks],
            [exit.input] * count,
            [record_block.time for record_block in record_blocks],
            range(place, place + count),
            [record_block.payload for record_block in record_blocks],
        )

    def state_rows(self, files: dict[int, str]) -> Iterator[Any]:
        """Yield the state and the counts of the partition as rows; ``files`` are the files that it wrote."""
        result = self._result
        if result is None:
            raise ConnectorError(f"partition {self._number} has ended without an end")
        state, part = "", None
        bytes_read = 0
        if self._state is not None:
            part, bytes_read = self._state.write(result.state), self._state.bytes_read
        elif self._keyed and self._task.until is not None:
            chunks = encoded_part(result.state)
            if self._task.state is not None:
                state = write_state(self._task.state, self._number, chunks)
            else:
                for piece, chunk in enumerate(chunks):
                    yield _rows([STATE], [self._number], [0], [piece], [0], [chunk])
        counts = StepCounts(
            fragment=self._task.fragment.index,
            subtask=self._number,
            steps=dict(result.steps),
            exits=dict(result.exits),
            left_out=result.left_out,
            skipped=result.skipped,
            files=files,
            state=state,
            part=part,
            state_read=bytes_read,
            newest=dict(result.newest),
            splits={step: dict(some) for step, some in result.splits.items()},
            counted=dict(result.counted),
            entries=result.entries,
        )
        to = self._number % self._task.subtasks
        yield _rows([REPORT], [to], [0], [MIN_TIMESTAMP], [0], [msgspec.json.encode(counts)])


def _reports_in(exits: Any) -> int:
    """Return the number of reports, which are the first rows: their time is the minimum."""
    return next((at for at, one in enumerate(exits.to_pylist()) if one != REPORT), len(exits))


def _rows(*columns: Sequence[object]) -> Any:
    schema = _schema()
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def _schema() -> Any:
    """Return the Arrow schema of ``LAYOUT``."""
    short, long = pa.int32(), pa.int64()
    kinds = [short, short, short, long, long, pa.binary()]
    names = ["exit", "part", "input", "ts", "place", "payload"]
    return pa.schema(list(zip(names, kinds, strict=True)))


@dataclass(frozen=True, slots=True)
class WithClasses:
    """Content for executors, with the classes of the user's script that its records may have."""

    classes: Mapping[str, type]
    content: Any
    modules: Sequence[str] = ()
    """Modules that are imported before it runs: stored records may be of classes in them."""

    def prepared(self) -> Any:
        """Return the content, after its classes are registered and its modules imported."""
        register_classes(self.classes)
        for module in self.modules:
            import_module(module)
        return self.content


def fragment_function(
    fragment: Fragment,
    plan: FragmentPlan,
    *,
    subtasks: int,
    until: Timestamp | None,
    source: RowsIn[Any] | None,
    files: Mapping[str, FileTarget | None],
    state: Path | None,
    start: Continuation | None = None,
    modules: Sequence[str] = (),
    with_calls: bool = False,
) -> MapBatches:
    """Return the function that runs ``fragment``; ``files`` are sinks whose records are not rows, None if dropped.

    ``start`` is the savepoint from which the backfill continues, and ``modules`` have the classes of its records. With
    ``with_calls`` the fragment ends the calls in it.
    Raises ``FlowDefinitionError`` that names the step that cannot be pickled.
    """
    task = fragment_task(
        fragment,
        plan,
        subtasks=subtasks,
        until=until,
        source=source,
        files=files,
        begins=None if start is None else start.begins,
    )
    task = replace(
        task,
        state=state,
        restored_from=None if start is None else start.folder,
        restored=None if start is None else start.files_of(fragment.head.name),
        calls=start.calls_in(fragment) if start is not None and with_calls else {},
    )
    # A restore imports nothing that stored bytes name: see ``aflow.model.codecs.class_lookup``.
    pickled = pickled_content(task, modules if task.restored is not None or task.calls else ())
    return executor_function(run_partition, pickled, what=description_of(fragment, plan))


def description_of(fragment: Fragment, plan: FragmentPlan) -> str:
    """Return a description of a fragment for messages."""
    return f"fragment {fragment.index} of flow {plan.flow!r}"


def fragment_task(
    fragment: Fragment,
    plan: FragmentPlan,
    *,
    subtasks: int,
    until: Timestamp | None,
    source: RowsIn[Any] | None,
    files: Mapping[str, FileTarget | None],
    begins: Timestamp | None,
    split: SplitColumn | None = None,
) -> FragmentTask:
    """Return the description of ``fragment`` for executors, without its state.

    Arguments and errors are those of ``fragment_function``; ``begins`` is the beginning of the history (epoch ms), and
    ``split`` the column with the splits of the source.
    """
    check_picklable(fragment, dumps)
    exit_list = {exit.number: exit.sink.name for exit in fragment.exits if exit.sink is not None}
    return FragmentTask(
        flow=plan.flow,
        fragment=portable_copy(fragment),
        subtasks=subtasks,
        key_groups=plan.key_groups,
        until=until,
        begins=begins,
        source=source,
        split=split,
        files={
            exit: target
            for exit, name in exit_list.items()
            if (target := files.get(name)) is not None
        },
        dropped=frozenset(
            exit for exit, name in exit_list.items() if name in files and files[name] is None
        ),
    )


def modules_of_plan(plan: FragmentPlan, classes: Iterable[type | None]) -> list[str]:
    """Return the modules to which the fragments and ``classes`` refer: those of the records in their state.

    Raises ``FlowDefinitionError`` that names the step that cannot be pickled.
    """
    for fragment in plan.fragments:
        check_picklable(fragment, dumps)
    return modules_of([*map(portable_copy, plan.fragments), *classes])


def decoder_function(columns: RowsOut, *, sink: str) -> MapBatches:
    """Return the function that makes columns of the rows of a sink."""
    return executor_function(run_decoding, pickled_content(columns), what=f"sink {sink!r}")


def run_partition(payload: Payload[WithClasses], batches: Iterator[Any]) -> Iterator[Any]:
    """Run a fragment over the current partition, on an executor."""
    task: FragmentTask = payload.content.prepared()
    return execute(task, current_partition(), batches, digest=payload.digest)


def current_partition() -> int:
    """Return the number of the partition of the running task, on an executor."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def run_decoding(payload: Payload[WithClasses], batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the columns of a sink's records, on an executor."""
    return decode(payload.content.prepared(), batches)


def pickled_content(content: object, modules: Sequence[str] = ()) -> bytes:
    """Return ``content`` for executors; ``modules`` are imported before it runs."""
    return dumps(WithClasses(classes_of_main(dumps), content, modules))
