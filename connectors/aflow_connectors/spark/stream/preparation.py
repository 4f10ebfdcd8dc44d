"""Arguments of a stream, checked before anything runs: predictable failures are raised early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aflow.backfill.epoch_state import EpochState
from aflow.backfill.fragments import FragmentPlan
from aflow.backfill.stream_recovery import StreamFolders
from aflow.errors import FlowDefinitionError, shown
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
from aflow_connectors.spark.stream.destinations import (
    AnyEpochDestination,
    EpochCall,
    EpochFolder,
)
from aflow_connectors.spark.stream.epochs import Epochs
from aflow_connectors.spark.stream.rows import StreamRows
from aflow_connectors.spark.stream.source import SparkStream
from aflow_connectors.spark.stream.supervisor import Supervisor
from aflow_connectors.spark.stream.targets import EachEpoch, StreamTarget
from aflow_connectors.spark.tables.folder_sink import SparkSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def rows_in(name: str, source: SparkStream[Any]) -> RowsIn[Any]:
    """Return the converter for the records of a source. Raises ``FlowDefinitionError`` for columns that do not fit."""
    owner = f"source {name!r}"
    schema = ask_spark(name, lambda: columns_schema(source.frame, owner=owner))
    converter: RowsIn[Any] = RowsIn(schema.names, source.of, owner=owner)
    converter.check(schema)
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
    converters = {name: rows_in(name, one) for name, one in given.sources.items()}
    state = given.open(folders)
    try:
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
    )
    try:
        epochs.begin()
        return Supervisor(epochs, rows.frame(), given.every)
    except BaseException:
        epochs.end()
        raise


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
                files=files,
            ),
            modules,
        )
        for one in plan.fragments
    }
