"""A coordinator with a clock, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from aflow.machines.checkpoints.coordinator import Coordinator
from aflow.machines.checkpoints.events import (
    Acknowledged,
    CoordinatorSettings,
    Event,
    Instruction,
    Requested,
    Started,
    Stored,
)
from aflow.model.elements import CheckpointKind

PERIODIC = CheckpointKind.PERIODIC
SAVEPOINT = CheckpointKind.SAVEPOINT
FINAL = CheckpointKind.FINAL


class ClockedCoordinator:
    """``coordinator(event, at=5)`` returns the instructions; without ``at`` the time is unchanged."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        tasks: Sequence[str] = ("a", "b"),
        first_id: int = 1,
        completed: Sequence[int] = (),
        started: bool = True,
    ) -> None:
        self.tasks = tasks
        self.machine = Coordinator(tasks, settings, first_id=first_id, completed=completed)
        self.now = 0
        if started:
            self(Started())

    def __call__(self, event: Event, at: int | None = None) -> list[Instruction]:
        self.now = self.now if at is None else at
        return self.machine.handle(event, self.now)

    def request(
        self, request: int, kind: CheckpointKind = PERIODIC, at: int | None = None
    ) -> list[Instruction]:
        """Ask for a checkpoint."""
        return self(Requested(request, kind), at)

    def acknowledge(self, checkpoint: int, at: int | None = None) -> list[Instruction]:
        """Acknowledge by all tasks, and return the instructions for the last one."""
        for task in self.tasks[:-1]:
            self(Acknowledged(task, checkpoint), at)
        return self(Acknowledged(self.tasks[-1], checkpoint), at)

    def complete(self, checkpoint: int, at: int | None = None) -> list[Instruction]:
        """Acknowledge by all tasks and store the checkpoint, and return the instructions for that."""
        self.acknowledge(checkpoint, at)
        return self(Stored(checkpoint), at)
