"""The fragments of a plan as Spark jobs, and their output between fragments.

Rows between fragments have no order except that of their columns. A keyed fragment reads its exchanges shuffled by key
group and sorted by event time, input and place: each partition receives the rows of the live subtask of that number, in
the order of event time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.savepoint import StatePart
from aflow.connect import ConnectorError
from aflow.model.time import MIN_TIMESTAMP
from aflow_connectors.spark.backfill.executor_files import files_of, payloads, read_state
from aflow_connectors.spark.backfill.folders import (
    StagingFolder,
    path_of,
    remove_folder,
    remove_stale,
)
from aflow_connectors.spark.backfill.rows import LAYOUT, REPORT, STATE, StepCounts, layout
from aflow_connectors.spark.executor.functions import MapBatches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log: Final = logging.getLogger("aflow.spark")

#: Columns by which the rows of a partition are ordered.
_ORDER: Final = ("ts", "input", "place")


@dataclass(slots=True)
class ReusedPlans:
    """Parts of Spark's plans that are equal in each epoch of a stream, for runners of one plan.

    A column or DataFrame takes several calls of the JVM to make, and none to use again. Only for classic sessions:
    their columns belong to no session.
    """

    _columns: dict[str, Column] = field(default_factory=dict[str, "Column"])
    _empty_reports: dict[int, DataFrame] = field(default_factory=dict[int, "DataFrame"])

    def column(self, name: str) -> Column:
        """Return the column of a name, of any DataFrame."""
        if name not in self._columns:
            from pyspark.sql import functions

            self._columns[name] = functions.col(name)
        return self._columns[name]

    def empty_reports(self, fragment: Fragment, make: Callable[[], DataFrame]) -> DataFrame:
        """Return the empty reports of a fragment, which ``make`` returns at first."""
        if fragment.index not in self._empty_reports:
            self._empty_reports[fragment.index] = make()
        return self._empty_reports[fragment.index]


@dataclass(slots=True)
class FragmentRunner:
    """Run fragments and keep their output in ``folder``, which executors and driver share. Methods block."""

    session: SparkSession
    plan: FragmentPlan
    folder: str
    partitions: int
    """Number of partitions of keyed fragments."""
    function: Callable[[Fragment], MapBatches]
    """Function mapped over the Arrow batches of a fragment's partitions."""
    rows: Callable[[Fragment], DataFrame]
    """Rows of a source."""
    written_by_executors: frozenset[str]
    """Sinks whose records are not emitted as rows."""
    state: Path | None
    """Folder into which executors write state; None if they emit it as rows."""
    calls: Callable[[Fragment], MapBatches | None] = lambda _: None
    """Function that ends the calls of a live job in a fragment of a source, without rows; None if it has none."""
    private: bool = False
    """True if the folder is in a shared temporary directory."""
    pattern: str = "aflow-*"
    """Pattern of the names of staging folders of other backfills in the same parent."""
    reused: ReusedPlans | None = None
    """Of all runners of the same plan with as many partitions; None if this is the only one."""
    #: Claim of the folder, if this process created it.
    _claimed: StagingFolder | None = None
    _frames: dict[int, DataFrame] = field(default_factory=dict[int, "DataFrame"])
    #: Fragments whose rows are in the folder.
    _written: set[int] = field(default_factory=set[int])
    #: Reports of partitions that were read, by fragment.
    _counts: dict[int, list[StepCounts]] = field(default_factory=dict[int, list[StepCounts]])

    def begin(self) -> None:
        """Create and claim the folder, and remove those of killed drivers next to it. Raises ``ConnectorError``."""
        if self.state is not None:
            folder = self.state.parent
            for gone in remove_stale(folder.parent, self.pattern):
                _log.info("removed %s, the staging folder of a killed driver", gone)
            try:
                self._claimed = StagingFolder(folder, private=self.private)
                self.state.mkdir()
            except OSError as exc:
                raise ConnectorError(
                    f"cannot make the staging folder {self.state.parent}: {exc.strerror or exc}"
                ) from exc

    def end(self) -> None:
        """Remove the folder if the driver can."""
        folder = path_of(self.folder)
        if self._claimed is not None:
            self._claimed.remove()
            self._claimed = None
        elif folder is not None:
            remove_folder(folder)

    def run(self, fragment: Fragment) -> None:
        """Run ``fragment``, after its upstream fragments."""
        frame = map_in_arrow(self._input(fragment), self.function(fragment), layout())
        calls = self.calls(fragment)
        if calls is not None:
            # One partition more. Its number, by which it orders its output, is not that of another one.
            alone = map_in_arrow(self.session.range(0, 1, 1, 1), calls, layout())
            frame = frame.unionByName(alone)
        if self.runs_with_reader(fragment):
            self._frames[fragment.index] = frame
        elif self._only_reports(fragment):
            # All columns: a report is one row of its partition, and ``select`` takes more calls of the JVM.
            self._counts[fragment.index] = _decoded(_collected(frame))
        else:
            self._frames[fragment.index] = self._stored(fragment, frame)

    def runs_with_reader(self, fragment: Fragment) -> bool:
        """Return True if the fragment needs no Spark job of its own: all its output enters one shuffle."""
        readers = {exit.reader for exit in fragment.exits}
        return not fragment.keyed and len(readers) == 1 and None not in readers

    def _only_reports(self, fragment: Fragment) -> bool:
        """Return True if it emits only reports: Spark would take some tenths of a second to write and read them."""
        by_rows = [
            exit
            for exit in fragment.exits
            if exit.sink is None or exit.sink.name not in self.written_by_executors
        ]
        return self.state is not None and not by_rows

    def together(self, fragment: Fragment) -> list[int]:
        """Return the indexes of the fragments that run with ``fragment``."""
        inputs_of = {one.index: one for one, _ in self.plan.inputs_of(fragment)}
        return [
            *(index for index, one in inputs_of.items() if self.runs_with_reader(one)),
            fragment.index,
        ]

    def rows_of_exits(self, exit_list: Sequence[tuple[Fragment, Exit]]) -> DataFrame:
        """Return the rows of exits."""
        by_fragment: dict[int, list[int]] = {}
        for fragment, exit in exit_list:
            by_fragment.setdefault(fragment.index, []).append(exit.number)
        frames = [self._with(index, exits) for index, exits in by_fragment.items()]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def parts(self) -> Iterator[StatePart]:
        """Yield the state of keyed fragments."""
        if self.state is None:
            yield from self._parts_in_rows()
            return
        fragments = {one.index: one for one in self.plan.fragments}
        for one in self.counts():
            if one.state:
                chunks = read_state(self.state, one.state)
                yield StatePart(fragments[one.fragment], one.subtask, self.partitions, chunks)

    def counts(self) -> list[StepCounts]:
        """Return the counts that partitions reported."""
        for index in self._written - self._counts.keys():
            self._counts[index] = _decoded(self._reports(index))
        return [one for some in self._counts.values() for one in some]

    def _reports(self, index: int) -> Iterator[bytes]:
        files = files_of(self._folder(index), REPORT)
        if files is not None:
            return payloads(files)
        return _collected(self._with(index, [REPORT]).select("payload"))

    def _parts_in_rows(self) -> Iterator[StatePart]:
        for fragment in self.plan.fragments:
            if fragment.keyed:
                rows = self._with(fragment.index, [STATE]).select("part", "ts", "payload")
                ordered = rows.orderBy("part", "ts").toLocalIterator()
                for part, some in groupby(ordered, key=attrgetter("part")):
                    chunks = (bytes(row.payload) for row in some)
                    yield StatePart(fragment, int(part), self.partitions, chunks)

    def _folder(self, index: int) -> Path | None:
        """Return the folder with the rows of a fragment, if it may be on this machine."""
        return path_of(self._uri(index))

    def _uri(self, index: int) -> str:
        return f"{self.folder}/fragment-{index}"

    def _input(self, fragment: Fragment) -> DataFrame:
        if not fragment.keyed:
            return self.rows(fragment)
        rows = self.rows_of_exits(self.plan.inputs_of(fragment)).unionByName(
            self._empty_reports(fragment)
        )
        parted = rows.repartitionById(self.partitions, self._column("part"))
        return parted.sortWithinPartitions(*map(self._column, _ORDER))

    def _column(self, name: str) -> Column | str:
        return name if self.reused is None else self.reused.column(name)

    def _empty_reports(self, fragment: Fragment) -> DataFrame:
        """Return an empty report for each partition: Spark skips an exchange without rows.

        Each partition must emit state, even if none of its records precedes the end of the history.
        """

        def make() -> DataFrame:
            nothing = StepCounts(fragment.index, 0, {}, {}, 0)
            row = {
                "exit": str(REPORT),
                "part": "CAST(id AS INT)",
                "input": "0",
                "ts": f"CAST('{MIN_TIMESTAMP}' AS BIGINT)",
                "place": "0L",
                "payload": f"CAST('{msgspec.json.encode(nothing).decode()}' AS BINARY)",
            }
            columns = (f"{value} AS {name}" for name, value in row.items())
            return self.session.range(0, self.partitions, 1, 1).selectExpr(*columns)

        return make() if self.reused is None else self.reused.empty_reports(fragment, make)

    def _with(self, index: int, exits: list[int]) -> DataFrame:
        frame = self._frames[index]
        if index not in self._written:
            return frame  # all that it has goes the same way
        return frame.where(frame.exit.isin(exits)).select(*LAYOUT)

    def _stored(self, fragment: Fragment, frame: DataFrame) -> DataFrame:
        path = self._uri(fragment.index)
        frame.write.mode("overwrite").partitionBy("exit").parquet(path)  # each is read by itself
        self._written.add(fragment.index)
        return self.session.read.schema(layout()).parquet(path)


def _collected(frame: DataFrame) -> Iterator[bytes]:
    return (bytes(row.payload) for row in frame.collect())


def _decoded(reports: Iterable[bytes]) -> list[StepCounts]:
    return [msgspec.json.decode(one, type=StepCounts) for one in reports]
