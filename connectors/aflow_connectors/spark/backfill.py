"""A flow over history on Spark: its fragments one after the other on the executors, then results and savepoint.

Each fragment is one pass. What comes of it is written once, to a staging folder, and read from there: a second action
on the same DataFrame would run it again, and call users' services twice. Only a fragment that begins at a source and
sends all it has to one other is not written: it runs in the same Spark job as its reader, in front of the shuffle.

Results come before the savepoint, whose manifest comes last: if there is a savepoint, all is done.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from anyio import to_thread

from aflow.backfill.cutting import cut
from aflow.backfill.drawing import explain as drawn
from aflow.backfill.ends import Build, built, check_ends
from aflow.backfill.fragments import Exit, Fragment, FragmentPlan
from aflow.backfill.savepoint import check_savepoint_path, write_savepoint
from aflow.errors import FlowDefinitionError, shown
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow_connectors.spark.calls import Calls
from aflow_connectors.spark.columns import RowsIn, RowsOut
from aflow_connectors.spark.environment import check_packages
from aflow_connectors.spark.results import Decoding, Results, Target, schema_of_results
from aflow_connectors.spark.rows import StepCounts
from aflow_connectors.spark.schemas import declared
from aflow_connectors.spark.sending import sent, sent_fragment
from aflow_connectors.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aflow_connectors.spark.source import SparkSource

Rows: TypeAlias = "DataFrame | SparkSource[Any]"
Place: TypeAlias = "Results | Target | None"


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step, over all partitions of a fragment."""

    fragment: int
    name: str
    records_in: int
    records_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """What a backfill has done."""

    flow: str
    until: Timestamp | None
    """The end of the history (epoch ms), exclusive; None: there was none."""
    savepoint: Path | None
    """From which the live job starts."""
    steps: tuple[StepDone, ...]
    """In the order of the flow; a step behind a union is there once for each fragment that has it."""
    results: Mapping[str, int]
    """By sink, how many records it got."""
    left_out: int
    """Records of the sources at or behind the end of the history, which are the live job's."""
    partitions: int
    """Of keyed fragments."""
    seconds: Mapping[str, float]
    """By what was done: the fragments (those that were one Spark job together), the results, the savepoint."""


async def backfill(
    build: Build,
    *,
    session: SparkSession,
    sources: Mapping[str, Rows],
    sinks: Mapping[str, Place],
    until: Instant | None,
    savepoint: str | PathLike[str] | None,
    partitions: int | None = None,
    staging: str | None = None,
    key_groups: int = DEFAULT_KEY_GROUPS,
) -> Backfilled:
    """Run a flow over history on Spark, up to ``until``, and leave the savepoint from which its live job starts.

    ``build`` is the flow, or the function that builds it: parameters of it that are named in ``sources`` or ``sinks``
    get ends that stand for these. ``sources`` gives the rows of each source, by the name of its step: a DataFrame,
    whose rows become dicts, or ``SparkSource(df, of=Payment)`` for records of a class. ``sinks`` says where the
    records of each sink go: a new folder for Parquet files, a function that is given the DataFrame, ``Results(…)``
    for either with a schema, or None for nowhere.

    Records with an event time before ``until`` (aware datetime, or epoch ms) are taken, and those from it on left to
    the live job. What is open then, windows, timers and all other state of keys, goes into ``savepoint``, a new
    folder that the driver writes. With ``until=None`` and ``savepoint=None`` history is all there is: time runs to
    its end, and nothing is left open.

    ``partitions`` is the number of tasks of each keyed step, by default that of Spark's shuffles, at most
    ``key_groups``; the live job may have another parallelism, but must have the same ``key_groups``. ``staging`` is a
    folder that driver and executors see alike, for what goes from fragment to fragment; by default one beside the
    savepoint, which is removed in the end.

    Cancelling it cancels what Spark does, and leaves no savepoint; results may have been written by then.

    Raises ``FlowDefinitionError`` before anything runs for what cannot run over history, with the name of each step
    that is in the way, ``CheckpointError`` for a savepoint that cannot be written, and ``ConnectorError`` for what
    fails in Spark, with the message of the step that has failed.
    """
    check_packages()
    work = await to_thread.run_sync(
        partial(
            _prepared,
            build,
            session,
            sources,
            sinks,
            until,
            savepoint,
            partitions,
            staging,
            key_groups,
        )
    )
    calls = Calls(session)
    try:
        for fragment in work.plan.fragments:
            await calls.run(
                partial(work.run, fragment), f"fragment {fragment.index} of {work.plan.flow!r}"
            )
        for sink in work.sinks:
            await calls.run(partial(work.write, sink), f"writing the results of sink {sink!r}")
        await calls.run(work.save, "writing the savepoint")
        return await calls.run(work.done, "counting")
    finally:
        work.remove_staging()


def explain(
    build: Build,
    *,
    sources: Mapping[str, object],
    sinks: Mapping[str, object],
    until: Instant | None = None,
    key_groups: int = DEFAULT_KEY_GROUPS,
) -> str:
    """What ``backfill`` would run: the fragments, what goes between them, what is written; as text for a terminal.

    Of ``sources`` and ``sinks`` only the names count. Raises ``FlowDefinitionError`` as ``backfill`` does.
    """
    plan = _planned(build, sources, sinks, key_groups)
    return drawn(plan, until=None if until is None else to_timestamp(until))


def _planned(
    build: Build, sources: Mapping[str, object], sinks: Mapping[str, object], key_groups: int
) -> FragmentPlan:
    plan = cut(built(build, sources, sinks), key_groups=key_groups)
    check_ends(plan, sources, sinks)
    return plan


def _prepared(
    build: Build,
    session: SparkSession,
    sources: Mapping[str, Rows],
    sinks: Mapping[str, Place],
    until: Instant | None,
    savepoint: str | PathLike[str] | None,
    partitions: int | None,
    staging: str | None,
    key_groups: int,
) -> _Work:
    """All that can be checked, before anything runs; blocks."""
    plan = _planned(build, sources, sinks, key_groups)
    if (until is None) != (savepoint is None):
        raise FlowDefinitionError(
            "a savepoint is where a live job goes on at the end of the history: give backfill() both until= and "
            "savepoint=, or neither"
        )
    end = None if until is None else to_timestamp(until)
    folder = None if savepoint is None else check_savepoint_path(savepoint)
    shared = staging or _staging_beside(folder, session)
    count = _partitions(partitions, session, key_groups)
    orders = {
        one.index: sent_fragment(
            one, plan, subtasks=count, until=end, source=_rows_in(sources.get(one.head.name), one)
        )
        for one in plan.fragments
    }
    return _Work(
        session=session,
        plan=plan,
        sinks={name: _results(place) for name, place in sinks.items()},
        until=end,
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
class _Work:
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
            schema = schema_of_results(results, rows, sink)
            if schema is not None:
                owner = f"sink {sink!r}"
                decoding = Decoding(RowsOut(declared(schema, owner=owner), owner=owner))
                results.write(rows.mapInArrow(sent(decoding), schema))
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
        """Remove what went between fragments, where that is a folder of this machine."""
        shutil.rmtree(self.shared, ignore_errors=True)


def _results(place: Place) -> Results | None:
    return place if place is None or isinstance(place, Results) else Results(to=place)


def _rows_in(rows: Rows | None, fragment: Fragment) -> RowsIn[Any] | None:
    """What makes records of a source; None for a fragment that has none."""
    if rows is None or fragment.keyed:
        return None
    frame, of = _frame(rows), _class(rows)
    return RowsIn(frame.columns, of, owner=f"source {fragment.head.name!r}")


def _frame(rows: Rows) -> DataFrame:
    return rows.dataframe() if _is_source(rows) else rows


def _class(rows: Rows) -> type[Any] | None:
    return rows.of if _is_source(rows) else None


def _is_source(rows):
    return hasattr(rows, "dataframe")


def _staging_beside(savepoint: Path | None, session: SparkSession) -> str:
    """A folder beside the savepoint, which executors see where they see that; without one, a temporary one."""
    if savepoint is not None:
        savepoint.absolute().parent.mkdir(parents=True, exist_ok=True)
        beside = savepoint.absolute()
        return f"{beside.parent}/.{beside.name}.staging"
    if not (session.conf.get("spark.master", "local") or "").startswith("local"):
        raise FlowDefinitionError(
            "without a savepoint, backfill() needs staging=, a folder that driver and executors see alike"
        )
    return tempfile.mkdtemp(prefix="aflow-staging-")


def _partitions(wanted: int | None, session: SparkSession, key_groups: int) -> int:
    if wanted is None:
        return min(int(session.conf.get("spark.sql.shuffle.partitions") or 200), key_groups)
    if type(wanted) is not int or not 1 <= wanted <= key_groups:
        raise FlowDefinitionError(
            f"partitions= is a number from 1 to the number of key groups, {key_groups}, not {shown(wanted)}"
        )
    return wanted
