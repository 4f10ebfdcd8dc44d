"""The number of records that a task takes at once: as many as it can process in its share of the event loop.

Theory. A batch is processed without interruption, so a batch that takes long delays mails and the host of the job. The
size is therefore bounded by time as well as by number: a batch that took longer than the budget reduces the bound to
the number that would have fitted, and a full batch that took less than half of it doubles the bound, up to the
maximum. The first batch is small, since the cost of the functions is unknown. A single long batch after others that
fitted reduces a small bound to a half at most: it may be a stall of the machine. Larger bounds are reduced in
proportion, since a batch of a half could block the event loop for long, and they grow again within a few batches.

*Fixed costs.* That takes the cost of a batch for that of its records. A long chain has costs for each batch, which may
exceed a short budget alone. Then a smaller batch takes hardly less time, and batches of one record waste nearly all of
it. So a bound that is small and does not grow is doubled as a *trial*. Two sizes tell the costs of a batch from those
of its records. If the former are the larger part, the bound stays doubled, and a batch may take twice these costs if
the budget is shorter (but never longer than ``longest``). Otherwise the trial is undone, and the next one follows much
later. Stalls only add to times, so the least of several batches counts, and the costs of a batch are never more than
the time of the shortest one since.

Results do not depend on the size of batches: windows need no watermark within a batch that it does not have
(docs/decisions/002), and for event timers batches carry the watermark of each record (docs/decisions/045).
"""

from __future__ import annotations

from math import inf
from typing import Final

from aflow.machines.turns import Turn

#: Records in a first batch. Larger ones need no trial: their records share the fixed costs.
_FIRST: Final = 32

#: Full batches before a trial, and of a trial that is undone.
_MEASURED: Final = 4

#: Full batches from a trial that was undone to the next one.
_BETWEEN_TRIALS: Final = 256


class BatchSize:
    """The bound on the next batch: ``limit`` in records, between 1 and ``most``."""

    __slots__ = (
        "_full",
        "_least",
        "_longest",
        "_most",
        "_overhead",
        "_smaller",
        "_turn",
        "_until_trial",
        "_was_long",
        "limit",
    )

    def __init__(self, most: int, budget: float | Turn, *, longest: float = inf) -> None:
        """``budget`` is the time that a batch may take, and ``longest`` an upper bound of it, in seconds.

        A batch whose fixed costs exceed the budget may take twice these costs, within ``longest``.
        """
        self._most = most
        self._turn = budget if isinstance(budget, Turn) else Turn(budget)
        self._longest = longest
        self.limit = min(_FIRST, most)
        #: True if the last batch took too long, or if there was none.
        self._was_long = True
        #: Seconds of a batch that do not depend on its records, if a trial has found that they matter; else 0.
        self._overhead = 0.0
        #: Full batches since the bound has changed, while it is small, and the least seconds of one.
        self._full, self._least = 0, inf
        #: The bound before the present trial, and the least seconds of its batches; None without a trial.
        self._smaller: tuple[int, float] | None = None
        #: Full batches until the next trial.
        self._until_trial = 0

    def took(self, records: int, seconds: float) -> None:
        """Adapt the bound to a batch of ``records`` that took ``seconds``."""
        # Hot path: once for each batch of a task.
        budget = self._turn.seconds
        if budget > self._longest:
            budget = self._longest
        if self._overhead:
            self._overhead = min(self._overhead, seconds)
            budget = min(max(budget, 2 * self._overhead), self._longest)
        limit = self.limit
        if self._smaller is not None and self._observe_trial(*self._smaller, records, seconds):
            return
        if seconds > budget:
            fitting = max(1, min(limit, int(records * budget / seconds)))
            self._change(fitting if self._was_long or limit > _FIRST else max(fitting, limit // 2))
            self._was_long = True
        else:
            self._was_long = False
            if records >= limit and seconds < budget / 2:
                self._change(min(self._most, limit * 2))
        if self.limit == limit <= records and limit < _FIRST:
            self._observe(seconds)

    def _change(self, limit: int) -> None:
        if limit != self.limit:
            self.limit = limit
            self._full, self._least, self._smaller = 0, inf, None

    def _observe(self, seconds: float) -> None:
        """Take the time of a full batch of a small bound, and begin a trial if it is time for one."""
        self._full += 1
        self._least = min(self._least, seconds)
        if self._until_trial:
            self._until_trial -= 1
        elif self._full >= _MEASURED and self.limit < self._most:
            smaller = self.limit, self._least
            self._change(min(self._most, self.limit * 2))
            self._smaller = smaller

    def _observe_trial(self, smaller: int, before: float, records: int, seconds: float) -> bool:
        """Adapt the bound to a batch during a trial. Return False, without effect, if the batch counts as any other."""
        if records < self.limit:
            # Input that was read before the trial.
            return records <= smaller and seconds <= 2 * before
        self._full += 1
        overhead = before - smaller * (seconds - before) / (self.limit - smaller)
        if overhead > before / 2 and seconds <= self._longest:
            self._overhead = min(overhead, seconds)
            self._full, self._least, self._smaller = 0, inf, None
        elif self._full >= _MEASURED:
            self._change(smaller)
            self._until_trial = _BETWEEN_TRIALS
        return True
