"""A restored checkpoint, and the state of each part of the job in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from aflow.connect import Committable
from aflow.graph.declared_steps import declared_steps
from aflow.graph.nodes import Forward, Kind
from aflow.graph.plan import Plan
from aflow.model.batch import Batch
from aflow.model.key_groups import KeyGroupRange
from aflow.operators.base import Operator
from aflow.runtime.channel import Element
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.directory.reader import links_to_groups
from aflow.runtime.checkpoints.inflight import (
    ElementOrigin,
    InFlightCodec,
    has_in_flight,
    restored_channels,
    restored_in_chain,
)
from aflow.runtime.checkpoints.sections import read_committables, read_progress
from aflow.runtime.checkpoints.storage import Restored
from aflow.runtime.garbage_collection import can_keep_objects, objects_are_kept
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.splits import Progress
from aflow.state.change_plan import ChangePlan, change_plan, stored_step
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot

#: Passes of the event loop that restore small state: the first one may be short. Only a restore that takes more asks
#: ``can_keep_objects``, which takes time for each frozen object.
_PASSES_OF_SMALL_STATE: Final = 2


@dataclass(frozen=True, slots=True)
class Restoration:
    """``restored`` from the view of the job that continues from it."""

    restored: Restored
    codec: InFlightCodec
    own: bool
    """True if the checkpoint is in the storage of this job, so that later ones can build upon its parts."""
    changes: ChangePlan
    """The change of each state."""
    forwarded: frozenset[str]
    """The sources with records in flight from a subtask to the one of the same number."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        restored: Restored,
        codec: InFlightCodec,
        *,
        own: bool,
        allow_dropped_state: bool,
    ) -> Restoration:
        """Raise ``RestoreError`` if the job cannot continue from the checkpoint, or would lose state without
        permission."""
        with wrap_read_errors("the checkpoint"):
            changes = changes_of(plan, restored)
            changes.check(allow_dropped_state=allow_dropped_state)
            return cls(restored, codec, own, changes, _forwarded(plan, restored))

    def state_of(self, step: str, groups: KeyGroupRange) -> OperatorSnapshot | None:
        """Return the state of a step for a subtask that owns ``groups``; None for a new step."""
        snapshot = self.restored.states.get(step)
        if snapshot is None:
            return None
        with wrap_read_errors(_of(step)):
            return self.changes.without_dropped(step, snapshot).restricted_to(groups)

    def progress(self, source: str) -> Progress | None:
        """Return the progress of a source; None for a new one."""
        snapshot = self.restored.states.get(source)
        if snapshot is None:
            return None
        parallelism = (
            one.parallelism for one in self.restored.manifest.steps if one.name == source
        )
        with wrap_read_errors(_of(source)):
            progress = read_progress(source, snapshot, next(parallelism, 0))
        return replace(progress, in_flight=source in self.forwarded)

    def committables(self, sink: str) -> list[Committable]:
        """Return the committables of all writers of a sink."""
        return [committable for _, committable in self.prepared(sink)]

    def prepared(self, sink: str) -> list[tuple[int, Committable]]:
        """Return the committables of all writers of a sink with their checkpoints, ascending."""
        with wrap_read_errors(_of(sink)):
            return read_committables(sink, self._state(sink))

    def waiting(self, sink: str, subtask: int, parallelism: int) -> list[Batch[Any]]:
        """Return the batches that writer ``subtask`` of a sink writes first."""
        with wrap_read_errors(_of(sink)):
            return self.codec.waiting_for(sink, self._state(sink), subtask, parallelism)

    def in_flight(
        self, step: str, origins: Mapping[tuple[int, int, int], ElementOrigin], key_groups: int
    ) -> dict[ElementOrigin, list[Element]]:
        """Return the first elements of the channels into ``step``."""
        with wrap_read_errors(_of(step)):
            return restored_channels(self.codec, step, self._state(step), origins, key_groups)

    def in_chain(self, step: str, subtask: int, parallelism: int) -> list[Batch[Any]]:
        """Return the first batches of a step that has no channels of its own now."""
        with wrap_read_errors(_of(step)):
            return restored_in_chain(self.codec, step, self._state(step), subtask, parallelism)

    async def restore(self, operator: Operator, loop_budget: LoopBudget) -> None:
        """Restore the state of an opened operator; yields to the event loop. Raises ``RestoreError``."""
        snapshot = self.state_of(operator.name, operator.context.key_groups)
        if snapshot is not None:
            await restore_operator(operator, snapshot, loop_budget)

    def adopt(self, chains: SubtaskChains, steps: Iterable[str]) -> None:
        """Let the checkpoints of a subtask refer to the parts of this one, if they are in the same storage."""
        if not self.own:
            return
        wanted = set(steps) - self.changes.changed_steps
        for step in self.restored.manifest.steps:
            if step.name in wanted:
                chains.adopt(step.name, links_to_groups(step.subtasks, chains.groups))

    def to_copy(self, groups: KeyGroupRange, steps: Iterable[str]) -> dict[str, OperatorSnapshot]:
        """Return the state that a subtask stores anew, if the checkpoint is not in the storage of this job.

        Only keyed state is worth it: otherwise the first checkpoint would have to capture all of it.
        """
        if self.own:
            return {}
        states = (
            (step, self.state_of(step, groups)) for step in set(steps) - self.changes.changed_steps
        )
        return {step: state for step, state in states if state is not None and state.keyed}

    def _state(self, step: str) -> OperatorSnapshot:
        return self.restored.states.get(step, OperatorSnapshot())


async def restore_operator(
    operator: Operator, snapshot: OperatorSnapshot, loop_budget: LoopBudget
) -> None:
    """Restore ``snapshot`` into an opened operator; yields to the event loop. Raises ``RestoreError``."""
    with wrap_read_errors(_of(operator.name)):
        pieces = operator.restore_in_pieces(snapshot)
        for _ in range(_PASSES_OF_SMALL_STATE):
            if _completed(pieces, loop_budget, nullcontext()):
                return
            await loop_budget.hand_over()
        block = objects_are_kept if can_keep_objects() else nullcontext[None]
        while not _completed(pieces, loop_budget, block()):
            await loop_budget.hand_over()


def changes_of(plan: Plan, restored: Restored) -> ChangePlan:
    """Return the change of each state in ``restored`` when the job of ``plan`` continues from it."""
    stored = [
        stored_step(step, restored.states.get(step.name, OperatorSnapshot()))
        for step in restored.manifest.steps
    ]
    key_groups = (restored.manifest.key_groups, plan.key_groups)
    return change_plan(stored, declared_steps(plan), key_groups=key_groups)


def _completed(
    pieces: Iterator[None], loop_budget: LoopBudget, block: AbstractContextManager[None]
) -> bool:
    """Take pieces inside ``block`` until the budget is spent; return True if there are no more."""
    with block:
        for _ in pieces:
            if loop_budget.spent():
                return False
    return True


def _of(step: str) -> str:
    return f"the state of step {step!r} in the checkpoint"


def _forwarded(plan: Plan, restored: Restored) -> frozenset[str]:
    """Return the sources with records in flight before the first exchange that distributes them."""
    #: By step, the sources whose records it gets as they were read.
    sources: dict[int, frozenset[str]] = {}
    found: set[str] = set()
    for node in (node for task in plan.tasks for node in task.nodes):
        if node.kind is Kind.SOURCE:
            sources[node.id] = frozenset([node.name])
            continue
        forward = [edge for edge in node.inputs if isinstance(edge.partitioning, Forward)]
        coming = (sources.get(edge.origin.id, frozenset()) for edge in forward)
        sources[node.id] = frozenset[str]().union(*coming)
        if node.name in restored.states and has_in_flight(restored.states[node.name]):
            found |= sources[node.id]
    return frozenset(found)
