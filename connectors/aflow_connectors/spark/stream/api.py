"""The public function ``stream``: a flow over the micro-batches of Spark Structured Streaming."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from aflow.backfill.continuation import Restore
from aflow.backfill.endpoints import Build
from aflow.backfill.planned_build import plan_build
from aflow.backfill.stream_recovery import StreamFolders, opened_stream
from aflow.errors import FlowDefinitionError, shown
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow_connectors.spark.environment import check_packages
from aflow_connectors.spark.stream.query import StreamQuery
from aflow_connectors.spark.stream.source import SparkStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aflow_connectors.spark.stream.targets import StreamTarget

#: Default of the bytes of state that a worker process keeps.
STATE_CACHE: Final = 256 << 20

#: Shortest time between two batches.
_SHORTEST: Final = timedelta(milliseconds=1)


def stream(
    build: Build,
    *,
    session: SparkSession,
    sources: Mapping[str, SparkStream[Any]],
    sinks: Mapping[str, StreamTarget],
    state: str | PathLike[str],
    every: timedelta = timedelta(seconds=2),
    restore: Restore | None = None,
    allow_dropped_state: bool = False,
    until: Instant | None = None,
    savepoint: str | PathLike[str] | None = None,
    parallelism: int | None = None,
    key_groups: int = DEFAULT_KEY_GROUPS,
    state_cache: int = STATE_CACHE,
) -> StreamQuery:
    """Return a query that runs a flow on Spark as a stream of micro-batches, exactly once.

    ``build``, ``session`` and ``key_groups`` are as for ``backfill``. ``sources`` maps the name of each source step to
    a ``SparkStream``, and ``sinks`` that of each sink step to a destination: a ``SparkSink`` with a schema, in which
    each record is exactly once; ``EachEpoch(function)``, called with the records of each epoch, at least once; or None.

    ``state`` is a folder (a path or ``file:`` URI) of this stream, which driver and executors share: it has the state
    and the output of each epoch, and Spark's checkpoint. A query over a folder with epochs continues from the last
    committed one. ``every`` is the interval of Spark's trigger: an epoch runs for each batch of new rows, and one
    without rows if time can advance and no rows arrive for that long. Its watermarks follow from the epochs before it.

    ``parallelism`` is the number of tasks of each keyed step, by default the number of Spark's shuffle partitions, at
    most ``key_groups``; it may differ in each query. Each Python worker keeps ``state_cache`` bytes of state, as
    estimated, from one epoch to the next (0 for none); other state is read from files.

    ``restore`` is the savepoint with which the first query over ``state`` begins. Records before the end of that of a
    backfill or a stream are skipped; with a ``LiveSavepoint`` the rows are those that the live job has not read. State
    without a place in the flow is refused, unless ``allow_dropped_state``. With ``until`` (aware datetime, or epoch ms)
    the stream ends when the watermark arrives there, and writes the new folder ``savepoint`` for a live job.

    Nothing runs before ``start``, ``wait`` or ``async with``. Raises ``FlowDefinitionError`` for invalid arguments, and
    for a flow that cannot run in micro-batches, with the name of each step that prevents it. ``start`` raises
    ``ConnectorError`` for a stopped session, ``RestoreError`` for state of another flow, or that cannot be restored,
    ``CheckpointError`` for a state folder in use, and ``SinkError`` for a destination that already has output.
    """
    check_packages()
    _check(sources, every, state_cache)
    folders = StreamFolders(state, restore, savepoint, _end(until, savepoint), allow_dropped_state)
    graph, plan = plan_build(build, sources, sinks, key_groups, can_be_late=True)
    # Imported after the check: the module needs the packages.
    from aflow_connectors.spark.stream.preparation import StreamArguments, prepare_stream

    arguments = StreamArguments(
        plan=plan,
        session=session,
        sources=sources,
        sinks=sinks,
        folders=folders,
        open=partial(opened_stream, graph, plan, split_sources=_with_splits(sources)),
        every=every,
        parallelism=parallelism,
        state_cache=state_cache,
    )
    return StreamQuery(plan.flow, partial(prepare_stream, arguments))


def _with_splits(sources: Mapping[str, SparkStream[Any]]) -> list[str]:
    return [name for name, one in sources.items() if one.split is not None]


def _check(sources: Mapping[str, object], every: object, state_cache: object) -> None:
    _check_sources(sources)
    if not isinstance(every, timedelta) or every < _SHORTEST:
        raise FlowDefinitionError(
            f"every= is the interval between batches, a timedelta of 1 ms or more, not {shown(every)}"
        )
    if type(state_cache) is not int or state_cache < 0:
        raise FlowDefinitionError(
            f"state_cache= is the number of bytes of state that each Python worker keeps, 0 for none, not "
            f"{shown(state_cache)}"
        )


def _check_sources(sources: Mapping[str, object]) -> None:
    for name, one in sources.items():
        if not isinstance(one, SparkStream):
            raise FlowDefinitionError(
                f"source {name!r}: stream() reads SparkStream(dataframe, of=…), of a streaming DataFrame, not "
                f"{shown(one)}"
            )


def _end(until: Instant | None, savepoint: object) -> Timestamp | None:
    if (until is None) != (savepoint is None):
        raise FlowDefinitionError(
            "a live job starts from the savepoint at the end of the stream: give stream() both until= and savepoint=, "
            "or neither"
        )
    try:
        return None if until is None else to_timestamp(until)
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"until=: {exc}") from exc
