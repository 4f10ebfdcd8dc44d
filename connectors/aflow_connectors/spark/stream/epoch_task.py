"""One fragment of an epoch on an executor.

The fragment is pickled once for a stream, so that worker processes keep it, its resources, and the state of the tasks
that they have run, between epochs. What differs from epoch to epoch is sent beside it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aflow.backfill.continuation import StepFiles
from aflow.backfill.live_savepoint import LiveCalls
from aflow.backfill.state_cache import StateCache
from aflow_connectors.spark.backfill.fragment_task import (
    FragmentTask,
    TaskEpoch,
    WithClasses,
    current_partition,
    execute,
)
from aflow_connectors.spark.executor.functions import MapBatches, Payload, executor_function

#: The state that this worker process keeps, of all streams. Only the thread that runs tasks uses it.
_CACHE: Final = StateCache()


@dataclass(frozen=True, slots=True)
class EpochContext:
    """The part of a fragment's description that differs between epochs."""

    epoch: TaskEpoch
    restored: StepFiles | None
    """State with which the step that reads by key begins; None if there is none."""
    calls: LiveCalls = field(default_factory=dict[str, Any])
    """Calls of a live job that were under way in other steps, by step."""
    has_rows: bool = True
    """False for the partition of a source that only ends calls."""


def epoch_function(pickled: bytes, context: EpochContext, *, description: str) -> MapBatches:
    """Return the function that runs a fragment, pickled by ``pickled_content``, in an epoch."""
    return executor_function(
        run_epoch_partition, pickled, what=description, context=pickle.dumps(context)
    )


def run_epoch_partition(payload: Payload[WithClasses], batches: Iterator[Any]) -> Iterator[Any]:
    """Run a fragment over the current partition of an epoch, on an executor."""
    task: FragmentTask = payload.content.prepared()
    context: EpochContext = pickle.loads(payload.context)
    restored, folder = context.restored, context.epoch.folder
    task = replace(
        task,
        epoch=context.epoch,
        restored_from=folder if restored is None else restored.folder,
        restored=restored,
        calls=context.calls,
        source=task.source if context.has_rows else None,
    )
    return execute(task, current_partition(), batches, digest=payload.digest, cache=_CACHE)
