"""Count, sum and mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

from aflow.state.aggregate import Aggregate
from aflow.state.aggregates import exact
from aflow.state.aggregates.exact import Total
from aflow.state.aggregates.selector import select

T = TypeVar("T")
N = TypeVar("N", int, float)

Average: TypeAlias = tuple[int, Total]
"""The number of values and their sum."""


# Any rather than object: beside another aggregate in `fields`, mypy would infer object as the type of the records.
def count() -> Aggregate[Any, int, int]:
    """Number of records; 0 for none."""
    return _Count()


@overload
def sum() -> Aggregate[N, Total, N]: ...


@overload
def sum(of: Callable[[T], N]) -> Aggregate[T, Total, N]: ...


def sum(of: Callable[[Any], Any] | None = None) -> Aggregate[Any, Total, Any]:
    """Sum of ``of(record)``, an int or a float (a bool is 0 or 1); of the records themselves without ``of``.

    Ints are added exactly, however large. With a float among them the result is the float nearest to the exact sum of
    all, the same in any order and with any parts. It is NaN if there is a NaN or infinities of both signs. The sum of
    no records is 0.

    A value of another type fails the step with an ``OperatorError``; use ``fold`` for other types.
    """
    return _Sum(select(of, "sum"))


def mean(of: Callable[[T], float]) -> Aggregate[T, Average, float]:
    """Arithmetic mean of ``of(record)``, an int or a float: the result of ``sum`` divided by the number of records.

    ``mean(float)`` is the mean of records that are numbers themselves. Raises ``ValueError`` for no records.
    """
    return _Mean(select(of, "mean"))


def number_of(aggregate: Aggregate[Any, Any, Any]) -> Callable[[Any], Any] | None:
    """Return the selector of an ``aggregate`` that is an exact sum; None for all others."""
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
            raise ValueError("there are no records, so there is no mean")
        return exact.value(total) / n
