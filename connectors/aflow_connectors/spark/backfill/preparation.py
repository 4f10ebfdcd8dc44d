"""Arguments of a backfill, checked before anything runs: predictable failures are raised early."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import uuid4

from aflow.backfill.continuation import Continuation
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.savepoint import check_savepoint_path
from aflow.errors import ConnectorError, FlowDefinitionError, shown
from aflow.model.time import Timestamp
from aflow_connectors.spark.backfill.continued_output import check_continued_output
from aflow_connectors.spark.backfill.destinations import (
    AnyDestination,
    ResultsDestination,
    SavepointOutput,
    TableDestination,
)
from aflow_connectors.spark.backfill.driver import Backfill
from aflow_connectors.spark.backfill.executor_files import FileTarget
from aflow_connectors.spark.backfill.folders import is_local, local_path, path_of, uri_of
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner
from aflow_connectors.spark.backfill.fragment_task import fragment_function, modules_of_plan
from aflow_connectors.spark.backfill.history import HistoryTable, history_folder
from aflow_connectors.spark.backfill.results import Results, ResultTarget
from aflow_connectors.spark.calls import error_summary, is_connect, is_spark_error
from aflow_connectors.spark.dataframe.columns import RowsIn
from aflow_connectors.spark.dataframe.schema import rows_schema
from aflow_connectors.spark.dataframe.source import SparkSource
from aflow_connectors.spark.environment import use_this_python
from aflow_connectors.spark.executor.functions import MapBatches
from aflow_connectors.spark.tables.folder_sink import SparkSink
from aflow_connectors.spark.tables.table_sink import SparkTableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aflow_connectors.spark.backfill.api import SourceRows

T = TypeVar("T")

#: Names of staging folders next to a savepoint.
_STAGING: Final = "*.staging"


def prepare_backfill(
    plan: FragmentPlan,
    session: SparkSession,
    sources: Mapping[str, SourceRows],
    sinks: Mapping[str, ResultTarget],
    *,
    until: Timestamp | None,
    savepoint: Path | None,
    partitions: int | None,
    staging: str | PathLike[str] | None,
    start: Continuation | None,
) -> Backfill:
    """Return a backfill that is ready to begin; blocks. Raises as ``backfill``.

    ``savepoint`` is one that ``new_savepoint`` has returned, and ``start`` the one from which the backfill continues.
    """
    if start is not None:
        start.check_until(until)
        check_continued_output(plan, sinks, start, until)
    check_apart(sinks, savepoint, restored=None if start is None else start.folder)
    count = partitions_of(partitions, session, plan.key_groups)
    # A function that returns the DataFrame is called once.
    frames = {name: _frame(rows, name) for name, rows in sources.items()}
    destinations = {
        name: _checked(place, name, session, _output_of(name, start))
        for name, place in sinks.items()
    }
    files = _file_targets(destinations)
    shared = _shared(staging, savepoint, session)
    state = None if is_connect(session) else local_path(f"{shared}/state", session)
    task, calls = _tasks(
        plan, sources, frames, files, subtasks=count, until=until, start=start, state=state
    )
    return Backfill(
        plan=plan,
        sinks=destinations,
        until=until,
        savepoint=savepoint,
        shared=shared,
        start=start,
        staging=FragmentRunner(
            session,
            plan,
            shared,
            count,
            function=lambda one: task[one.index],
            rows=lambda one: frames[one.head.name],
            written_by_executors=frozenset(files),
            state=state,
            calls=lambda one: calls.get(one.index),
            private=staging is None and savepoint is None,
            pattern=_STAGING if staging is None and savepoint is not None else "aflow-*",
        ),
    )


def new_savepoint(savepoint: str | PathLike[str] | None, until: Timestamp | None) -> Path | None:
    """Return the folder of the savepoint; None without one. Blocks; raises as ``backfill``."""
    if (until is None) != (savepoint is None):
        raise FlowDefinitionError(
            "a live job starts from the savepoint at the end of the history: give backfill() both until= and "
            "savepoint=, or neither"
        )
    return None if savepoint is None else check_savepoint_path(savepoint)


def _tasks(
    plan: FragmentPlan,
    sources: Mapping[str, SourceRows],
    frames: Mapping[str, DataFrame],
    files: Mapping[str, FileTarget | None],
    *,
    subtasks: int,
    until: Timestamp | None,
    start: Continuation | None,
    state: Path | None,
) -> tuple[dict[int, MapBatches], dict[int, MapBatches]]:
    """Return the functions for executors, by fragment, and those that end the calls in fragments of sources."""
    modules: list[str] = []
    if start is not None:
        classes = [rows.of for rows in sources.values() if isinstance(rows, SparkSource)]
        modules = modules_of_plan(plan, classes)

    def function(one: Fragment, source: RowsIn[Any] | None, *, with_calls: bool) -> MapBatches:
        return fragment_function(
            one,
            plan,
            subtasks=subtasks,
            until=until,
            source=source,
            files=files,
            state=state,
            start=start,
            modules=modules,
            with_calls=with_calls,
        )

    tasks = {
        one.index: function(one, _rows_in(one, sources, frames), with_calls=one.keyed)
        for one in plan.fragments
    }
    calls = {
        one.index: function(one, None, with_calls=True)
        for one in plan.fragments
        if not one.keyed and start is not None and start.calls_in(one)
    }
    return tasks, calls


def check_apart(
    sinks: Mapping[str, ResultTarget],
    savepoint: Path | None = None,
    *,
    restored: Path | None = None,
    state: Path | None = None,
) -> None:
    """Raise ``FlowDefinitionError`` if a folder is used twice or contains another, which would replace output."""
    own = {"the savepoint": savepoint, "the restored savepoint": restored, "the state": state}
    folders = {what: os.path.realpath(path) for what, path in own.items() if path is not None}
    if savepoint is not None and restored is not None and _nested(*folders.values()):
        raise FlowDefinitionError(
            f"the savepoint is written to {savepoint}, inside the restored one, {restored}: give it a folder of its own"
        )
    if savepoint is not None and state is not None and _nested(*folders.values()):
        raise FlowDefinitionError(
            f"the savepoint is written to {savepoint}, and the state to {state}: give each a folder of its own"
        )
    for name, place in sinks.items():
        match place.to if isinstance(place, Results) else place:
            case str() | PathLike() as to:
                path = path_of(fspath(to))
                folder = fspath(to).rstrip("/") if path is None else os.path.realpath(path)
            case SparkSink() as sink:
                folder = os.path.realpath(sink.path)
            case _:
                continue
        for other, there in folders.items():
            if _nested(folder, there):
                raise FlowDefinitionError(
                    f"sink {name!r} writes to {folder}, and {other} to {there}: give each a folder of its own, and "
                    f"none inside another"
                )
        folders[f"sink {name!r}"] = folder


def _nested(one: str, other: str) -> bool:
    """Return True if a folder is the other one, or inside it."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def check_session(session: SparkSession, *, caller: str = "backfill") -> None:
    """Raise ``FlowDefinitionError`` if ``session`` is no session, and ``ConnectorError`` if it was stopped.

    ``caller`` is the function that was called, for messages.
    """
    # Sessions of Spark Connect have another class.
    if not all(hasattr(type(session), name) for name in ("conf", "createDataFrame", "read")):
        raise FlowDefinitionError(
            f"{caller}() needs a session of Spark in session=, not {shown(cast(object, session))}: "
            f"SparkSession.builder.getOrCreate() makes one, as does local_session() on this machine"
        )
    try:
        session.range(0).schema  # noqa: B018
    # A stopped session raises errors of several classes, AttributeError among them.
    except Exception as exc:
        raise ConnectorError(
            f"the Spark session does not answer ({error_summary(exc)}): if it was stopped, start another one"
        ) from exc
    use_this_python(session)


def _file_targets(
    destinations: Mapping[str, AnyDestination | None],
) -> dict[str, FileTarget | None]:
    """Return the sinks whose records are not rows: file targets of executors, or None for dropped records."""
    return {
        name: None if one is None else one.target
        for name, one in destinations.items()
        if not isinstance(one, TableDestination)
    }


def _output_of(sink: str, start: Continuation | None) -> SavepointOutput:
    """Return the place of a sink's output among those of savepoints."""
    if start is None:
        return SavepointOutput()
    earlier = tuple(one for _, one in start.prepared.get(sink, ()))
    return SavepointOutput(start.number, earlier)


def _checked(
    place: ResultTarget, sink: str, session: SparkSession, output: SavepointOutput
) -> AnyDestination | None:
    """Return the destination of a sink. Raises for results that could not be written, as far as that is known."""
    destination = _destination(place, sink, session, output)
    if destination is not None:
        destination.check()
    return destination


def _destination(
    place: ResultTarget, sink: str, session: SparkSession, output: SavepointOutput
) -> AnyDestination | None:
    match place:
        case None:
            return None
        case SparkSink():
            return history_folder(place, sink, output)
        case SparkTableSink():
            return HistoryTable(place, sink, output)
        case Results():
            return ResultsDestination(place, sink, session)
        case _:
            return ResultsDestination(Results(to=place), sink, session)


def _rows_in(
    fragment: Fragment, sources: Mapping[str, SourceRows], frames: Mapping[str, DataFrame]
) -> RowsIn[Any] | None:
    """Return the converter for the records of a source; None for a fragment without source."""
    if fragment.keyed:
        return None
    name = fragment.head.name
    rows = sources[name]
    of = rows.of if isinstance(rows, SparkSource) else None
    owner = f"source {name!r}"
    schema = ask_spark(name, lambda: rows_schema(frames[name], owner=owner))
    rows_in: RowsIn[Any] = RowsIn(schema.names, of, owner=owner)
    rows_in.check(schema)
    return rows_in


def _frame(rows: SourceRows, source: str) -> DataFrame:
    frame = ask_spark(source, rows.dataframe) if isinstance(rows, SparkSource) else rows
    # Checked on the type: an instance takes any attribute for a column.
    if not hasattr(type(frame), "sparkSession"):
        raise FlowDefinitionError(
            f"source {source!r}: backfill() reads a DataFrame of Spark, or SparkSource(dataframe, of=…), not "
            f"{shown(cast(object, frame))}"
        )
    return frame


def ask_spark(source: str, ask: Callable[[], T]) -> T:
    """Return the result of ``ask``. Raises ``ConnectorError`` that names the source for an error of Spark."""
    try:
        return ask()
    except Exception as exc:
        if not is_spark_error(exc):
            raise
        raise ConnectorError(f"source {source!r}: {error_summary(exc)}") from exc


def _shared(
    staging: str | PathLike[str] | None, savepoint: Path | None, session: SparkSession
) -> str:
    """Return the path of a new folder that driver and executors share: in ``staging``, or next to the savepoint."""
    if staging is not None:
        name = f"{fspath(staging).rstrip('/')}/aflow-{uuid4().hex}"
        # Spark resolves relative paths against the initial working directory of this process.
        here = None if is_connect(session) else local_path(name, session)
        return name if here is None else uri_of(here)
    if savepoint is not None:
        beside = savepoint.absolute()
        return uri_of(beside.parent / f".{beside.name}.{uuid4().hex}{_STAGING[1:]}")
    if not is_local(session):
        raise FlowDefinitionError(
            "without a savepoint, backfill() needs staging=, a folder that driver and executors see alike"
        )
    return uri_of(Path(tempfile.gettempdir()) / f"aflow-staging-{uuid4().hex}")


def partitions_of(
    wanted: int | None, session: SparkSession, key_groups: int, *, argument: str = "partitions"
) -> int:
    """Return the number of partitions of keyed fragments. Raises ``FlowDefinitionError`` for another value."""
    if wanted is None:
        return min(int(session.conf.get("spark.sql.shuffle.partitions") or 200), key_groups)
    if type(wanted) is not int or not 1 <= wanted <= key_groups:
        raise FlowDefinitionError(
            f"{argument}= is a number from 1 to the number of key groups, {key_groups}, not {shown(wanted)}"
        )
    return wanted
