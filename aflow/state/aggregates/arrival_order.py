"""Aggregates that depend on the order of arrival: the first record, the last, the list of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

from aflow.state.aggregate import Aggregate
from aflow.state.aggregates.accumulator_codecs import values_codec
from aflow.state.aggregates.selector import select

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

    The order of arrival may differ from that of timestamps: ``min(by=lambda record: record.at)`` gives the earliest. It
    is known within one accumulator only. Where parts of a window are merged (sliding windows, sessions that a record
    joins), the part that is earlier in event time counts as the older one, whichever arrived first.

    Raises ``ValueError`` for no records. Snapshots store the value by the type ``stored_as``, which is needed unless it
    is a plain Python value.
    """
    return _First("first", of, stored_as)


@overload
def last(*, stored_as: type[T] | None = None) -> Aggregate[T, list[T], T]: ...


@overload
def last(of: Callable[[T], V], *, stored_as: type[V] | None = None) -> Aggregate[T, list[V], V]: ...


def last(
    of: Callable[[Any], Any] | None = None, *, stored_as: type[Any] | None = None
) -> Aggregate[Any, list[Any], Any]:
    """``of(record)`` of the last record to arrive; the record itself without ``of``. Otherwise as ``first``."""
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
    """List of ``of(record)`` of all records in the order of their arrival; empty for none.

    ``of`` is a function, as for all aggregates; the type of the values is ``stored_as``. Each result is a new list.
    Memory grows with the records. For the order in windows that are merged from parts, and for ``stored_as``, see
    ``first``.
    """
    return _All("collect", of, stored_as)


class SelectedAggregate(Aggregate[Any, list[Any], Any]):
    """Base of the aggregates whose accumulator is a list of selected values."""

    def __init__(
        self, what: str, of: Callable[[Any], Any] | None, stored_as: type[Any] | None
    ) -> None:
        self._what: Final = what
        self._of: Final = select(of, what)
        self.codec: Final = values_codec(stored_as)

    def create(self) -> list[Any]:
        return []

    def result(self, acc: list[Any]) -> Any:
        if not acc:
            raise ValueError(f"there are no records, so there is no {self._what}")
        return acc[0]


class _First(SelectedAggregate):
    def add(self, acc: list[Any], value: Any) -> list[Any]:
        if not acc:
            acc.append(self._of(value))
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a or b.copy()


class _Last(SelectedAggregate):
    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc[:] = (self._of(value),)
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return b.copy() or a


class _All(SelectedAggregate):
    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc.append(self._of(value))
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a += b
        return a

    def result(self, acc: list[Any]) -> Any:
        return acc.copy()
