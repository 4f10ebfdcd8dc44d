"""The best few of all values: the one idea behind ``min`` and ``max`` by something, and ``top_k``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

from aflow.errors import FlowDefinitionError, shown
from aflow.state.aggregate import Aggregate
from aflow.state.aggregates.accumulator_codecs import RankedCodec, values_codec
from aflow.state.aggregates.comparing import Comparable, greater
from aflow.state.aggregates.selector import pick

T = TypeVar("T")
V = TypeVar("V")
C = TypeVar("C", bound=Comparable)

Ranked: TypeAlias = tuple[list[Any], list[V]]
"""The best values, best first, and before them what each ranks by."""


@overload
def top_k(k: int, *, stored_as: type[C] | None = None) -> Aggregate[C, Ranked[C], list[C]]: ...


@overload
def top_k(
    k: int, *, of: Callable[[T], C], stored_as: type[C] | None = None
) -> Aggregate[T, Ranked[C], list[C]]: ...


@overload
def top_k(
    k: int, *, by: Callable[[T], Comparable], stored_as: type[T] | None = None
) -> Aggregate[T, Ranked[T], list[T]]: ...


@overload
def top_k(
    k: int,
    *,
    by: Callable[[T], Comparable],
    of: Callable[[T], V],
    stored_as: type[V] | None = None,
) -> Aggregate[T, Ranked[V], list[V]]: ...


def top_k(
    k: int,
    *,
    by: Callable[[Any], Any] | None = None,
    of: Callable[[Any], Any] | None = None,
    stored_as: type[Any] | None = None,
) -> Aggregate[Any, Any, Any]:
    """The ``k`` records with the greatest ``by(record)``, as a list, greatest first; fewer if there are fewer.

    ``of(record)`` is kept in place of the record; without ``by`` it is what is compared. Of equal ones the first to
    arrive is first, and stays when there is no room for all (where parts of a window come together, it is the one of
    the older part, see ``first``). NaN ranks last. ``by=lambda record: -record.price`` gives the smallest.

    Snapshots store what is kept by the type ``stored_as``, which is needed unless it is a plain Python value; what
    ``by`` gives must be one.
    """
    if type(k) is not int or k < 1:
        raise FlowDefinitionError(f"top_k: k is a number of records from 1 on, not {shown(k)}")
    return BestFew("top_k", k, greater, by, of, stored_as)


class BestFew(Aggregate[Any, Ranked[Any], Any]):
    """The ``k`` values that come before all others by ``before``, the older before its equals."""

    def __init__(
        self,
        what: str,
        k: int,
        before: Callable[[Any, Any], bool],
        by: Callable[[Any], Any] | None,
        of: Callable[[Any], Any] | None,
        stored_as: type[Any] | None,
    ) -> None:
        self._k: Final = k
        self._before: Final = before
        self._of: Final = pick(of, what)
        self._by: Final = None if by is None else pick(by, what, "by")
        self.codec: Final = RankedCodec(values_codec(stored_as), by_value=by is None)

    def create(self) -> Ranked[Any]:
        return [], []

    def add(self, acc: Ranked[Any], value: Any) -> Ranked[Any]:
        # Hot path: most records are not among the best, and need no more than a comparison.
        if (by := self._by) is None:
            kept = rank = self._of(value)
            if self._has_room(acc, rank):
                self._insert(acc, rank, kept)
        elif self._has_room(acc, rank := by(value)):
            self._insert(acc, rank, self._of(value))
        return acc

    def merge(self, a: Ranked[Any], b: Ranked[Any]) -> Ranked[Any]:
        for rank, kept in zip(*b, strict=True):
            if not self._has_room(a, rank):
                break
            self._insert(a, rank, kept)
        return a

    def result(self, acc: Ranked[Any]) -> Any:
        return acc[1].copy()

    def _has_room(self, acc: Ranked[Any], rank: Any) -> bool:
        ranks = acc[0]
        return len(ranks) < self._k or self._before(rank, ranks[-1])

    def _insert(self, acc: Ranked[Any], rank: Any, kept: Any) -> None:
        """Put it behind all that do not come after it, and drop the last if there are too many now."""
        ranks, values = acc
        low, high = 0, len(ranks)
        while low < high:
            middle = (low + high) // 2
            if self._before(rank, ranks[middle]):
                high = middle
            else:
                low = middle + 1
        ranks.insert(low, rank)
        values.insert(low, kept)
        if len(ranks) > self._k:
            ranks.pop()
            values.pop()


class Best(BestFew):
    """The one value that comes before all others."""

    def result(self, acc: Ranked[Any]) -> Any:
        if not acc[1]:
            raise ValueError("no records have none that comes before the others")
        return acc[1][0]
