"""The public functions ``backfill`` and ``explain``: a flow over history on Spark, and a savepoint for its live job."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from anyio import to_thread

from aflow.backfill.continuation import Restore, start_of_history
from aflow.backfill.endpoints import Build
from aflow.backfill.explanation import explain as explain_plan
from aflow.backfill.planned_build import plan_build
from aflow.errors import FlowDefinitionError
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow_connectors.spark.backfill.results import Backfilled, ResultTarget
from aflow_connectors.spark.calls import Calls
from aflow_connectors.spark.environment import check_packages
from aflow_connectors.worker_thread import WorkerThread

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
    restore: Restore | None = None,
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
    ``SparkTableSink`` of the live job, which then adds to the results of history; each row is there exactly once.

    The backfill processes the records with an event time before ``until`` (aware datetime, or epoch ms) and leaves
    later ones to the live job. The step that assigns event time decides; steps upstream of it process all rows. Open
    windows, timers and all other keyed state are written to ``savepoint``, a new folder (a path or ``file:`` URI) that
    the driver writes. With ``None`` for both, history is processed to its end, and so is time.

    ``restore`` is the savepoint of an earlier backfill, whose records are skipped: both together equal one run. With a
    ``LiveSavepoint`` the rows are those that the live job has not read. Driver and executors see the folder alike.
    ``partitions`` may differ, and the flow as for a restored live job; state without a place in it is refused unless
    ``allow_dropped_state``. A sink of the live job is first restored to that savepoint, which removes later output.

    ``partitions`` is the number of tasks of each keyed step: by default the number of Spark's shuffle partitions, at
    most ``key_groups``, which must be those of the live job. ``staging`` is a folder (a path or URI) that driver and
    executors share, for data between fragments; by default a folder next to the savepoint. Its content is removed at
    the end if the driver can. With ``event_time_for_processing_time`` windows of processing time fire in event time, if
    the window alone determines its end; those that are open at the end fire as soon as the live job starts.

    Cancelling the call cancels the Spark jobs and writes no savepoint; plain results may already have been written.
    Raises, before anything runs, ``FlowDefinitionError`` for a flow that cannot run over history, with the name of each
    step that prevents it, ``SinkError`` for a destination that already has output, ``CheckpointError`` for a savepoint
    that cannot be written, and ``RestoreError`` for one that cannot be restored. A failure in Spark raises
    ``ConnectorError`` with the message of the failed step.
    """
    check_packages()
    end, by_event_time = _moment(until), event_time_for_processing_time
    graph, plan = plan_build(build, sources, sinks, key_groups, by_event_time=by_event_time)
    folder = await to_thread.run_sync(_checked_savepoint, session, savepoint, end)
    read = partial(start_of_history, restore, graph, plan, allow_dropped_state=allow_dropped_state)
    start = await to_thread.run_sync(read)
    # Imported after the check: the module needs the packages.
    from aflow_connectors.spark.backfill.preparation import prepare_backfill

    prepare = partial(prepare_backfill, plan, session, sources, sinks, until=end, start=start)
    prepare = partial(prepare, savepoint=folder, partitions=partitions, staging=staging)
    calls = Calls(session)
    work = await calls.run(prepare, f"preparing the backfill of flow {plan.flow!r}")
    return await _run(work, calls)


def _checked_savepoint(
    session: SparkSession, savepoint: str | PathLike[str] | None, until: Timestamp | None
) -> Path | None:
    """Return the folder of the savepoint; blocks.

    Raises for arguments that are wrong whatever is restored: to read the whole state may take long.
    """
    from aflow_connectors.spark.backfill.preparation import check_session, new_savepoint

    check_session(session)
    return new_savepoint(savepoint, until)


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
        await WorkerThread().complete(work.end)


def explain(
    build: Build,
    *,
    sources: Mapping[str, object],
    sinks: Mapping[str, object],
    until: Instant | None = None,
    restore: Restore | None = None,
    allow_dropped_state: bool = False,
    key_groups: int = DEFAULT_KEY_GROUPS,
    event_time_for_processing_time: bool = False,
) -> str:
    """Return the plan of ``backfill`` as text for a terminal: fragments, exchanges and written results.

    Only the names of ``sources`` and ``sinks`` matter, and Spark is not needed. ``restore`` is read and checked. Raises
    ``FlowDefinitionError`` and ``RestoreError`` as ``backfill`` does.
    """
    graph, plan = plan_build(
        build, sources, sinks, key_groups, by_event_time=event_time_for_processing_time
    )
    end = _moment(until)
    start = start_of_history(restore, graph, plan, allow_dropped_state=allow_dropped_state)
    if start is None:
        return explain_plan(plan, until=end)
    start.check_until(end)
    return explain_plan(plan, begins=start.begins, until=end, live=start.live)


def _moment(until: Instant | None) -> Timestamp | None:
    try:
        return None if until is None else to_timestamp(until)
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"until=: {exc}") from exc
