"""A checkpoint that a job goes on from: what each part of the job finds of its own in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aflow.connect import Committable
from aflow.errors import RestoreError
from aflow.graph.plan import Plan
from aflow.model.batch import Batch
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.channel import Element
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.inflight import InFlightCodec, Origin, restored_channels
from aflow.runtime.checkpoints.sections import read_committables, read_progress
from aflow.runtime.checkpoints.storage import Restored
from aflow.runtime.splits import Progress
from aflow.state.manifest import Link, StepState
from aflow.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class Restoration:
    """``restored`` as seen by the job that goes on from it."""

    restored: Restored
    codec: InFlightCodec
    own: bool
    """True if the checkpoint is in the storage of this job, so that later ones can build upon its parts."""

    def check(self, plan: Plan) -> None:
        """Raises ``RestoreError`` if the checkpoint is of a job that cannot be this one."""
        stored = self.restored.manifest
        if stored.key_groups != plan.key_groups:
            raise RestoreError(
                f"checkpoint {stored.id} has its keys in {stored.key_groups} key groups, and the job has "
                f"{plan.key_groups}: run it with Options(key_groups={stored.key_groups})"
            )

    def state_of(self, step: str, groups: KeyGroupRange) -> OperatorSnapshot | None:
        """What a step remembered, for a subtask that owns ``groups``; None for one that is new."""
        snapshot = self.restored.states.get(step)
        return None if snapshot is None else snapshot.restricted_to(groups)

    def progress(self, source: str) -> Progress | None:
        """How far a source was read; None for one that is new."""
        snapshot = self.restored.states.get(source)
        return None if snapshot is None else read_progress(source, snapshot)

    def committables(self, sink: str) -> list[Committable]:
        """What all writers of a sink had prepared."""
        return read_committables(sink, self._state(sink))

    def waiting(self, sink: str, subtask: int, parallelism: int) -> list[Batch[Any]]:
        """What writer ``subtask`` of a sink writes first."""
        return self.codec.waiting_for(sink, self._state(sink), subtask, parallelism)

    def in_flight(
        self, step: str, origins: Mapping[tuple[int, int, int], Origin], key_groups: int
    ) -> dict[Origin, list[Element]]:
        """What the channels into ``step`` begin with."""
        return restored_channels(self.codec, step, self._state(step), origins, key_groups)

    def adopt(self, chains: SubtaskChains, steps: Iterable[str]) -> None:
        """Let the checkpoints of a subtask build upon the parts of this one."""
        if not self.own:
            return
        wanted = set(steps)
        for step in self.restored.manifest.steps:
            if step.name in wanted:
                chains.adopt(step.name, _links(step, chains.groups))

    def _state(self, step: str) -> OperatorSnapshot:
        return self.restored.states.get(step, OperatorSnapshot())


def _links(step: StepState, groups: KeyGroupRange) -> Iterator[Link]:
    """The parts that hold something of ``groups``, as far as they count for it."""
    for subtask in step.subtasks:
        for link in subtask.chain:
            first, stop = max(link.first, groups.start), min(link.stop, groups.stop)
            if first < stop:
                yield Link(link.file, first, stop)
