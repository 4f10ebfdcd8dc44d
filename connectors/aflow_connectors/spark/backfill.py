"""A flow over history on Spark, and the savepoint from which its live job goes on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from anyio import CancelScope, to_thread

from aflow.backfill.cutting import cut
from aflow.backfill.drawing import explain as drawn
from aflow.backfill.ends import Build, built, check_ends
from aflow.backfill.fragments import FragmentPlan
from aflow.errors import FlowDefinitionError
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow_connectors.spark.calls import Calls
from aflow_connectors.spark.done import Backfilled
from aflow_connectors.spark.environment import check_packages
from aflow_connectors.spark.results import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aflow_connectors.spark.driving import Backfill
    from aflow_connectors.spark.source import SparkSource

Rows: TypeAlias = "DataFrame | SparkSource[Any]"
"""What a source reads: a DataFrame, whose rows become dicts, or one with the class of its records."""


async def backfill(
    build: Build,
    *,
    session: SparkSession,
    sources: Mapping[str, Rows],
    sinks: Mapping[str, Place],
    until: Instant | None,
    savepoint: str | PathLike[str] | None,
    partitions: int | None = None,
    staging: str | PathLike[str] | None = None,
    key_groups: int = DEFAULT_KEY_GROUPS,
    event_time_for_processing_time: bool = False,
) -> Backfilled:
    """Run a flow over history on Spark, up to ``until``, and leave the savepoint from which its live job starts.

    ``build`` is the flow, or the function that builds it: parameters of it that are named in ``sources`` or ``sinks``
    get ends that stand for these. ``sources`` gives the rows of each source, by the name of its step: a DataFrame,
    whose rows become dicts, or ``SparkSource(df, of=Payment)`` for records of a class. ``sinks`` says where the
    records of each sink go: a new folder for Parquet files, a function that is given the DataFrame, ``Results(…)``
    for either with a schema, or None for nowhere. Or a ``SparkSink`` or ``SparkTableSink`` of the live job, in whose
    output history then stands, as if written before a checkpoint: the live job that begins from the savepoint adds to
    it, and whatever fails, it is there once.

    Records with an event time before ``until`` (aware datetime, or epoch ms) are taken, and those from it on left to
    the live job, at the step that gives them event time: what stands before that gets all rows. What is open then,
    windows, timers and all other state of keys, goes into ``savepoint``, a new folder (a path or ``file:`` URI) that
    the driver writes. With ``until=None`` and ``savepoint=None`` history is all there is: time runs to its end, and
    nothing is left open.

    ``partitions`` is the number of tasks of each keyed step, by default that of Spark's shuffles, at most
    ``key_groups``; the live job may have another parallelism, but must have the same ``key_groups``. ``staging`` is a
    folder (a path or URI) that driver and executors see alike, for what goes from fragment to fragment; by default one
    beside the savepoint. What is written there is removed in the end, if it is in a file system of the driver.

    With ``event_time_for_processing_time`` windows of processing time are not refused but fire in event time, where the
    window alone says when it ends; those that are left open give their results as soon as the live job begins.

    Cancelling it cancels what Spark does, and leaves no savepoint; results in folders, and those given to functions,
    may have been written by then.

    Raises, before anything runs, ``FlowDefinitionError`` for what cannot run over history, with the name of each step
    that is in the way, ``SinkError`` for results that would find something there already, and ``CheckpointError`` for
    a savepoint that cannot be written. What fails in Spark is a ``ConnectorError`` with the message of the step that
    has failed.
    """
    check_packages()
    # Behind the check, since it needs what is checked.
    from aflow_connectors.spark.preparing import check_session, prepared

    plan = _planned(build, sources, sinks, key_groups, told=event_time_for_processing_time)
    end = _moment(until)
    await to_thread.run_sync(check_session, session)
    calls = Calls(session)
    prepare = partial(prepared, plan, session, sources, sinks, until=end, savepoint=savepoint)
    prepare = partial(prepare, partitions=partitions, staging=staging)
    work = await calls.run(prepare, f"preparing the backfill of flow {plan.flow!r}")
    return await _run(work, calls)


async def _run(work: Backfill, calls: Calls) -> Backfilled:
    flow = work.plan.flow
    try:
        await calls.run(work.begin, f"beginning the backfill of flow {flow!r}")
        for fragment in work.plan.fragments:
            await calls.run(partial(work.run, fragment), work.what(fragment))
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
    key_groups: int = DEFAULT_KEY_GROUPS,
    event_time_for_processing_time: bool = False,
) -> str:
    """What ``backfill`` would run: the fragments, what goes between them, what is written; as text for a terminal.

    Of ``sources`` and ``sinks`` only the names count, and nothing of Spark is needed. Raises ``FlowDefinitionError`` as
    ``backfill`` does.
    """
    plan = _planned(build, sources, sinks, key_groups, told=event_time_for_processing_time)
    return drawn(plan, until=_moment(until))


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
    told: bool,
) -> FragmentPlan:
    graph = built(build, sources, sinks)
    plan = cut(graph, key_groups=key_groups, event_time_for_processing_time=told)
    check_ends(plan, sources, sinks)
    return plan
