"""The rule that decides if a failed job is restarted: failures that a restart cannot repair end it at once.

- ``FlowDefinitionError`` and ``RestoreError`` are errors of the pipeline or of the stored state: final.
- ``StorageTaken`` is final: another job has taken over, and the storage of this one remains fenced.
- ``UnstorableState`` of a step that had no state before is an error of the pipeline, too: the type is not declared.
- In a step that had state before, a single value may be of another type. A restart helps if the record that caused it
  is not read again. So the job is restarted once. A second failure of this class, without a completed checkpoint in
  between, is final: the record was read again.
- All others are counted by the budget of the restart strategy.
"""

from __future__ import annotations

from aflow.errors import FlowDefinitionError, RestoreError, StorageTaken, UnstorableState
from aflow.machines.restart import GiveUp, Restart
from aflow.model.time import Timestamp
from aflow.runtime.checkpoints.statistics import CheckpointTally
from aflow.runtime.restarts import NoRestart, Restarts

#: Errors of the pipeline, of the stored state or of its ownership, which another attempt would repeat.
_FINAL_ERRORS = (FlowDefinitionError, RestoreError, StorageTaken)


class RestartRule:
    """Decides at each failure of one job."""

    def __init__(self, restarts: Restarts, tally: CheckpointTally) -> None:
        """``tally`` counts the checkpoints of the job."""
        self._enabled = not isinstance(restarts, NoRestart)
        self._budget = restarts.machine()
        self._tally = tally
        #: The number of completed checkpoints at the last ``UnstorableState``; None before the first.
        self._unstorable_after: int | None = None

    def on_failure(self, cause: Exception, now: Timestamp, draw: float) -> Restart | None:
        """Return the restart after ``cause``. None: the job fails, and a note of ``cause`` says the reason.

        ``draw`` is a random number from 0 to below 1.
        """
        if isinstance(cause, _FINAL_ERRORS):
            return None
        if isinstance(cause, UnstorableState) and self._is_repeated(cause):
            self._add_note(cause, "the value would be in the state again")
            return None
        decision = self._budget.on_failure(now, draw)
        if isinstance(decision, GiveUp):
            self._add_note(cause, decision.reason)
            return None
        return decision

    def _is_repeated(self, cause: UnstorableState) -> bool:
        """Return True if the error would be raised again, and count it."""
        before, self._unstorable_after = self._unstorable_after, self._tally.completed
        return cause.initial or before == self._tally.completed

    def _add_note(self, cause: Exception, reason: str) -> None:
        if self._enabled:
            cause.add_note(f"The job is not restarted: {reason}")
