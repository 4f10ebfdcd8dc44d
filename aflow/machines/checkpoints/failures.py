"""Number of checkpoints that failed in a row, and the limit at which the job fails."""

from __future__ import annotations


class FailureCounter:
    """Counts failed checkpoints until one succeeds.

    Each id must be reported once. A failure is not counted if a newer checkpoint has succeeded: the job can be restored
    from that. After Flink's ``CheckpointFailureManager``.
    """

    __slots__ = ("_succeeded", "_tolerable", "count")

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        #: The newest checkpoint that succeeded; -1 before the first.
        self._succeeded = -1
        #: Failures since that one.
        self.count = 0

    def failed(self, checkpoint: int) -> bool:
        """Count a failure. Return True if there are more than are tolerable."""
        if checkpoint < self._succeeded:
            return False
        self.count += 1
        return self.count > self._tolerable

    def succeeded(self, checkpoint: int) -> None:
        """Set the count to 0."""
        self._succeeded = max(self._succeeded, checkpoint)
        self.count = 0
