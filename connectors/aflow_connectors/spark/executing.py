"""A fragment of a flow inside an executor: Arrow batches of a partition in, Arrow batches of rows out.

Records on their way to another fragment or to a sink are rows, and so is what the partition leaves. Nothing is told by
accumulators, files or folders: the attempt whose rows Spark takes is the one that counts, and others have not happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from aflow.backfill.blocks import Arrived, Block, Leaving
from aflow.backfill.exchange import ExitEncoder, decoded, decoded_together
from aflow.backfill.fragments import Fragment
from aflow.backfill.running import Left, Partition, run_fragment
from aflow.backfill.savepoint import encoded_part
from aflow.errors import ConnectorError
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow_connectors.spark.arrow import pa
from aflow_connectors.spark.bridge import Inbox, Outbox, bridged
from aflow_connectors.spark.columns import RowsIn, RowsOut
from aflow_connectors.spark.kept import kept
from aflow_connectors.spark.rows import REPORT, STATE, StepCounts

#: A place is the partition, and the number of the row in it: 2^40 rows.
_ROW_BITS: Final = 40

#: Rows of an exchange that are decoded at once, so that nobody waits long for the interpreter.
_DECODED: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What an executor has to know; the same for all partitions of a fragment."""

    flow: str
    fragment: Fragment
    """As ``shippable`` makes it."""
    subtasks: int
    """Partitions of keyed fragments."""
    key_groups: int
    until: Timestamp | None
    source: RowsIn[Any] | None = None
    """Makes records of the rows of a DataFrame: for a fragment that begins at a source."""


def execute(
    orders: Orders, number: int, batches: Iterator[Any], *, digest: str = ""
) -> Iterator[Any]:
    """Run the fragment over partition ``number``, whose rows are the Arrow ``batches``; yields Arrow batches.

    What the calls need is kept in this process under ``digest``, which stands for ``orders``.
    """
    passed: list[Any] = []
    execution = _Execution(orders, number, digest)
    with closing(bridged(execution.blocks(batches, passed), execution.work)) as leavings:
        for leaving in leavings:
            yield execution.encoded(leaving)
    yield from passed
    yield from execution.left()


def decode(columns: RowsOut, batches: Iterator[Any]) -> Iterator[Any]:
    """Columns of the payloads of a sink, in executors."""
    for batch in batches:
        _, records = decoded(batch.column("payload").to_pylist())
        if records:
            yield columns.batch(records)


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
        #: The place of the next row that leaves.
        self._place = number << _ROW_BITS
        self._left: Left | None = None

    def blocks(self, batches: Iterator[Any], passed: list[Any]) -> Iterator[Block]:
        """The rows of the partition; those that fragments before this one tell of themselves go to ``passed``."""
        for batch in batches:
            if self._keyed:
                yield from self._arrived(batch, passed)
            elif self._orders.source is not None and batch.num_rows:
                yield self._orders.source.records(batch)

    def _arrived(self, batch: Any, passed: list[Any]) -> Iterator[Block]:
        told = _reports_in(batch.column("exit").to_numpy().tolist())
        if told:
            passed.append(batch.slice(0, told))
        if told == batch.num_rows:
            return
        rows = batch.slice(told)
        self._check_part(rows.column("part"))
        times = rows.column("ts").to_numpy().tolist()
        count = len(times)
        # A byte of zero for each row, where there is one input only.
        inputs = rows.column("input").to_numpy().tolist() if self._inputs > 1 else bytes(count)
        payloads = rows.column("payload")
        for at in range(0, count, _DECODED):
            stop = min(at + _DECODED, count)
            keys, values = decoded_together(_together(payloads, at, stop), stop - at)
            yield Arrived(inputs=inputs[at:stop], times=times[at:stop], keys=keys, values=values)

    def _check_part(self, parts: Any) -> None:
        for part in (parts[0].as_py(), parts[-1].as_py()):
            if part != self._number:
                raise ConnectorError(
                    f"Spark gave partition {self._number} rows of partition {part}: something between the two has "
                    f"moved rows, such as a setting that coalesces partitions"
                )

    async def work(self, inbox: Inbox[Block], outbox: Outbox[Leaving]) -> None:
        """What runs on the loop of the worker."""
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
        """Records that leave, as rows."""
        way = leaving.way
        rows = self._encoders[way.number].rows(leaving.batch)
        count = len(rows.payloads)
        first, self._place = self._place, self._place + count
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(way.number, pa.int32()), count),
                _column(rows.parts, count, pa.int32()),
                pa.repeat(pa.scalar(way.input, pa.int32()), count),
                _column(rows.times, count, pa.int64()),
                _counted(first, count),
                pa.array(rows.payloads, pa.binary()),
            ],
            schema=_schema(),
        )

    def left(self) -> Iterator[Any]:
        """What the partition leaves, as rows."""
        left = self._left
        if left is None:
            raise ConnectorError(f"partition {self._number} has ended without an end")
        if self._keyed and self._orders.until is not None:
            for piece, chunk in enumerate(encoded_part(left.state)):
                yield _row(STATE, self._number, 0, piece, 0, chunk)
        counts = StepCounts(
            fragment=self._orders.fragment.index,
            subtask=self._number,
            steps=dict(left.steps),
            exits=dict(left.exits),
            left_out=left.left_out,
        )
        to = self._number % self._orders.subtasks
        yield _row(REPORT, to, 0, MIN_TIMESTAMP, 0, msgspec.json.encode(counts))


def _reports_in(exits: list[int]) -> int:
    """How many rows are reports: they come first, since they are at the beginning of time."""
    return next((at for at, one in enumerate(exits) if one != REPORT), len(exits))


def _together(column: Any, start: int, stop: int) -> memoryview:
    """The bytes of rows of a binary column, as they stand one behind the other in Arrow."""
    _, offsets, data = column.buffers()
    places: Any = memoryview(offsets).cast("i")
    first, end = places[column.offset + start], places[column.offset + stop]
    return memoryview(b"" if data is None else data)[first:end]


def _counted(first: int, count: int) -> Any:
    """``count`` numbers from ``first`` on."""
    import numpy as np  # which comes with pandas

    return pa.array(np.arange(first, first + count))


def _column(values: list[int], count: int, kind: Any) -> Any:
    """``values``, or zeros where there are none."""
    return pa.array(values, kind) if values else pa.repeat(pa.scalar(0, kind), count)


def _row(*values: object) -> Any:
    schema = _schema()
    arrays = [pa.array([one], field.type) for one, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def _schema() -> Any:
    """``LAYOUT``, as Arrow has it."""
    short, long = pa.int32(), pa.int64()
    kinds = [short, short, short, long, long, pa.binary()]
    names = ["exit", "part", "input", "ts", "place", "payload"]
    return pa.schema(list(zip(names, kinds, strict=True)))
