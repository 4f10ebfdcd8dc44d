"""A checkpoint that a job goes on from: what each part of the job finds of its own in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aflow.connect import Committable
from aflow.graph.declared_steps import declared_steps
from aflow.graph.nodes import Forward, Kind
from aflow.graph.plan import Plan
from aflow.model.batch import Batch
from aflow.model.key_groups import KeyGroupRange
from aflow.operators.base import Operator
from aflow.runtime.channel import Element
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.inflight import (
    InFlightCodec,
    Origin,
    has_in_flight,
    restored_channels,
    restored_in_chain,
)
from aflow.runtime.checkpoints.sections import read_committables, read_progress
from aflow.runtime.checkpoints.storage import Restored
from aflow.runtime.splits import Progress
from aflow.state.change_plan import ChangePlan, Fate, change_plan, stored_step
from aflow.state.manifest import Link, StepState
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class Restoration:
    """``restored`` as seen by the job that goes on from it."""

    restored: Restored
    codec: InFlightCodec
    own: bool
    """True if the checkpoint is in the storage of this job, so that later ones can build upon its parts."""
    changes: ChangePlan
    """What becomes of each state."""
    forwarded: frozenset[str]
    """The sources of which records were in flight from a subtask to the one of the same number."""

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
        """Raises ``RestoreError`` if the job cannot go on from the checkpoint, or would lose some of it unasked."""
        with wrap_read_errors("the checkpoint"):
            changes = changes_of(plan, restored)
            changes.check(allow_dropped_state=allow_dropped_state)
            return cls(restored, codec, own, changes, _forwarded(plan, restored))

    def state_of(self, step: str, groups: KeyGroupRange) -> OperatorSnapshot | None:
        """What a step remembered, for a subtask that owns ``groups``; None for one that is new."""
        snapshot = self.restored.states.get(step)
        if snapshot is None:
            return None
        with wrap_read_errors(_of(step)):
            return self.changes.without_dropped(step, snapshot).restricted_to(groups)

    def progress(self, source: str) -> Progress | None:
        """How far a source was read; None for one that is new."""
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
        """What all writers of a sink had prepared."""
        with wrap_read_errors(_of(sink)):
            return read_committables(sink, self._state(sink))

    def waiting(self, sink: str, subtask: int, parallelism: int) -> list[Batch[Any]]:
        """What writer ``subtask`` of a sink writes first."""
        with wrap_read_errors(_of(sink)):
            return self.codec.waiting_for(sink, self._state(sink), subtask, parallelism)

    def in_flight(
        self, step: str, origins: Mapping[tuple[int, int, int], Origin], key_groups: int
    ) -> dict[Origin, list[Element]]:
        """What the channels into ``step`` begin with."""
        with wrap_read_errors(_of(step)):
            return restored_channels(self.codec, step, self._state(step), origins, key_groups)

    def in_chain(self, step: str, subtask: int, parallelism: int) -> list[Batch[Any]]:
        """What a step begins with that has no channels of its own now."""
        with wrap_read_errors(_of(step)):
            return restored_in_chain(self.codec, step, self._state(step), subtask, parallelism)

    def restore(self, operator: Operator, step: str, groups: KeyGroupRange) -> None:
        """Give an operator what its step remembered of ``groups``. Raises ``RestoreError``."""
        snapshot = self.state_of(step, groups)
        if snapshot is not None:
            with wrap_read_errors(_of(step)):
                operator.restore(snapshot)

    def adopt(self, chains: SubtaskChains, steps: Iterable[str]) -> None:
        """Let the checkpoints of a subtask build upon the parts of this one, which are in the same storage."""
        if not self.own:
            return
        wanted = set(steps) - self._changed()
        for step in self.restored.manifest.steps:
            if step.name in wanted:
                chains.adopt(step.name, _links(step, chains.groups))

    def to_copy(self, groups: KeyGroupRange, steps: Iterable[str]) -> dict[str, OperatorSnapshot]:
        """What a subtask has to store anew, since the checkpoint is not in the storage of this job.

        Only what belongs to keys is worth it: without it, the first checkpoint would have to capture all of it.
        """
        if self.own:
            return {}
        states = ((step, self.state_of(step, groups)) for step in set(steps) - self._changed())
        return {step: state for step, state in states if state is not None and state.keyed}

    def _changed(self) -> set[str]:
        """Steps that do not take their state over as it is: it must be captured anew."""
        return {
            step.name
            for step in self.changes.steps
            if any(state.fate not in (Fate.KEPT, Fate.NEW, Fate.UNKNOWN) for state in step.states)
        }

    def _state(self, step: str) -> OperatorSnapshot:
        return self.restored.states.get(step, OperatorSnapshot())


def changes_of(plan: Plan, restored: Restored) -> ChangePlan:
    """What becomes of each state in ``restored`` when the job of ``plan`` goes on from it."""
    stored = [
        stored_step(step, restored.states.get(step.name, OperatorSnapshot()))
        for step in restored.manifest.steps
    ]
    key_groups = (restored.manifest.key_groups, plan.key_groups)
    return change_plan(stored, declared_steps(plan), key_groups=key_groups)


def _of(step: str) -> str:
    return f"what the checkpoint holds of step {step!r}"


def _forwarded(plan: Plan, restored: Restored) -> frozenset[str]:
    """The sources of which records were in flight on the way to the first exchange that shares them out."""
    #: By step, the sources whose records come to it as they were read.
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


def _links(step: StepState, groups: KeyGroupRange) -> Iterator[Link]:
    """The parts that hold something of ``groups``, as far as they count for it."""
    for subtask in step.subtasks:
        for link in subtask.chain:
            first, stop = max(link.first, groups.start), min(link.stop, groups.stop)
            if first < stop:
                yield Link(link.file, first, stop)
