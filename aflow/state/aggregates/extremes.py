"""Minimum, maximum and top k: the values of the first ranks in an order in which NaN is last."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, overload

from aflow.errors import FlowDefinitionError, shown
from aflow.state.aggregate import Aggregate
from aflow.state.aggregates.accumulator_codecs import RankedCodec, values_codec
from aflow.state.aggregates.arrival_order import SelectedAggregate
from aflow.state.aggregates.selector import select

T = TypeVar("T")
V = TypeVar("V")


class Comparable(Protocol):
    """A value with an order: ``<`` among values of the same type."""

    def __lt__(self, other: Any, /) -> bool: ...


C = TypeVar("C", bound=Comparable)

Ranked: TypeAlias = tuple[list[Any], list[V]]
"""The ranks of the best values, best first, and these values."""


@overload
def min(*, stored_as: type[C] | None = None) -> Aggregate[C, list[C], C]: ...


@overload
def min(of: Callable[[T], C], *, stored_as: type[C] | None = None) -> Aggregate[T, list[C], C]: ...


@overload
def min(
    *, by: Callable[[T], Comparable], stored_as: type[T] | None = None
) -> Aggregate[T, Ranked[T], T]: ...


@overload
def min(
    of: Callable[[T], V], *, by: Callable[[T], Comparable], stored_as: type[V] | None = None
) -> Aggregate[T, Ranked[V], V]: ...


def min(
    of: Callable[[Any], Any] | None = None,
    *,
    by: Callable[[Any], Any] | None = None,
    stored_as: type[Any] | None = None,
) -> Aggregate[Any, Any, Any]:
    """Minimum of ``of(record)``, or with ``by`` the record (or its ``of``) with the smallest ``by``.

    Of equal ones it is the first to arrive (where parts of a window are merged, that of the older part, see ``first``).
    NaN is skipped, and is the result only if there is nothing else. Raises ``ValueError`` for no records.

    Snapshots store the value by the type ``stored_as``, which is needed unless it is a plain Python value. The result
    of ``by`` must be a plain value.
    """
    if by is not None:
        return _BestOne("min", 1, _smaller, by, of, stored_as)
    return _Extreme("min", _smaller, of, stored_as)


@overload
def max(*, stored_as: type[C] | None = None) -> Aggregate[C, list[C], C]: ...


@overload
def max(of: Callable[[T], C], *, stored_as: type[C] | None = None) -> Aggregate[T, list[C], C]: ...


@overload
def max(
    *, by: Callable[[T], Comparable], stored_as: type[T] | None = None
) -> Aggregate[T, Ranked[T], T]: ...


@overload
def max(
    of: Callable[[T], V], *, by: Callable[[T], Comparable], stored_as: type[V] | None = None
) -> Aggregate[T, Ranked[V], V]: ...


def max(
    of: Callable[[Any], Any] | None = None,
    *,
    by: Callable[[Any], Any] | None = None,
    stored_as: type[Any] | None = None,
) -> Aggregate[Any, Any, Any]:
    """Maximum of ``of(record)``, or with ``by`` the record (or its ``of``) with the greatest ``by``.

    Otherwise as ``min``: of equal ones the first to arrive, NaN only if there is nothing else.
    """
    if by is not None:
        return _BestOne("max", 1, _greater, by, of, stored_as)
    return _Extreme("max", _greater, of, stored_as)


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
    """List of the ``k`` records with the greatest ``by(record)``, greatest first; shorter if there are fewer records.

    With ``of`` the list has ``of(record)`` in place of records; without ``by`` that is compared. Of equal ones the
    first to arrive ranks first (where parts of a window are merged, the one of the older part, see ``first``). NaN
    ranks last. ``by=lambda record: -record.price`` gives the smallest.

    Snapshots store the values by the type ``stored_as``, which is needed unless they are plain Python values. The
    results of ``by`` must be plain values.
    """
    if type(k) is not int or k < 1:
        raise FlowDefinitionError(f"top_k: k is a number of records from 1 on, not {shown(k)}")
    return _Best("top_k", k, _greater, by, of, stored_as)


class _Extreme(SelectedAggregate):
    """The minimum or maximum; the accumulator is a list of one value, or of none."""

    def __init__(
        self,
        what: str,
        before: Callable[[Any, Any], bool],
        of: Callable[[Any], Any] | None,
        stored_as: type[Any] | None,
    ) -> None:
        super().__init__(what, of, stored_as)
        self._before: Final = before

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self._offer(acc, self._of(value))

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return self._offer(a, b[0]) if b else a

    def _offer(self, acc: list[Any], value: Any) -> list[Any]:
        if not acc:
            acc.append(value)
        elif self._before(value, acc[0]):
            acc[0] = value
        return acc


class _Best(Aggregate[Any, Ranked[Any], Any]):
    """The first ``k`` values in the order ``before``; of equal values the older is first."""

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
        self._of: Final = select(of, what)
        self._by: Final = None if by is None else select(by, what, "by")
        self.codec: Final = RankedCodec(values_codec(stored_as), by_value=by is None)

    def create(self) -> Ranked[Any]:
        return [], []

    def add(self, acc: Ranked[Any], value: Any) -> Ranked[Any]:
        # Hot path: most records are not among the best, and need a comparison only.
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
        """Insert ``kept`` after all values that rank before it or equal, and drop the last if there are too many."""
        ranks, values = acc
        index = bisect_left(ranks, True, key=partial(self._before, rank))
        ranks.insert(index, rank)
        values.insert(index, kept)
        if len(ranks) > self._k:
            ranks.pop()
            values.pop()


class _BestOne(_Best):
    """The first value in the order ``before``."""

    def result(self, acc: Ranked[Any]) -> Any:
        if not acc[1]:
            raise ValueError("there are no records, so none of them ranks first")
        return acc[1][0]


def _greater(value: Any, other: Any) -> bool:
    """Return True if ``value`` ranks before ``other`` where the greatest is first; NaN is last."""
    # Only NaN differs from itself. Without a rank of its own the result would depend on the order of the records.
    return True if other < value else bool(other != other and value == value)


def _smaller(value: Any, other: Any) -> bool:
    """Return True if ``value`` ranks before ``other`` where the smallest is first; NaN is last."""
    return True if value < other else bool(other != other and value == value)
