"""Identity of a subtask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskId:
    """A subtask as checkpoints identify it; its text is ``sums[2]``."""

    step: str
    """The step that reads the input of the task."""
    subtask: int

    def __str__(self) -> str:
        return f"{self.step}[{self.subtask}]"
