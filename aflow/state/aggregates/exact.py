"""Exact sums: the same for any order of the numbers and any division into parts.

Theory. Integers are added as integers. A few floats are kept as they are and replaced from time to time by an
expansion: floats of decreasing size with the same exact sum (J. R. Shewchuk, "Adaptive Precision Floating-Point
Arithmetic and Fast Robust Geometric Predicates", 1997). A sum beyond the largest float is kept as an integer and a
remainder. ``math.fsum`` rounds a sum once, so an expansion is that sum, the rounded remainder, the rounded remainder of
the remainder, and so on until it is zero: two or three floats for ordinary data.
"""

from __future__ import annotations

from fractions import Fraction
from math import fsum, inf, isfinite
from typing import Final, TypeAlias

Total: TypeAlias = list[int | float]
"""The sum of all integers, then floats if there are any: their exact sum is the total."""

#: Maximal length of a total. A longer one is faster, and takes more memory for each key.
_LIMIT: Final = 16

#: Integers of at least this size may exceed the largest float together with floats.
_FLOATS: Final = 2**1000


def nothing() -> Total:
    """Return the total of no numbers."""
    return [0]


def plus(total: Total, number: object) -> None:
    """Add ``number`` to ``total``. Raises ``TypeError`` unless it is an int or a float."""
    # Hot path: once per record.
    if type(number) is float:
        total.append(number)
        if len(total) > _LIMIT:
            _shorten(total)
    elif isinstance(number, int):
        total[0] += number
    elif isinstance(number, float):  # a subclass, which snapshots cannot store
        plus(total, float(number))
    else:
        raise TypeError(
            f"only int and float can be added, not {type(number).__name__} {number!r}; "
            f"select a number of the record with of=, or use fold"
        )


def join(total: Total, other: Total) -> None:
    """Add ``other``, which is not changed, to ``total``."""
    total[0] += other[0]
    if len(other) > 1:
        total += other[1:]
        if len(total) > _LIMIT:
            _shorten(total)


def value(total: Total) -> int | float:
    """Return the sum: an exact int if all numbers are ints, else the float nearest to the exact sum.

    The result is an infinity if the sum exceeds the largest float, and NaN with infinities of both signs or a NaN.
    """
    if len(total) == 1:
        return total[0]
    whole, *floats = total
    if whole:
        if abs(whole) < _FLOATS:
            floats += _expansion_of(Fraction(whole))
        elif all(map(isfinite, floats)):
            return _expansion_of(Fraction(whole) + _exact(floats))[0]
    return _expansion(floats)[0]


def _shorten(total: Total) -> None:
    floats = total[1:]
    shorter = _expansion(floats)
    if not isfinite(shorter[0]) and all(map(isfinite, floats)):
        # An infinity would depend on the order: the next number may reduce the sum to a float again.
        sum_of_all = _exact(floats)
        whole = int(sum_of_all)
        total[0] += whole
        shorter = _expansion_of(sum_of_all - whole)
    total[1:] = shorter


def _exact(floats: list[int | float]) -> Fraction:
    return sum(map(Fraction, floats), Fraction())


def _expansion(floats: list[int | float]) -> list[float]:
    """Return the rounded sum, the rounded remainder and so on; exact as long as the sum is a float."""
    left = list(floats)
    parts: list[float] = []
    try:
        while part := fsum(left):
            if not isfinite(part):
                return _out_of_range(floats)
            parts.append(part)
            left.append(-part)
    except (OverflowError, ValueError):  # of an intermediate sum, or infinities of both signs
        return _out_of_range(floats)
    return parts or [0.0]


def _out_of_range(floats: list[int | float]) -> list[float]:
    if odd := [number for number in floats if not isfinite(number)]:
        return [float(sum(odd))]
    return _expansion_of(_exact(floats))


def _expansion_of(exact: Fraction) -> list[float]:
    parts: list[float] = []
    while exact:
        try:
            part = float(exact)
        except OverflowError:
            return [inf if exact > 0 else -inf]
        parts.append(part)
        exact -= Fraction(part)
    return parts or [0.0]
