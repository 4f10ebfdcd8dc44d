"""One fragment on an executor: its description, pickled on the driver, and its run over a partition.

Arrow batches of a partition are the input, Arrow batches of rows the output. Rows carry records to another fragment or
to a sink, and the state of the partition; if results and state are written to files, a row carries the names of the
files. Neither accumulators nor folders are used: only the rows of the attempt that Spark accepts count, and those of
other attempts are ignored.

Fragments are pickled once, on the driver, so that pickling errors are raised early.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from aflow.backfill.blocks import Block, Leaving
from aflow.backfill.exchange import ExitEncoder, opened
from aflow.backfill.fragment_run import Left, Partition, run_fragment
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.merge import Merging
from aflow.backfill.portable_fragment import check_picklable, shippable
from aflow.backfill.savepoint import encoded_part
from aflow.errors import ConnectorError
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow_connectors.spark.backfill.executor_files import Into, ResultFiles, write_state
from aflow_connectors.spark.backfill.rows import REPORT, STATE, StepCounts
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.columns import RowsIn, RowsOut
from aflow_connectors.spark.executor.bridge import Inbox, Outbox, bridged
from aflow_connectors.spark.executor.functions import MapBatches, Payload, shipped
from aflow_connectors.spark.executor.resource_pool import kept
from aflow_connectors.spark.executor.serialization import adopt, classes_of_main, dumps

#: A row's place combines the fragment, the partition and the number of the record block in it: 2^9, 2^22 and 2^32.
_PARCEL_BITS: Final = 32
_PARTITION_BITS: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Description of a fragment for executors; the same for all partitions."""

    flow: str
    fragment: Fragment
    """Copied by ``shippable``."""
    subtasks: int
    """Number of partitions of keyed fragments."""
    key_groups: int
    until: Timestamp | None
    source: RowsIn[Any] | None = None
    """Converts the rows of a DataFrame to records: for a fragment that begins at a source."""
    files: Mapping[int, Into] = field(default_factory=dict[int, Into])
    """Files that the executor writes itself, by the number of the exit."""
    nowhere: frozenset[int] = frozenset()
    """Exits whose records are counted and dropped."""
    state: Path | None = None
    """Folder into which the executor writes state; None if it emits state as rows."""


def execute(
    orders: Orders, number: int, batches: Iterator[Any], *, digest: str = ""
) -> Iterator[Any]:
    """Run the fragment over partition ``number``, whose rows are the Arrow ``batches``; yield Arrow batches.

    Resources of the calls are kept in this process under ``digest``, which identifies ``orders``.
    """
    passed: list[Any] = []
    execution = _Execution(orders, number, digest)
    leavings = bridged(execution.blocks(batches, passed), execution.work)
    with ResultFiles(orders.files, number) as files, closing(leavings):
        for leaving in leavings:
            way = leaving.way.number
            if way in files:
                files.write(way, leaving.batch.values)
            elif way not in orders.nowhere:
                yield execution.encoded(leaving)
        names = files.finish()
    yield from passed
    yield from execution.left(names)


def decode(columns: RowsOut, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the columns of the record blocks of a sink, on executors."""
    for batch in batches:
        for payload in batch.column("payload"):
            yield columns.batch(opened(memoryview(payload.as_buffer()), 0).values)


class _Execution:
    """One fragment over one partition."""

    def __init__(self, orders: Orders, number: int, digest: str) -> None:
        self._orders = orders
        self._number = number
        self._digest = digest
        self._keyed = orders.fragment.keyed
        self._inputs = len(orders.fragment.head.inputs)
        self._encoders = {
            way.number: ExitEncoder(way, key_groups=orders.key_groups, readers=orders.subtasks)
            for way in orders.fragment.exits
        }
        fragment = orders.fragment.index << _PARTITION_BITS
        #: Place of the next emitted record block.
        self._place = (fragment | number) << _PARCEL_BITS
        self._left: Left | None = None

    def blocks(self, batches: Iterator[Any], passed: list[Any]) -> Iterator[Block]:
        """Yield the rows of the partition; append the reports of upstream fragments to ``passed``."""
        if self._keyed:
            return self._arrived(batches, passed)
        source = self._orders.source
        return (source.records(batch) for batch in batches if source and batch.num_rows)

    def _arrived(self, batches: Iterator[Any], passed: list[Any]) -> Iterator[Block]:
        merging = Merging()
        for batch in batches:
            told = _reports_in(batch.column("exit"))
            if told:
                # With our schema: Spark may have inferred that a column is never null, which is another schema.
                columns = batch.slice(0, told).columns
                passed.append(pa.RecordBatch.from_arrays(columns, schema=_schema()))
            rows = batch.slice(told)
            if rows.num_rows:
                self._check_part(rows.column("part"))
            columns = (rows.column(name) for name in ("ts", "input", "place", "payload"))
            for time, number, place, payload in zip(*columns, strict=True):
                data = memoryview(payload.as_buffer())
                parcel = opened(data, time.as_py())
                yield from merging.add(time.as_py(), number.as_py(), place.as_py(), parcel)
        yield from merging.end()

    def _check_part(self, parts: Any) -> None:
        for part in (parts[0].as_py(), parts[-1].as_py()):
            if part != self._number:
                raise ConnectorError(
                    f"Spark gave partition {self._number} rows of partition {part}: something between the two has "
                    f"moved rows, such as a setting that coalesces partitions"
                )

    async def work(self, inbox: Inbox[Block], outbox: Outbox[Leaving]) -> None:
        """Run the fragment on the loop of the worker."""
        orders = self._orders
        partition = Partition(
            subtask=self._number if self._keyed else 0,
            subtasks=orders.subtasks if self._keyed else 1,
            until=orders.until,
            key_groups=orders.key_groups,
        )
        async with kept(self._digest, orders.fragment, orders.flow) as resources:
            self._left = await run_fragment(
                orders.fragment, partition, inbox, outbox, resources=resources, flow=orders.flow
            )

    def encoded(self, leaving: Leaving) -> Any:
        """Return emitted records as rows."""
        way = leaving.way
        parcels = list(self._encoders[way.number].parcels(leaving.batch))
        count, place = len(parcels), self._place
        self._place += count
        return _rows(
            [way.number] * count,
            [parcel.part for parcel in parcels],
            [way.input] * count,
            [parcel.time for parcel in parcels],
            range(place, place + count),
            [parcel.payload for parcel in parcels],
        )

    def left(self, files: dict[int, str]) -> Iterator[Any]:
        """Yield the state and the counts of the partition as rows; ``files`` are the files that it wrote."""
        left = self._left
        if left is None:
            raise ConnectorError(f"partition {self._number} has ended without an end")
        state = ""
        if self._keyed and self._orders.until is not None:
            chunks = encoded_part(left.state)
            if self._orders.state is not None:
                state = write_state(self._orders.state, self._number, chunks)
            else:
                for piece, chunk in enumerate(chunks):
                    yield _rows([STATE], [self._number], [0], [piece], [0], [chunk])
        counts = StepCounts(
            fragment=self._orders.fragment.index,
            subtask=self._number,
            steps=dict(left.steps),
            exits=dict(left.exits),
            left_out=left.left_out,
            files=files,
            state=state,
        )
        to = self._number % self._orders.subtasks
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
class _WithClasses:
    """Content for executors, with the classes of the user's script that its records may have."""

    classes: Mapping[str, type]
    content: Any


def sent_fragment(
    fragment: Fragment,
    plan: FragmentPlan,
    *,
    subtasks: int,
    until: Timestamp | None,
    source: RowsIn[Any] | None,
    files: Mapping[str, Into | None],
    state: Path | None,
) -> MapBatches:
    """Return the function that runs ``fragment``; ``files`` are sinks whose records are not rows, None if dropped.

    Raises ``FlowDefinitionError`` that names the step that cannot be pickled.
    """
    check_picklable(fragment, dumps)
    ways = {way.number: way.sink.name for way in fragment.exits if way.sink is not None}
    orders = Orders(
        flow=plan.flow,
        fragment=shippable(fragment),
        subtasks=subtasks,
        key_groups=plan.key_groups,
        until=until,
        source=source,
        files={way: into for way, name in ways.items() if (into := files.get(name)) is not None},
        nowhere=frozenset(
            way for way, name in ways.items() if name in files and files[name] is None
        ),
        state=state,
    )
    what = f"fragment {fragment.index} of flow {plan.flow!r}"
    return shipped(run_partition, _pickled(orders), what=what)


def sent_columns(columns: RowsOut, *, sink: str) -> MapBatches:
    """Return the function that makes columns of the rows of a sink."""
    return shipped(run_decoding, _pickled(columns), what=f"sink {sink!r}")


def run_partition(cargo: Payload[_WithClasses], batches: Iterator[Any]) -> Iterator[Any]:
    """Run a fragment over the current partition, on an executor."""
    from pyspark import TaskContext

    adopt(cargo.content.classes)
    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    return execute(cargo.content.content, number, batches, digest=cargo.digest)


def run_decoding(cargo: Payload[_WithClasses], batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the columns of a sink's records, on an executor."""
    adopt(cargo.content.classes)
    return decode(cargo.content.content, batches)


def _pickled(content: object) -> bytes:
    return dumps(_WithClasses(classes_of_main(dumps), content))
