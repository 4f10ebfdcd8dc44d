"""The request for a savepoint of a running stream, and its checks."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

from aflow.backfill.epoch_state import EpochState
from aflow.backfill.fragment_planner import before_time
from aflow.backfill.fragments import FragmentPlan
from aflow.backfill.savepoint import check_savepoint_path
from aflow.errors import CheckpointError, FlowDefinitionError, readable
from aflow.model.time import Timestamp


@dataclass(slots=True, eq=False)
class StreamSavepointRequest:
    """A savepoint that a stream is asked for. The stream sets ``cut``, and calls ``on_end`` once, in a thread."""

    path: Path
    """Absolute."""
    on_end: Callable[[Exception | None], None]
    """Takes the error with which it failed; None if the savepoint is written."""
    cut: Timestamp | None = None
    """Moment (epoch ms) of the savepoint: records from it on are not in it."""
    is_withdrawn: bool = False
    """Set by the caller, at any time, if it does not need the savepoint any more."""


def first_cut(state: EpochState) -> Timestamp:
    """Return the moment for a savepoint: the first one after all records so far.

    Raises ``CheckpointError`` if there is none.
    """
    flow, position = state.plan.flow, state.position
    if position.newest is None:
        raise CheckpointError(
            f"the stream of flow {flow!r} has processed no record yet, so there is no moment for a savepoint: ask for "
            f"it when query.progress().records is above 0"
        )
    cut = position.newest + 1
    if position.begins is not None:
        cut = max(cut, position.begins)  # records before were skipped
    if position.until is not None and cut >= position.until:
        raise CheckpointError(
            f"the stream of flow {flow!r} has records up to its end, {readable(position.until)}, and its savepoint of "
            f"that moment is going to be in {state.savepoint}: another one would be the same"
        )
    return cut


def check_repeatable(plan: FragmentPlan, written: Container[str]) -> None:
    """Raise ``FlowDefinitionError`` if records that wait for a savepoint would be written twice.

    ``written`` are the sinks whose records are not dropped. Steps upstream of ``event_time`` process rows that wait
    twice, since only downstream of it records have timestamps.
    """
    for fragment in plan.fragments:
        before = before_time(fragment.nodes)
        for exit in fragment.exits:
            if exit.sink is None or exit.origin.id not in before or exit.sink.name not in written:
                continue
            raise FlowDefinitionError(
                f"sink {exit.sink.name!r} of flow {plan.flow!r} is upstream of event_time(…), so it would get rows "
                f"that wait for the savepoint twice: give the stream an end, with until= and savepoint=, or move the "
                f"sink"
            )


def check_folder(path: Path, state: Path) -> None:
    """Raise ``CheckpointError`` if no savepoint can be written to ``path``; ``state`` is the stream's own folder."""
    if path.is_relative_to(state) or state.is_relative_to(path):
        raise CheckpointError(
            f"the savepoint would be in {path}, and the state of the stream is in {state}: give each a folder of its "
            f"own, and none inside the other"
        )
    check_savepoint_path(path)
