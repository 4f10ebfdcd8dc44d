"""The fragments of a plan as Spark jobs, and where their rows are in between.

Rows between fragments have no order but that of their columns. A keyed fragment reads the exchanges shuffled by key
group and sorted by event time, input and place: each partition has what a live subtask of that number would get, in the
order of event time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.savepoint import LeftPart
from aflow.model.time import MIN_TIMESTAMP
from aflow_connectors.spark.paths import path_of
from aflow_connectors.spark.rows import LAYOUT, REPORT, STATE, StepCounts
from aflow_connectors.spark.shipping import MapBatches, mapped
from aflow_connectors.spark.staged_files import Piece, files_of, payloads, pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS: Final = ("exit", "part", "input", "ts", "place", "payload")


@dataclass(slots=True)
class Staging:
    """Runs fragments and keeps what comes of them in ``folder``, which executors and driver see alike. Blocks."""

    session: SparkSession
    plan: FragmentPlan
    folder: str
    partitions: int
    """Of keyed fragments."""
    function: Callable[[Fragment], MapBatches]
    """What is mapped over the Arrow batches of a fragment's partitions."""
    rows: Callable[[Fragment], DataFrame]
    """The rows of a source."""
    _frames: dict[int, DataFrame] = field(default_factory=dict[int, "DataFrame"])
    #: Fragments whose rows are in the folder.
    _written: list[int] = field(default_factory=list[int])

    def run(self, fragment: Fragment) -> None:
        """Run ``fragment``; those before it have run."""
        frame = mapped(self._input(fragment), self.function(fragment), LAYOUT)
        if not self.goes_with_reader(fragment):
            frame = self._stored(fragment, frame)
        self._frames[fragment.index] = frame

    def goes_with_reader(self, fragment: Fragment) -> bool:
        """True if the fragment is no pass of its own: all that it has goes through one shuffle."""
        readers = {way.reader for way in fragment.exits}
        return not fragment.keyed and len(readers) == 1 and None not in readers

    def together(self, fragment: Fragment) -> list[int]:
        """The fragments that run when ``fragment`` does, by their indexes."""
        feeding = {one.index: one for one, _ in self.plan.feeding(fragment)}
        return [
            *(index for index, one in feeding.items() if self.goes_with_reader(one)),
            fragment.index,
        ]

    def leaving_by(self, ways: list[tuple[Fragment, Exit]]) -> DataFrame:
        """The rows of exits."""
        by_fragment: dict[int, list[int]] = {}
        for fragment, way in ways:
            by_fragment.setdefault(fragment.index, []).append(way.number)
        frames = [self._with(index, exits) for index, exits in by_fragment.items()]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def parts(self) -> Iterator[LeftPart]:
        """The state that keyed fragments have left, fragment by fragment."""
        for fragment in self.plan.fragments:
            if fragment.keyed:
                for part, some in groupby(self._pieces(fragment.index), key=itemgetter(0)):
                    chunks = (chunk for _, _, chunk in some)
                    yield LeftPart(fragment, part, self.partitions, chunks)

    def counts(self) -> list[StepCounts]:
        """What the partitions tell of themselves."""
        return [
            msgspec.json.decode(payload, type=StepCounts)
            for index in self._written
            for payload in self._reports(index)
        ]

    def _reports(self, index: int) -> Iterator[bytes]:
        files = files_of(self._folder(index), REPORT)
        if files is not None:
            return payloads(files)
        rows = self._with(index, [REPORT]).select("payload").collect()
        return (bytes(row.payload) for row in rows)

    def _pieces(self, index: int) -> Iterator[Piece]:
        """The state that a fragment has left, by part and number."""
        files = files_of(self._folder(index), STATE)
        found = None if files is None else pieces(files)
        if found is not None:
            return found
        rows = self._with(index, [STATE]).select("part", "ts", "payload")
        ordered = rows.orderBy("part", "ts").toLocalIterator()
        return ((int(row.part), int(row.ts), bytes(row.payload)) for row in ordered)

    def _folder(self, index: int) -> Path | None:
        """Where the rows of a fragment are, if that may be on this machine."""
        return path_of(self._uri(index))

    def _uri(self, index: int) -> str:
        return f"{self.folder}/fragment-{index}"

    def _input(self, fragment: Fragment) -> DataFrame:
        if not fragment.keyed:
            return self.rows(fragment)
        rows = self.leaving_by(self.plan.feeding(fragment)).unionByName(self._seeds(fragment))
        parted = rows.repartitionById(self.partitions, "part")
        return parted.sortWithinPartitions("ts", "input", "place")

    def _seeds(self, fragment: Fragment) -> DataFrame:
        """A row for each partition, a report of nothing: Spark leaves out all of an exchange that has no rows.

        Each partition leaves state, also where no record has come before the end of the history.
        """
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

    def _with(self, index: int, exits: list[int]) -> DataFrame:
        frame = self._frames[index]
        if index not in self._written:
            return frame  # all that it has goes the same way
        return frame.where(frame.exit.isin(exits)).select(*_COLUMNS)

    def _stored(self, fragment: Fragment, frame: DataFrame) -> DataFrame:
        path = self._uri(fragment.index)
        frame.write.mode("overwrite").partitionBy("exit").parquet(path)  # each is read by itself
        self._written.append(fragment.index)
        return self.session.read.schema(LAYOUT).parquet(path)
