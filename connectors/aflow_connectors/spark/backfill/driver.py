"""A running backfill on the driver: its Spark jobs and the results that it writes. All methods block.

Each fragment is one pass. Its output is written once, to a staging folder, and read from there, except for results and
state that executors write themselves (``result_files``, ``state_files``): a second action on the same DataFrame would
run the fragment again and repeat the calls of users' services. Only a fragment that begins at a source and sends all
its output to one other fragment is not written: it runs in the same Spark job as its reader, upstream of the shuffle.

Results are written before the savepoint, and the manifest of the savepoint last. So if the savepoint exists, everything
is done except for output that ``destinations`` has prepared and that the live job commits.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from aflow.backfill.continuation import Continuation
from aflow.backfill.exchange import decode_block
from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.savepoint import SAVEPOINT, StatePart, check_savepoint_path, write_savepoint
from aflow.connect import Committable, ConnectorError
from aflow.model.time import Timestamp
from aflow_connectors.spark.backfill.destinations import (
    AnyDestination,
    FilesDestination,
    TableDestination,
)
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner
from aflow_connectors.spark.backfill.fragment_task import decoder_function
from aflow_connectors.spark.backfill.results import Backfilled, StepDone
from aflow_connectors.spark.backfill.rows import StepCounts, files_into, records_into
from aflow_connectors.spark.dataframe.columns import RowsOut
from aflow_connectors.spark.dataframe.schema import declared, inferred, spark_schema
from aflow_connectors.spark.executor.functions import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Seconds to wait at the end of a backfill for a thread that still writes.
_PATIENCE: Final = 10

#: Record blocks of a sink from which columns are inferred if none are declared.
_SAMPLE: Final = 16


@dataclass(slots=True, kw_only=True)
class Backfill:
    """One running backfill; its methods block."""

    plan: FragmentPlan
    sinks: Mapping[str, AnyDestination | None]
    until: Timestamp | None
    savepoint: Path | None
    shared: str
    staging: FragmentRunner
    start: Continuation | None = None
    """Savepoint from which it continues."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    #: Committables for the savepoint, by sink.
    _prepared: dict[str, Sequence[Committable]] = field(
        init=False, default_factory=dict[str, Sequence[Committable]]
    )
    #: Held while results or the savepoint are written; a cancelled backfill may no longer wait for the writing thread.
    _write_lock: Lock = field(init=False, default_factory=Lock)
    #: Set when the caller no longer waits: no savepoint is written after that.
    _cancelled: bool = field(init=False, default=False)

    def description(self, fragment: Fragment) -> str:
        """Return a description of the fragments that run with ``fragment``, for messages."""
        *first, last = map(str, self.staging.together(fragment))
        which = f"fragments {', '.join(first)} and {last}" if first else f"fragment {last}"
        return f"{which} of flow {self.plan.flow!r}"

    def begin(self) -> None:
        """Create the folders in which executors write results and state.

        If it continues from a savepoint, restore the output to the state at that savepoint.
        """
        with self._exclusively():
            for destination in self._destinations():
                destination.begin()
            self._check_savepoint_is_new()
            if self.start is not None:
                for destination in self._destinations():
                    destination.recover()
            self.staging.begin()

    def run(self, fragment: Fragment) -> None:
        """Run a fragment, or register it to run with its reader."""
        began = time.monotonic()
        self.staging.run(fragment)
        if not self.staging.runs_with_reader(fragment):
            self._record_time(f"fragment {fragment.index}", began)

    def write(self, sink: str) -> None:
        """Write or prepare the results of a sink."""
        began = time.monotonic()
        destination = self.sinks[sink]
        if destination is None:
            return
        with self._exclusively():
            self._check_savepoint_is_new()
            match destination:
                case FilesDestination():
                    self._prepared[sink] = destination.prepare(self._files_into(sink))
                case TableDestination():
                    self._prepared[sink] = self._write_table(sink, destination)
        self._record_time(f"results of {sink}", began)

    def save(self) -> None:
        """Write the savepoint if one was requested, and make prepared output visible."""
        began = time.monotonic()
        with self._exclusively():
            if self.savepoint is not None and self.until is not None:
                write_savepoint(
                    self.savepoint,
                    self.plan,
                    self._parts(),
                    until=self.until,
                    created_at=time.time_ns() // 1_000_000,
                    number=self._number,
                    prepared=self._prepared_output(),
                )
            for destination in self._destinations():
                destination.publish()
        self._record_time("savepoint", began)

    def done(self) -> Backfilled:
        """Return the summary of the backfill."""
        counts = self.staging.counts()
        return Backfilled(
            flow=self.plan.flow,
            until=self.until,
            savepoint=self.savepoint,
            steps=tuple(self._steps(counts)),
            results={sink: self._records_into(sink) for sink in self.sinks},
            left_out=sum(one.left_out for one in counts),
            partitions=self.staging.partitions,
            restored=None if self.start is None else self.start.folder,
            begins=None if self.start is None else self.start.begins,
            skipped=sum(one.skipped for one in counts),
            seconds=self.seconds,
        )

    def end(self) -> None:
        """Remove temporary data: prepared output that is not visible, and the staging folder."""
        self._cancelled = True
        # If a thread still writes, its prepared output is kept: it is invisible, and the next run removes it.
        if self._write_lock.acquire(timeout=_PATIENCE):
            try:
                for destination in self._destinations():
                    destination.drop()
            finally:
                self._write_lock.release()
        self.staging.end()

    @contextmanager
    def _exclusively(self) -> Generator[None]:
        with self._write_lock:
            self._check_not_cancelled()
            yield

    def _check_savepoint_is_new(self) -> None:
        """Raise ``CheckpointError`` if another backfill has written the savepoint: its output must be kept."""
        if self.savepoint is not None:
            check_savepoint_path(self.savepoint)

    def _check_not_cancelled(self) -> None:
        if self._cancelled:
            raise ConnectorError(f"the backfill of flow {self.plan.flow!r} was cancelled")

    @property
    def _number(self) -> int:
        """Return the number of the savepoint that is written."""
        return SAVEPOINT if self.start is None else self.start.number

    def _prepared_output(self) -> dict[str, Sequence[tuple[int, Committable]]]:
        """Return the output that the live job commits, by sink.

        Output that an earlier savepoint names is committed here, for sinks that are written again, or else by the live
        job.
        """
        prepared: dict[str, Sequence[tuple[int, Committable]]] = {}
        if self.start is not None:
            prepared.update(self.start.prepared)
        for sink, some in self._prepared.items():
            if some:
                prepared[sink] = [(self._number, one) for one in some]
        return prepared

    def _parts(self) -> Iterator[StatePart]:
        yield from self.staging.parts()
        # The savepoint gets its name right after the last part.
        self._check_not_cancelled()

    def _write_table(self, sink: str, destination: TableDestination) -> Sequence[Committable]:
        table = table_of_exits(
            self.staging, self.plan.exits_into(sink), sink, destination.columns()
        )
        scratch = f"{self.shared}/results-{len(self._prepared)}"
        return destination.write(table, records=self._records_into(sink), scratch=scratch)

    def _destinations(self) -> list[AnyDestination]:
        return [one for one in self.sinks.values() if one is not None]

    def _steps(self, counts: Iterable[StepCounts]) -> Iterator[StepDone]:
        summed: dict[tuple[int, str], tuple[int, int]] = {}
        for one in counts:
            for name, (records_in, records_out) in one.steps.items():
                before = summed.get((one.fragment, name), (0, 0))
                summed[one.fragment, name] = (before[0] + records_in, before[1] + records_out)
        for fragment in self.plan.fragments:
            for node in fragment.nodes:
                records_in, records_out = summed.get((fragment.index, node.name), (0, 0))
                yield StepDone(fragment.index, node.name, records_in, records_out)

    def _records_into(self, sink: str) -> int:
        return records_into(self.plan.exits_into(sink), self.staging.counts())

    def _files_into(self, sink: str) -> list[str]:
        return files_into(self.plan.exits_into(sink), self.staging.counts())

    def _record_time(self, description: str, began: float) -> None:
        self.seconds[description] = time.monotonic() - began


def table_of_exits(
    runner: FragmentRunner,
    exits: Sequence[tuple[Fragment, Exit]],
    sink: str,
    schema: StructType | None,
) -> DataFrame | None:
    """Return the records of the exits into a sink, with the columns of ``schema``.

    Without ``schema`` the columns are those of the first records; None if there are no records either.
    """
    rows = runner.rows_of_exits(exits)
    schema = schema or _first_columns(rows, sink)
    if schema is None:
        return None
    owner = f"sink {sink!r}"
    columns = RowsOut(declared(schema, owner=owner), owner=owner)
    return map_in_arrow(rows, decoder_function(columns, sink=sink), schema)


def _first_columns(rows: DataFrame, sink: str) -> StructType | None:
    """Return the columns of the first records of a sink; None if it has no records."""
    owner = f"sink {sink!r}"
    sample = rows.select("payload").limit(_SAMPLE).collect()
    records = [one for row in sample for one in decode_block(bytes(row.payload), 0).values]
    return spark_schema(inferred(records, owner=owner), owner=owner) if records else None
