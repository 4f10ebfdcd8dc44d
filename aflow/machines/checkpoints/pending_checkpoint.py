"""A checkpoint that is under way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aflow.machines.checkpoints.requests import WantedCheckpoint
from aflow.model.elements import CheckpointKind
from aflow.model.time import Timestamp

#: So many tasks are named in a reason, which a person is to read.
_NAMED: Final = 3


class PendingCheckpoint:
    """Who has not done its part yet. Once all have, the checkpoint is being *stored*."""

    __slots__ = ("_missing", "deadline", "id", "wanted")

    def __init__(
        self, number: int, wanted: WantedCheckpoint, tasks: Collection[str], deadline: Timestamp
    ) -> None:
        self.id = number
        self.wanted = wanted
        #: When it has failed if it is still under way.
        self.deadline = deadline
        #: Tasks that have not acknowledged.
        self._missing = set(tasks)

    @property
    def kind(self) -> CheckpointKind:
        """What it is taken for."""
        return self.wanted.kind

    @property
    def storing(self) -> bool:
        """True from the last acknowledgement on."""
        return not self._missing

    def acknowledge(self, task: str) -> bool:
        """True if this was the last one missing; a repeated acknowledgement never is."""
        if task not in self._missing:
            return False
        self._missing.remove(task)
        return self.storing

    def waiting_for(self) -> str:
        """What is still to come, for a person."""
        if self.storing:
            return "while it was being stored"
        named = sorted(self._missing)[:_NAMED]
        more = len(self._missing) - len(named)
        return f"without {', '.join(named)}" + (f" and {more} more" if more else "")
