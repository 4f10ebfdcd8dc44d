"""The smallest and the greatest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

from aflow.state.aggregate import Aggregate
from aflow.state.aggregates.accumulator_codecs import values_codec
from aflow.state.aggregates.comparing import Comparable, greater, smaller
from aflow.state.aggregates.ranked import Best, Ranked
from aflow.state.aggregates.selector import pick

T = TypeVar("T")
V = TypeVar("V")
C = TypeVar("C", bound=Comparable)


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
    """The smallest ``of(record)``, or with ``by`` the record (or what ``of`` gives for it) with the smallest ``by``.

    Of equal ones it is the first to arrive (where parts of a window come together, that of the older part, see
    ``first``). NaN is passed over, and comes out only if there is nothing else. Of no records there is none:
    ``ValueError``.

    Snapshots store what is kept by the type ``stored_as``, which is needed unless it is a plain Python value; what
    ``by`` gives must be one.
    """
    if by is not None:
        return Best("min", 1, smaller, by, of, stored_as)
    return _Extreme("min", smaller, of, stored_as)


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
    """The greatest ``of(record)``, or with ``by`` the record (or what ``of`` gives for it) with the greatest ``by``.

    In all else as ``min``: of equal ones the first to arrive, NaN only if there is nothing else.
    """
    if by is not None:
        return Best("max", 1, greater, by, of, stored_as)
    return _Extreme("max", greater, of, stored_as)


class _Extreme(Aggregate[Any, list[Any], Any]):
    """The accumulator is a list of one value, or of none."""

    def __init__(
        self,
        what: str,
        before: Callable[[Any, Any], bool],
        of: Callable[[Any], Any] | None,
        stored_as: type[Any] | None,
    ) -> None:
        self._what: Final = what
        self._before: Final = before
        self._of: Final = pick(of, what)
        self.codec: Final = values_codec(stored_as)

    def create(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self._offer(acc, self._of(value))

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return self._offer(a, b[0]) if b else a

    def result(self, acc: list[Any]) -> Any:
        if not acc:
            raise ValueError(f"no records have no {self._what}")
        return acc[0]

    def _offer(self, acc: list[Any], value: Any) -> list[Any]:
        if not acc:
            acc.append(value)
        elif self._before(value, acc[0]):
            acc[0] = value
        return acc
