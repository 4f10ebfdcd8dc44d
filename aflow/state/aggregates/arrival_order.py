"""Values kept as they are: the first, the last, all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

from aflow.state.aggregate import Aggregate
from aflow.state.aggregates.accumulator_codecs import values_codec
from aflow.state.aggregates.selector import pick

T = TypeVar("T")
V = TypeVar("V")


@overload
def first(*, stored_as: type[T] | None = None) -> Aggregate[T, list[T], T]: ...


@overload
def first(
    of: Callable[[T], V], *, stored_as: type[V] | None = None
) -> Aggregate[T, list[V], V]: ...


def first(
    of: Callable[[Any], Any] | None = None, *, stored_as: type[Any] | None = None
) -> Aggregate[Any, list[Any], Any]:
    """``of(record)`` of the first record to arrive; the record itself without ``of``.

    Arrival need not be the order of timestamps: ``min(by=lambda record: record.at)`` gives the earliest. And it is
    known within one accumulator only. Where a window is put together from parts (sliding windows, sessions that a
    record joins), the part that is earlier in event time counts as the older one, whichever came first.

    Of no records there is none: ``ValueError``. Snapshots store what is kept by the type ``stored_as``, which is
    needed unless it is a plain Python value.
    """
    return _First("first", of, stored_as)


@overload
def last(*, stored_as: type[T] | None = None) -> Aggregate[T, list[T], T]: ...


@overload
def last(of: Callable[[T], V], *, stored_as: type[V] | None = None) -> Aggregate[T, list[V], V]: ...


def last(
    of: Callable[[Any], Any] | None = None, *, stored_as: type[Any] | None = None
) -> Aggregate[Any, list[Any], Any]:
    """``of(record)`` of the last record to arrive; the record itself without ``of``. For the rest see ``first``."""
    return _Last("last", of, stored_as)


@overload
def collect(*, stored_as: type[T] | None = None) -> Aggregate[T, list[T], list[T]]: ...


@overload
def collect(
    of: Callable[[T], V], *, stored_as: type[V] | None = None
) -> Aggregate[T, list[V], list[V]]: ...


def collect(
    of: Callable[[Any], Any] | None = None, *, stored_as: type[Any] | None = None
) -> Aggregate[Any, list[Any], list[Any]]:
    """A list of ``of(record)`` of all records, in the order in which they arrive; empty for none.

    Each result is a list of its own. Memory grows with the records. For the order in windows that are put together
    from parts, and for ``stored_as``, see ``first``.
    """
    return _All("collect", of, stored_as)


class _Kept(Aggregate[Any, list[Any], Any]):
    """The accumulator is a list of the values that are kept."""

    def __init__(
        self, what: str, of: Callable[[Any], Any] | None, stored_as: type[Any] | None
    ) -> None:
        self._what: Final = what
        self._of: Final = pick(of, what)
        self.codec: Final = values_codec(stored_as)

    def create(self) -> list[Any]:
        return []

    def result(self, acc: list[Any]) -> Any:
        if not acc:
            raise ValueError(f"no records have no {self._what}")
        return acc[0]


class _First(_Kept):
    def add(self, acc: list[Any], value: Any) -> list[Any]:
        if not acc:
            acc.append(self._of(value))
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a or b.copy()


class _Last(_Kept):
    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc[:] = (self._of(value),)
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return b.copy() or a


class _All(_Kept):
    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc.append(self._of(value))
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a += b
        return a

    def result(self, acc: list[Any]) -> Any:
        return acc.copy()
