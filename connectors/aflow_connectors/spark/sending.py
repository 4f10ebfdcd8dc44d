"""A fragment on its way to executors: pickled once, on the driver, so that what does not pickle is known at once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from pyspark import TaskContext, cloudpickle

from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.shipping import check_picklable, shippable
from aflow.model.time import Timestamp
from aflow_connectors.spark.columns import RowsIn
from aflow_connectors.spark.executing import Orders, execute
from aflow_connectors.spark.main_classes import adopt, classes_of_main

MapBatches: TypeAlias = Callable[[Iterator[Any]], Iterator[Any]]
"""What Spark maps over the Arrow batches of a partition."""


@dataclass(frozen=True, slots=True)
class _OverPartitions:
    """Runs a fragment."""

    orders: Orders

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        return execute(self.orders, number, batches)


def sent_fragment(
    fragment: Fragment,
    plan: FragmentPlan,
    *,
    subtasks: int,
    until: Timestamp | None,
    source: RowsIn[Any] | None,
) -> MapBatches:
    """What runs ``fragment``. Raises ``FlowDefinitionError`` that names the step which does not pickle."""
    check_picklable(fragment, _dumps)
    return sent(
        _OverPartitions(
            Orders(
                flow=plan.flow,
                fragment=shippable(fragment),
                subtasks=subtasks,
                key_groups=plan.key_groups,
                until=until,
                source=source,
            )
        )
    )


def sent(function: MapBatches) -> MapBatches:
    """``function`` with the classes of the user's script that it may meet."""
    return _Sent(_dumps((classes_of_main(_dumps), function)))


@dataclass(frozen=True, slots=True)
class _Sent:
    pickled: bytes

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return _opened(self.pickled)(batches)


def _dumps(value: object) -> bytes:
    # Spark's own copy of cloudpickle, which has no types.
    return cast(bytes, cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=4)
def _opened(pickled: bytes) -> MapBatches:
    """Read once in each worker process, which runs many partitions."""
    classes, function = pickle.loads(pickled)
    adopt(classes)
    return cast(MapBatches, function)
