"""Completed checkpoints that are kept."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable


class CompletedCheckpoints:
    """The newest ``keep`` completed checkpoints, by id. ``known`` are those of earlier attempts, which may be more."""

    __slots__ = ("_ids", "_keep")

    def __init__(self, keep: int, known: Iterable[int] = ()) -> None:
        self._keep = keep
        #: Ascending. Above ``keep`` only before the first ``add``.
        self._ids = sorted(set(known))

    @property
    def ids(self) -> tuple[int, ...]:
        """Checkpoints that are kept, oldest first."""
        return tuple(self._ids)

    def add(self, checkpoint: int) -> tuple[int, ...]:
        """Add a checkpoint and return those that are superfluous now, oldest first.

        One that completes after newer ones may be superfluous itself.
        """
        insort(self._ids, checkpoint)
        beyond = len(self._ids) - self._keep
        if beyond <= 0:
            return ()
        superfluous = tuple(self._ids[:beyond])
        del self._ids[:beyond]
        return superfluous
