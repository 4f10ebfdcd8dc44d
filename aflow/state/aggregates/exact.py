"""Sums without rounding: what was added in which order, and in how many parts, makes no difference.

Integers are added as integers. Of floats a few are kept as they came, and now and then replaced by an expansion:
floats of falling size whose exact sum is the exact sum of all (J. R. Shewchuk, "Adaptive Precision Floating-Point
Arithmetic and Fast Robust Geometric Predicates", 1997). A sum that is beyond the largest float goes on as an integer
and a rest. ``math.fsum`` rounds a sum once, so an expansion is that sum, the rounded rest, the rounded rest of the
rest, and so on until nothing is left: two or three floats for ordinary data.
"""

from __future__ import annotations

from fractions import Fraction
from math import fsum, inf, isfinite
from typing import Final, TypeAlias

Total: TypeAlias = list[int | float]
"""The sum of the integers, followed by floats, none if there was no float: together their exact sum."""

#: So many entries a total may have before its floats are made fewer. More is faster, and takes more space for each key.
_LIMIT: Final = 16

#: Integers as large as this may be beyond the largest float together with floats.
_FLOATS: Final = 2**1000


def nothing() -> Total:
    """The total of no numbers."""
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
    elif isinstance(number, float):  # a subclass, which no snapshot would take
        plus(total, float(number))
    else:
        raise TypeError(
            f"int and float can be added up, not {type(number).__name__} {number!r}; "
            f"pick a number of the record, or fold"
        )


def join(total: Total, other: Total) -> None:
    """Add to ``total`` all that was added to ``other``, which stays as it is."""
    total[0] += other[0]
    if len(other) > 1:
        total += other[1:]
        if len(total) > _LIMIT:
            _shorten(total)


def value(total: Total) -> int | float:
    """The sum: an int, and exact, if all numbers were; else the float nearest to the exact sum of all.

    Beyond the largest float it is an infinity; with infinities of both signs, or a NaN among the numbers, it is NaN.
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
        # An infinity would not be the same in whatever order: what is added next may bring the sum back.
        sum_of_all = _exact(floats)
        whole = int(sum_of_all)
        total[0] += whole
        shorter = _expansion_of(sum_of_all - whole)
    total[1:] = shorter


def _exact(floats: list[int | float]) -> Fraction:
    return sum(map(Fraction, floats), Fraction())


def _expansion(floats: list[int | float]) -> list[float]:
    """The sum rounded, what that has left rounded, and so on: together exactly the sum, as long as that is a float."""
    left = list(floats)
    parts: list[float] = []
    try:
        while part := fsum(left):
            if not isfinite(part):
                return _out_of_range(floats)
            parts.append(part)
            left.append(-part)
    except (OverflowError, ValueError):  # on the way to the sum at least; infinities of both signs
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
