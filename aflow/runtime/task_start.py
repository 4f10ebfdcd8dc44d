"""The time of a task before its first element."""

from __future__ import annotations

from collections.abc import Callable


class TaskStart:
    """Conditions of the first element of a task, and work that is postponed until they hold.

    After a restore, other tasks may have to process their records in flight before this one emits anything.
    """

    def __init__(self, resume: Callable[[], None]) -> None:
        """``resume`` is called when the last condition is met."""
        self._resume = resume
        self._blockers = 0
        #: True once the task has processed the records that were in flight inside its chain.
        self.initialized = False
        self._postponed: list[Callable[[], None]] = []

    @property
    def blocked(self) -> bool:
        """True while the task must not process anything."""
        return self._blockers > 0

    def block(self) -> None:
        """Process nothing until ``unblock`` was called as often as this."""
        self._blockers += 1

    def unblock(self) -> None:
        """Meet one condition."""
        self._blockers -= 1
        if not self._blockers:
            self._resume()

    def when_initialized(self, work: Callable[[], None]) -> None:
        """Do ``work`` now, or as soon as the records in flight inside the chain are processed.

        Checkpoints wait for that: until then those records are in no channel and in the state of no operator.
        """
        if self.initialized:
            work()
        else:
            self._postponed.append(work)

    def complete(self) -> None:
        """Do the postponed work."""
        self.initialized = True
        postponed, self._postponed = self._postponed, []
        for work in postponed:
            work()
