"""Fragments on their way to executors: pickled once, on the driver, so that pickling errors are raised early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.shipping import check_picklable, shippable
from aflow.model.time import Timestamp
from aflow_connectors.spark.backfill.executor_files import Into
from aflow_connectors.spark.backfill.fragment_task import Orders, decode, execute
from aflow_connectors.spark.dataframe.columns import RowsIn, RowsOut
from aflow_connectors.spark.executor.functions import MapBatches, Payload, shipped
from aflow_connectors.spark.executor.serialization import dumps
from aflow_connectors.spark.main_classes import adopt, classes_of_main


@dataclass(frozen=True, slots=True)
class _WithClasses:
    """Content for executors, with the classes of the user's script that its records may have."""

    classes: Mapping[str, type]
    content: Any


def sent_fragment(
    fragment: Fragment,
    plan: FragmentPlan,
    *,
    subtasks: int,
    until: Timestamp | None,
    source: RowsIn[Any] | None,
    files: Mapping[str, Into | None],
    state: Path | None,
) -> MapBatches:
    """Return the function that runs ``fragment``; ``files`` are sinks whose records are not rows, None if dropped.

    Raises ``FlowDefinitionError`` that names the step that cannot be pickled.
    """
    check_picklable(fragment, dumps)
    ways = {way.number: way.sink.name for way in fragment.exits if way.sink is not None}
    orders = Orders(
        flow=plan.flow,
        fragment=shippable(fragment),
        subtasks=subtasks,
        key_groups=plan.key_groups,
        until=until,
        source=source,
        files={way: into for way, name in ways.items() if (into := files.get(name)) is not None},
        nowhere=frozenset(
            way for way, name in ways.items() if name in files and files[name] is None
        ),
        state=state,
    )
    what = f"fragment {fragment.index} of flow {plan.flow!r}"
    return shipped(run_partition, _pickled(orders), what=what)


def sent_columns(columns: RowsOut, *, sink: str) -> MapBatches:
    """Return the function that makes columns of the rows of a sink."""
    return shipped(run_decoding, _pickled(columns), what=f"sink {sink!r}")


def run_partition(cargo: Payload[_WithClasses], batches: Iterator[Any]) -> Iterator[Any]:
    """Run a fragment over the current partition, on an executor."""
    from pyspark import TaskContext

    adopt(cargo.content.classes)
    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    return execute(cargo.content.content, number, batches, digest=cargo.digest)


def run_decoding(cargo: Payload[_WithClasses], batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the columns of a sink's records, on an executor."""
    adopt(cargo.content.classes)
    return decode(cargo.content.content, batches)


def _pickled(content: object) -> bytes:
    return dumps(_WithClasses(classes_of_main(dumps), content))
