"""A checkpoint that is under way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aflow.machines.checkpoints.requests import WantedCheckpoint
from aflow.model.elements import CheckpointKind
from aflow.model.time import Timestamp

#: Maximum of tasks named in a reason.
_NAMED: Final = 3


class PendingCheckpoint:
    """A checkpoint and the tasks that have not acknowledged it. Once all have, it is being *stored*."""

    __slots__ = ("_missing", "deadline", "id", "wanted")

    def __init__(
        self, number: int, wanted: WantedCheckpoint, tasks: Collection[str], deadline: Timestamp
    ) -> None:
        self.id = number
        self.wanted = wanted
        #: Time at which it fails unless it has ended.
        self.deadline = deadline
        #: Tasks that have not acknowledged.
        self._missing = set(tasks)

    @property
    def kind(self) -> CheckpointKind:
        """The kind of the checkpoint."""
        return self.wanted.kind

    @property
    def storing(self) -> bool:
        """True after the last acknowledgement."""
        return not self._missing

    def acknowledge(self, task: str) -> bool:
        """Record an acknowledgement. Return True if it was the last one missing; a repeated one never is."""
        if task not in self._missing:
            return False
        self._missing.remove(task)
        return self.storing

    def waiting_for(self) -> str:
        """Return a phrase for messages that names the missing tasks."""
        if self.storing:
            return "while it was being stored"
        named = sorted(self._missing)[:_NAMED]
        more = len(self._missing) - len(named)
        return f"without {', '.join(named)}" + (f" and {more} more" if more else "")
