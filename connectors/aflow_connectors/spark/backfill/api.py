"""The public functions ``backfill`` and ``explain``: a flow over history on Spark, and a savepoint for its live job."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from anyio import CancelScope, to_thread

from aflow.backfill.continuation import Continuation, read_continuation
from aflow.backfill.endpoints import Build, build_graph, check_ends
from aflow.backfill.explanation import explain as explain_plan
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragments import FragmentPlan
from aflow.errors import FlowDefinitionError
from aflow.graph.flow_graph import FlowGraph
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow.runtime.checkpoints.settings import check_bool
from aflow_connectors.spark.backfill.results import Backfilled, ResultTarget
from aflow_connectors.spark.calls import Calls
from aflow_connectors.spark.environment import check_packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aflow_connectors.spark.backfill.driver import Backfill
    from aflow_connectors.spark.dataframe.source import SparkSource

SourceRows: TypeAlias = "DataFrame | SparkSource[Any]"
"""Rows of a source: a DataFrame, whose rows become dicts, or a ``SparkSource`` with a class for its records."""


async def backfill(
    build: Build,
    *,
    session: SparkSession,
    sources: Mapping[str, SourceRows],
    sinks: Mapping[str, ResultTarget],
    until: Instant | None,
    savepoint: str | PathLike[str] | None,
    restore: str | PathLike[str] | None = None,
    allow_dropped_state: bool = False,
    partitions: int | None = None,
    staging: str | PathLike[str] | None = None,
    key_groups: int = DEFAULT_KEY_GROUPS,
    event_time_for_processing_time: bool = False,
) -> Backfilled:
    """Run a flow over history on Spark up to ``until``, and write the savepoint from which its live job starts.

    ``build`` is the flow, or a function that builds it. A parameter of the function that is named in ``sources`` or
    ``sinks`` receives a placeholder source or sink. ``sources`` maps the name of each source step to its rows: a
    DataFrame, whose rows become dicts, or ``SparkSource(df, of=Payment)`` for records of a class. ``sinks`` maps the
    name of each sink step to the destination of its records: a new folder for Parquet files, a function that takes the
    DataFrame, ``Results(…)`` for either with a schema, or None to drop them. It may also be a ``SparkSink`` or
    ``SparkTableSink`` of the live job: then the results of history are in the output of that sink exactly once, as if
    written before a checkpoint, and the live job adds to them.

    The backfill processes the records with an event time before ``until`` (aware datetime, or epoch ms) and leaves
    later records to the live job. The step that assigns event time decides; steps upstream of it process all rows. Open
    windows, timers and all other keyed state are written to ``savepoint``, a new folder (a path or ``file:`` URI) that
    the driver writes. With ``until=None`` and ``savepoint=None`` the backfill processes all of history and advances
    time to its end.

    With ``restore``, the savepoint of an earlier backfill (a folder or ``file:`` URI that driver and executors see
    alike), the backfill continues from it: it takes the records from the end of that history on, and skips older ones,
    which ``sources`` may hold or not. Both runs together give the results and the state of one. ``partitions`` may
    differ, and the flow may be changed as for a restored live job; state without a place in the flow is refused unless
    ``allow_dropped_state``. A sink of the live job is written on: its output is first restored to that savepoint, as a
    live job would do, so later output is removed. Other results need new folders.

    ``partitions`` is the number of tasks of each keyed step: by default the number of Spark's shuffle partitions, at
    most ``key_groups``. The live job may use another parallelism but must use the same ``key_groups``. ``staging`` is a
    folder (a path or URI) that driver and executors share, for data between fragments; by default a folder next to the
    savepoint. Its content is removed at the end if the driver can reach its file system.

    With ``event_time_for_processing_time`` windows of processing time are not refused but fire in event time, if the
    window alone determines its end. Windows that are open at the end fire as soon as the live job starts.

    Cancelling the call cancels the Spark jobs and writes no savepoint. Results in folders, and results passed to
    functions, may already have been written.

    Raises, before anything runs, ``FlowDefinitionError`` for a flow that cannot run over history, with the name of each
    step that prevents it, ``SinkError`` for a destination that already has output, ``CheckpointError`` for a savepoint
    that cannot be written, and ``RestoreError`` for one that cannot be restored. A failure in Spark raises
    ``ConnectorError`` with the message of the failed step.
    """
    check_packages()
    # Imported after the check: these modules need the packages.
    from aflow_connectors.spark.backfill.preparation import check_session, prepare_backfill

    graph, plan = _planned(
        build, sources, sinks, key_groups, by_event_time=event_time_for_processing_time
    )
    end = _moment(until)
    read = partial(_start, restore, graph, plan, allow_dropped_state=allow_dropped_state)
    start = await to_thread.run_sync(read)
    await to_thread.run_sync(check_session, session)
    calls = Calls(session)
    prepare = partial(
        prepare_backfill, plan, session, sources, sinks, until=end, savepoint=savepoint
    )
    prepare = partial(prepare, partitions=partitions, staging=staging, start=start)
    work = await calls.run(prepare, f"preparing the backfill of flow {plan.flow!r}")
    return await _run(work, calls)


async def _run(work: Backfill, calls: Calls) -> Backfilled:
    flow = work.plan.flow
    try:
        await calls.run(work.begin, f"beginning the backfill of flow {flow!r}")
        for fragment in work.plan.fragments:
            await calls.run(partial(work.run, fragment), work.description(fragment))
        for sink in work.sinks:
            await calls.run(partial(work.write, sink), f"writing the results of sink {sink!r}")
        await calls.run(work.save, f"writing the savepoint of flow {flow!r}")
        return await calls.run(work.done, f"counting the records of flow {flow!r}")
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(work.end)


def explain(
    build: Build,
    *,
    sources: Mapping[str, object],
    sinks: Mapping[str, object],
    until: Instant | None = None,
    restore: str | PathLike[str] | None = None,
    allow_dropped_state: bool = False,
    key_groups: int = DEFAULT_KEY_GROUPS,
    event_time_for_processing_time: bool = False,
) -> str:
    """Return the plan of ``backfill`` as text for a terminal: fragments, exchanges and written results.

    Only the names of ``sources`` and ``sinks`` matter, and Spark is not needed. ``restore`` is read and checked. Raises
    ``FlowDefinitionError`` and ``RestoreError`` as ``backfill`` does.
    """
    graph, plan = _planned(
        build, sources, sinks, key_groups, by_event_time=event_time_for_processing_time
    )
    end = _moment(until)
    start = _start(restore, graph, plan, allow_dropped_state=allow_dropped_state)
    if start is None:
        return explain_plan(plan, until=end)
    start.check_until(end)
    return explain_plan(plan, begins=start.begins, until=end)


def _start(
    restore: str | PathLike[str] | None,
    graph: FlowGraph,
    plan: FragmentPlan,
    *,
    allow_dropped_state: bool,
) -> Continuation | None:
    """Return the checked savepoint from which the backfill continues, if there is one; blocks."""
    check_bool(allow_dropped_state, "allow_dropped_state")
    if restore is not None:
        return read_continuation(restore, graph, plan, allow_dropped_state=allow_dropped_state)
    if allow_dropped_state:
        raise FlowDefinitionError(
            "allow_dropped_state=True permits the loss of restored state, and nothing is restored: give restore= too, "
            "or leave it out"
        )
    return None


def _moment(until: Instant | None) -> Timestamp | None:
    try:
        return None if until is None else to_timestamp(until)
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"until=: {exc}") from exc


def _planned(
    build: Build,
    sources: Mapping[str, object],
    sinks: Mapping[str, object],
    key_groups: int,
    *,
    by_event_time: bool,
) -> tuple[FlowGraph, FragmentPlan]:
    graph = build_graph(build, sources, sinks)
    plan = plan_fragments(
        graph, key_groups=key_groups, event_time_for_processing_time=by_event_time
    )
    check_ends(plan, sources, sinks)
    return graph, plan
