"""The step of ``top``: the best records of each key so far."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from types import GenericAlias
from typing import Any

from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize
from aflow.operators.first_call import FirstCall
from aflow.operators.keyed_state import KeyedStateOperator, touch
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import ValueState
from aflow.state.stored_entries import batched


class TopOperator(KeyedStateOperator):
    """Keeps the ``n`` records of each key with the highest ``by(value)``, and emits them, best first, at each change.

    Of equal ones the earlier is better, so a record equal to the last one changes nothing. NaN is below everything
    else. ``of`` and ``key_type`` are the types of records and keys, which snapshots need unless they are
    plain Python values.
    """

    def __init__(
        self,
        n: int,
        by: Callable[[Any], Any],
        key_type: type[Hashable] | None = None,
        of: type[Any] | None = None,
    ) -> None:
        self._n = n
        self._by: Callable[[Any], Any] = FirstCall(self, "_by", by, "top()")
        ranking: Any = None if of is None else GenericAlias(tuple, (of, ...))
        self._best = ValueState[Any]("best", of=ranking)
        super().__init__((self._best,), key_type)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        #: The best records of each key, best first.
        self._ranking = self._backend.table(self._best)
        #: Their scores, worst first, of equal ones the latest first; computed again after a restore.
        self._scores: dict[Hashable, list[Any]] = {}

    def process(self, batch: Batch[Any]) -> None:
        keys = touch(self, self._backend, batch)
        # Hot path: one comparison rejects most records.
        by, rankings, n = self._by, self._ranking, self._n
        changed: list[Any] = []
        indexes: list[int] = []
        left = iter(batch.values)
        try:
            for index, (value, key) in enumerate(zip(left, keys, strict=False)):
                score = by(value)
                scores = self._scores.get(key)
                if scores is None:
                    scores = self._begin(key)
                if len(scores) == n:
                    worst = scores[0]
                    if not (worst < score or (worst != worst and score == score)):
                        continue
                    del scores[0]
                place = _place(scores, score)
                ranking = rankings.get(key, ())
                better = len(scores) - place
                scores.insert(place, score)
                ranking = (*ranking[:better], value, *ranking[better : n - 1])
                rankings[key] = ranking
                changed.append(ranking)
                indexes.append(index)
        except RAISED as exc:
            raise self.failure(exc, batch, left) from exc
        if changed:
            best = batch.pick(indexes)
            self.output.emit(Batch(changed, best.timestamps, None, best.watermarks))

    def row_times(self) -> RowTimes:
        return {}

    def size(self) -> StateSize:
        return StateSize(len(self._ranking))

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Continue from ``snapshot``, with the best ``n`` records of each key."""
        yield from super().restore_in_pieces(snapshot)
        self._scores.clear()
        for some in batched(self._ranking.items()):
            longer = {key: ranking for key, ranking in some if len(ranking) > self._n}
            self._backend.touch(list(longer))
            for key, ranking in longer.items():
                self._ranking[key] = ranking[: self._n]
            yield

    def _begin(self, key: Hashable) -> list[Any]:
        check_key(key)
        scores = [self._by(value) for value in reversed(self._ranking.get(key, ()))]
        self._scores[key] = scores
        return scores


def _place(scores: list[Any], score: Any) -> int:
    """Return the index of a newer ``score``: before equal ones, which are earlier and so better."""
    if score != score:
        return 0
    nans = 0
    while nans < len(scores) and scores[nans] != scores[nans]:
        nans += 1
    return bisect_left(scores, score, nans)
