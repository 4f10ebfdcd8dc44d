"""Arguments of a stream, checked before anything runs: predictable failures are raised early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from aflow.backfill.epoch_state import EpochState
from aflow.backfill.fragments import FragmentPlan
from aflow.backfill.stream_recovery import StreamFolders
from aflow.errors import FlowDefinitionError, RestoreError, shown
from aflow_connectors.files.output.pieces import PreparedPiece
from aflow_connectors.spark.backfill.fragment_task import (
    fragment_task,
    modules_of_plan,
    pickled_content,
)
from aflow_connectors.spark.backfill.preparation import (
    ask_spark,
    check_apart,
    check_session,
    partitions_of,
)
from aflow_connectors.spark.calls import is_connect
from aflow_connectors.spark.dataframe.columns import RowsIn
from aflow_connectors.spark.dataframe.schema import columns_schema
from aflow_connectors.spark.dataframe.split_column import SplitColumn
from aflow_connectors.spark.stream.destinations import (
    AnyEpochDestination,
    EpochCall,
    EpochFolder,
)
from aflow_connectors.spark.stream.epochs import Epochs
from aflow_connectors.spark.stream.rows import StreamRows
from aflow_connectors.spark.stream.source import SparkStream
from aflow_connectors.spark.stream.source_columns import column_mismatch
from aflow_connectors.spark.stream.supervisor import Supervisor
from aflow_connectors.spark.stream.targets import EachEpoch, StreamTarget
from aflow_connectors.spark.tables.folder_sink import SparkSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Names of Spark's logical operators that keep state if their input is streaming; also a join of two such inputs.
_STATEFUL: Final = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamArguments:
    """Arguments of ``stream``, and the plan of its flow."""

    plan: FragmentPlan
    session: SparkSession
    sources: Mapping[str, SparkStream[Any]]
    sinks: Mapping[str, StreamTarget]
    folders: StreamFolders
    open: Callable[[StreamFolders], EpochState]
    """Opens the state folder."""
    every: timedelta
    parallelism: int | None
    state_cache: int


def destination_of(place: StreamTarget, sink: str) -> AnyEpochDestination | None:
    """Return the destination of a sink. Raises ``FlowDefinitionError`` for one that a stream cannot write into."""
    if place is None:
        return None
    if isinstance(place, SparkSink):
        return EpochFolder(place, sink)
    other: object = place
    if isinstance(other, EachEpoch):
        return EpochCall(other, sink)
    raise FlowDefinitionError(
        f"sink {sink!r}: a stream writes into a SparkSink with a schema, calls a function for EachEpoch(…), or drops "
        f"the records (None), and does not write into {shown(other)}"
    )


def check_stream_session(session: SparkSession, sources: Mapping[str, SparkStream[Any]]) -> None:
    """Raise ``FlowDefinitionError`` for a session that cannot run the stream, ``ConnectorError`` for a stopped one."""
    check_session(session, caller="stream")
    if is_connect(session):
        raise FlowDefinitionError(
            "stream() needs a classic session of Spark: over Spark Connect the batches of a stream are processed on "
            "the server, and not in this program"
        )
    for name, one in sources.items():
        if is_connect(one.frame.sparkSession):
            raise FlowDefinitionError(
                f"source {name!r}: the streaming DataFrame is of Spark Connect, and stream() needs one of session="
            )


def refuse_stateful(name: str, source: SparkStream[Any]) -> None:
    """Raise ``FlowDefinitionError`` for a DataFrame with an operator of Spark that keeps state between batches.

    After a crash a committed batch is skipped, and Spark's own state would lack it.
    """
    untyped: Any = source.frame
    found = ask_spark(
        name, lambda: sorted(_stateful_operators(untyped._jdf.queryExecution().analyzed()))
    )
    if found:
        raise FlowDefinitionError(
            f"source {name!r}: the streaming DataFrame has {', '.join(found)}, which keeps state in Spark between "
            f"batches; stream() takes rows as they are read, with select, where and joins with tables, and does the "
            f"rest in the flow"
        )


def _stateful_operators(plan: Any) -> set[str]:
    """Return the names of stateful operators in a logical plan of the JVM."""
    if not plan.isStreaming():
        return set()
    children = plan.children()
    inputs = [children.apply(number) for number in range(children.size())]
    name: str = plan.nodeName()
    stateful = name in _STATEFUL or (name == "Join" and all(one.isStreaming() for one in inputs))
    found = {name} if stateful else set[str]()
    return found.union(*map(_stateful_operators, inputs))


def rows_in(name: str, source: SparkStream[Any]) -> RowsIn[Any]:
    """Return the converter for the records of a source. Raises ``FlowDefinitionError`` for columns that do not fit."""
    owner = f"source {name!r}"
    schema = ask_spark(name, lambda: columns_schema(source.frame, owner=owner))
    converter: RowsIn[Any] = RowsIn(schema.names, source.of, owner=owner)
    converter.check(schema)
    if source.split is not None and source.split not in schema.names:
        raise FlowDefinitionError(
            f"{owner}: split={source.split!r} is not one of the columns: {', '.join(schema.names)}"
        )
    if reason := column_mismatch(schema, source.of):
        raise FlowDefinitionError(
            f"{owner}: {reason}; cast the column in Spark, or declare the field otherwise"
        )
    return converter


def prepare_stream(given: StreamArguments) -> Supervisor:
    """Return a stream that is ready to start, with its output restored to the last committed epoch; blocks.

    Raises as ``StreamQuery.start``.
    """
    plan, folders, rows = given.plan, given.folders, StreamRows(given.sources)
    check_stream_session(given.session, given.sources)
    destinations = {name: destination_of(place, name) for name, place in given.sinks.items()}
    check_apart(
        {name: place for name, place in given.sinks.items() if isinstance(place, SparkSink)},
        folders.savepoint_folder,
        state=folders.state_folder,
    )
    subtasks = partitions_of(
        given.parallelism, given.session, plan.key_groups, argument="parallelism"
    )
    for name, one in given.sources.items():
        refuse_stateful(name, one)
    converters = {name: rows_in(name, one) for name, one in given.sources.items()}
    state = given.open(folders)
    try:
        refuse_foreign_output(state)
        pickled = _pickled(given, destinations, converters, state, subtasks)
    except BaseException:
        state.store.close()
        raise
    epochs = Epochs(
        session=given.session,
        state=state,
        rows=rows,
        sinks=destinations,
        pickled=pickled,
        subtasks=subtasks,
        interval=given.every.total_seconds(),
        cache_bytes=given.state_cache,
    )
    try:
        epochs.begin()
        return Supervisor(epochs, rows.frame(), given.every)
    except BaseException:
        epochs.end()
        raise


def refuse_foreign_output(state: EpochState) -> None:
    """Raise ``RestoreError`` for prepared output that no stream can commit: that of another sink of a live job."""
    for sink in state.sinks_with_output:
        try:
            for one in state.output_of(sink):
                PreparedPiece.of(one, sink=sink)
        except RestoreError as exc:
            raise RestoreError(
                f"sink {sink!r}: the savepoint names output that is prepared and may not be committed, and a stream "
                f"commits that of a SparkSink only: stop the live job with job.stop(savepoint=path), which commits all "
                f"output, give the sink another name, and permit the loss of its state (allow_dropped_state=True)"
            ) from exc


def _split_of(name: str, given: StreamArguments) -> SplitColumn | None:
    column = given.sources[name].split
    return None if column is None else SplitColumn(name, column)


def _pickled(
    given: StreamArguments,
    destinations: Mapping[str, AnyEpochDestination | None],
    converters: Mapping[str, RowsIn[Any]],
    state: EpochState,
    subtasks: int,
) -> dict[int, bytes]:
    """Return the fragments for executors, by index. Raises ``FlowDefinitionError`` for one that cannot be pickled."""
    plan = given.plan
    files = {
        name: None if one is None else one.target
        for name, one in destinations.items()
        if not isinstance(one, EpochCall)
    }
    modules = modules_of_plan(plan, [one.of for one in given.sources.values()])
    return {
        one.index: pickled_content(
            fragment_task(
                one,
                plan,
                subtasks=subtasks,
                until=None,
                begins=None,
                source=None if one.keyed else converters[one.head.name],
                split=None if one.keyed else _split_of(one.head.name, given),
                files=files,
            ),
            modules,
        )
        for one in plan.fragments
    }
