"""A backfill under way, on the driver: what it runs on Spark, and what it writes. All of it blocks.

Each fragment is one pass. What comes of it is written once, to a staging folder, and read from there: a second action
on the same DataFrame would run it again, and call users' services twice. Only a fragment that begins at a source and
sends all it has to one other is not written: it runs in the same Spark job as its reader, in front of the shuffle.

Results come before the savepoint, whose manifest comes last: if there is a savepoint, all is done, but for what
``destinations`` has prepared and the live job would show.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from aflow.backfill.exchange import opened
from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.savepoint import check_savepoint_path, write_savepoint
from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Timestamp
from aflow_connectors.spark.columns import RowsIn, RowsOut
from aflow_connectors.spark.done import Backfilled, StepDone
from aflow_connectors.spark.results import Place, Results
from aflow_connectors.spark.rows import StepCounts
from aflow_connectors.spark.schemas import declared, inferred, spark_schema
from aflow_connectors.spark.sending import sent_columns, sent_fragment
from aflow_connectors.spark.shipping import mapped
from aflow_connectors.spark.source import SparkSource
from aflow_connectors.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from aflow_connectors.spark.backfill import Rows

#: Parcels of a sink whose records say which columns there are, where nobody else does.
_SAMPLE: Final = 16


def prepared(
    plan: FragmentPlan,
    session: SparkSession,
    sources: Mapping[str, Rows],
    sinks: Mapping[str, Place],
    *,
    until: Timestamp | None,
    savepoint: str | PathLike[str] | None,
    partitions: int | None,
    staging: str | None,
) -> Backfill:
    """A backfill that can begin, as far as can be checked before. Raises as ``backfill``."""
    if (until is None) != (savepoint is None):
        raise FlowDefinitionError(
            "a savepoint is where a live job goes on at the end of the history: give backfill() both until= and "
            "savepoint=, or neither"
        )
    folder = None if savepoint is None else check_savepoint_path(savepoint)
    shared = _shared(staging, folder, session)
    count = _partitions(partitions, session, plan.key_groups)
    orders = {
        one.index: sent_fragment(
            one, plan, subtasks=count, until=until, source=_rows_in(sources.get(one.head.name), one)
        )
        for one in plan.fragments
    }
    return Backfill(
        session=session,
        plan=plan,
        sinks=_destinations(sinks, session),
        until=until,
        savepoint=folder,
        shared=shared,
        staging=Staging(
            session,
            plan,
            shared,
            count,
            function=lambda one: orders[one.index],
            rows=lambda one: _frame(sources[one.head.name]),
        ),
    )


@dataclass(slots=True, kw_only=True)
class Backfill:
    """One backfill under way; its methods block."""

    session: SparkSession
    plan: FragmentPlan
    sinks: Mapping[str, Results | None]
    until: Timestamp | None
    savepoint: Path | None
    shared: str
    staging: Staging
    counted: dict[str, int] = field(default_factory=dict[str, int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def run(self, fragment: Fragment) -> None:
        """Run a fragment, or note that it runs with its reader."""
        began = time.monotonic()
        self.staging.run(fragment)
        if not self.staging.goes_with_reader(fragment):
            self._took(f"fragment {fragment.index}", began)

    def write(self, sink: str) -> None:
        """Write the results of a sink."""
        began = time.monotonic()
        results = self.sinks[sink]
        if results is not None:
            rows = self.staging.leaving_by(self._into(sink))
            schema = _schema_of(results, rows, sink)
            if schema is not None:
                owner = f"sink {sink!r}"
                columns = RowsOut(declared(schema, owner=owner), owner=owner)
                results.write(mapped(rows, sent_columns(columns, sink=sink), schema))
            self._took(f"results of {sink}", began)

    def save(self) -> None:
        """Write the savepoint, if there is to be one."""
        began = time.monotonic()
        if self.savepoint is not None and self.until is not None:
            now = time.time_ns() // 1_000_000
            parts = self.staging.parts()
            write_savepoint(self.savepoint, self.plan, parts, until=self.until, created_at=now)
            self._took("savepoint", began)

    def done(self) -> Backfilled:
        """What was done."""
        counts = self.staging.counts()
        steps = tuple(self._steps(counts))
        return Backfilled(
            flow=self.plan.flow,
            until=self.until,
            savepoint=self.savepoint,
            steps=steps,
            results={sink: self._records_into(sink, counts) for sink in self.sinks},
            left_out=sum(one.left_out for one in counts),
            partitions=self.staging.partitions,
            seconds=self.seconds,
        )

    def _steps(self, counts: Iterable[StepCounts]) -> Iterator[StepDone]:
        summed: dict[tuple[int, str], tuple[int, int]] = {}
        for one in counts:
            for name, (came, went) in one.steps.items():
                before = summed.get((one.fragment, name), (0, 0))
                summed[one.fragment, name] = (before[0] + came, before[1] + went)
        for fragment in self.plan.fragments:
            for node in fragment.nodes:
                came, went = summed.get((fragment.index, node.name), (0, 0))
                yield StepDone(fragment.index, node.name, came, went)

    def _into(self, sink: str) -> list[tuple[Fragment, Exit]]:
        return [
            (one, way)
            for one in self.plan.fragments
            for way in one.exits
            if way.sink is not None and way.sink.name == sink
        ]

    def _records_into(self, sink: str, counts: Iterable[StepCounts]) -> int:
        numbers = {way.number for _, way in self._into(sink)}
        return sum(count for one in counts for way, count in one.exits.items() if way in numbers)

    def _took(self, what: str, began: float) -> None:
        self.seconds[what] = time.monotonic() - began

    def remove_staging(self) -> None:
        """Remove what went between fragments, where that is a folder that this machine sees."""
        path = Path(unquote(urlsplit(self.shared).path))
        if urlsplit(self.shared).scheme in ("", "file"):
            shutil.rmtree(path, ignore_errors=True)


def _schema_of(results: Results, rows: DataFrame, sink: str) -> StructType | None:
    """The columns of what a sink got; None if it got nothing, and nobody says what it would have been."""
    owner = f"sink {sink!r}"
    if results.schema is not None:
        return spark_schema(results.schema, owner=owner)
    sample = rows.select("payload").limit(_SAMPLE).collect()
    records = [one for row in sample for one in opened(bytes(row.payload), 0).values]
    return spark_schema(inferred(records, owner=owner), owner=owner) if records else None


def _results(place: Place) -> Results | None:
    return place if place is None or isinstance(place, Results) else Results(to=place)


def _rows_in(rows: Rows | None, fragment: Fragment) -> RowsIn[Any] | None:
    """What makes records of a source; None for a fragment that has none."""
    if rows is None or fragment.keyed:
        return None
    frame, of = _frame(rows), _class(rows)
    return RowsIn(frame.columns, of, owner=f"source {fragment.head.name!r}")


def _frame(rows: Rows) -> DataFrame:
    return rows.dataframe() if isinstance(rows, SparkSource) else rows


def _class(rows: Rows) -> type[Any] | None:
    return rows.of if isinstance(rows, SparkSource) else None


def _shared(staging: str | None, savepoint: Path | None, session: SparkSession) -> str:
    """The URI of a new folder that driver and executors see alike: in ``staging``, or beside the savepoint."""
    if staging is not None:
        return f"{staging.rstrip('/')}/aflow-{uuid4().hex}"
    if savepoint is not None:
        beside = savepoint.absolute()
        return (beside.parent / f".{beside.name}.{uuid4().hex}.staging").as_uri()
    if not (session.conf.get("spark.master", "local") or "").startswith("local"):
        raise FlowDefinitionError(
            "without a savepoint, backfill() needs staging=, a folder that driver and executors see alike"
        )
    return Path(tempfile.mkdtemp(prefix="aflow-staging-")).as_uri()


def _partitions(wanted: int | None, session: SparkSession, key_groups: int) -> int:
    if wanted is None:
        return min(int(session.conf.get("spark.sql.shuffle.partitions") or 200), key_groups)
    if type(wanted) is not int or not 1 <= wanted <= key_groups:
        raise FlowDefinitionError(
            f"partitions= is a number from 1 to the number of key groups, {key_groups}, not {shown(wanted)}"
        )
    return wanted
