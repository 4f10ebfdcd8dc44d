"""Counting, adding up, averaging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

from aflow.state.aggregate import Aggregate
from aflow.state.aggregates import exact
from aflow.state.aggregates.exact import Total
from aflow.state.aggregates.selector import pick

T = TypeVar("T")
N = TypeVar("N", int, float)

Average: TypeAlias = tuple[int, Total]
"""How many there were, and their sum."""


# Any, and not object: beside another aggregate in `fields`, mypy would take object for the type of the records.
def count() -> Aggregate[Any, int, int]:
    """How many records there are; 0 for none."""
    return _Count()


@overload
def sum() -> Aggregate[N, Total, N]: ...


@overload
def sum(of: Callable[[T], N]) -> Aggregate[T, Total, N]: ...


def sum(of: Callable[[Any], Any] | None = None) -> Aggregate[Any, Total, Any]:
    """The sum of ``of(record)``, an int or a float (a bool is 0 or 1); of the records themselves without ``of``.

    Ints are added exactly, however large. If there is a float among them the result is the float nearest to the exact
    sum of all, which is the same in whatever order and parts they are added. A NaN makes it NaN; so do infinities of
    both signs. Of no records it is 0.

    Anything else that is not an int or a float fails the step, as an ``OperatorError``; ``fold`` adds other things.
    """
    return _Sum(pick(of, "sum"))


def mean(of: Callable[[T], float]) -> Aggregate[T, Average, float]:
    """The arithmetic mean of ``of(record)``, an int or a float: their sum as ``sum`` gives it, divided by their number.

    ``mean(float)`` is the mean of records that are numbers themselves. Of no records there is none: ``ValueError``.
    """
    return _Mean(pick(of, "mean"))


def number_of(aggregate: Aggregate[Any, Any, Any]) -> Callable[[Any], Any] | None:
    """What of a record ``aggregate`` adds to an exact sum; None if that is not all that it does."""
    return aggregate.of if type(aggregate) is _Sum else None


class _Count(Aggregate[Any, int, int]):
    commutative: Final = True

    def create(self) -> int:
        return 0

    def add(self, acc: int, value: Any) -> int:
        return acc + 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


class _Sum(Aggregate[Any, Total, Any]):
    commutative: Final = True

    def __init__(self, of: Callable[[Any], Any]) -> None:
        self.of: Final = of

    def create(self) -> Total:
        return exact.nothing()

    def add(self, acc: Total, value: Any) -> Total:
        # Hot path: once per record.
        number = self.of(value)
        if type(number) is int:
            acc[0] += number
        else:
            exact.plus(acc, number)
        return acc

    def merge(self, a: Total, b: Total) -> Total:
        exact.join(a, b)
        return a

    def result(self, acc: Total) -> Any:
        return exact.value(acc)


class _Mean(Aggregate[Any, Average, float]):
    commutative: Final = True

    def __init__(self, of: Callable[[Any], Any]) -> None:
        self._of: Final = of

    def create(self) -> Average:
        return 0, exact.nothing()

    def add(self, acc: Average, value: Any) -> Average:
        n, total = acc
        exact.plus(total, self._of(value))
        return n + 1, total

    def merge(self, a: Average, b: Average) -> Average:
        exact.join(a[1], b[1])
        return a[0] + b[0], a[1]

    def result(self, acc: Average) -> float:
        n, total = acc
        if not n:
            raise ValueError("no records have no mean")
        return exact.value(total) / n
