"""How many checkpoints in a row have failed, and whether the job has to."""

from __future__ import annotations


class FailureCounter:
    """Counts failed checkpoints until one succeeds.

    Whoever reports them reports each id once. What fails after a newer one has succeeded is not counted: the job has
    something newer to fall back upon. After Flink's ``CheckpointFailureManager``.
    """

    __slots__ = ("_succeeded", "_tolerable", "count")

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        #: The newest checkpoint that succeeded; -1 before the first.
        self._succeeded = -1
        #: Failures since then.
        self.count = 0

    def failed(self, checkpoint: int) -> bool:
        """Count it; True if that is more than can be tolerated."""
        if checkpoint < self._succeeded:
            return False
        self.count += 1
        return self.count > self._tolerable

    def succeeded(self, checkpoint: int) -> None:
        """Begin to count anew."""
        self._succeeded = max(self._succeeded, checkpoint)
        self.count = 0
