"""The number of records that a task takes at once: as many as it can process in its share of the event loop.

Theory. A batch is processed without interruption, so a batch that takes long delays mails and the host of the job. The
size is therefore bounded by time as well as by number: a batch that took longer than the budget reduces the bound to
the number that would have fitted, and a full batch that took less than half of it doubles the bound, up to the
maximum. The first batch is small, since the cost of the functions is unknown.

Results do not depend on the size of batches: windows need no watermark within a batch that it does not have
(docs/decisions/002), and for event timers batches carry the watermark of each record (docs/decisions/045).
"""

from __future__ import annotations

from math import inf
from typing import Final

from aflow.machines.turns import Turn

#: Records in a first batch.
_FIRST: Final = 32


class BatchSize:
    """The bound on the next batch: ``limit`` in records, between 1 and ``most``."""

    __slots__ = ("_longest", "_most", "_turn", "limit")

    def __init__(self, most: int, budget: float | Turn, *, longest: float = inf) -> None:
        """``budget`` is the time that a batch may take, and ``longest`` an upper bound of it, in seconds."""
        self._most = most
        self._turn = budget if isinstance(budget, Turn) else Turn(budget)
        self._longest = longest
        self.limit = min(_FIRST, most)

    def took(self, records: int, seconds: float) -> None:
        """Adapt the bound to a batch of ``records`` that took ``seconds``."""
        # Hot path: once for each batch of a task.
        budget = self._turn.seconds
        if budget > self._longest:
            budget = self._longest
        if seconds > budget:
            self.limit = max(1, min(self.limit, int(records * budget / seconds)))
        elif self.limit < self._most and records >= self.limit and seconds < budget / 2:
            self.limit = min(self._most, self.limit * 2)
