"""Types of functions that users hand over, where ``Callable`` says too little to type checkers."""

from __future__ import annotations

from typing import Protocol, TypeVar

A_co = TypeVar("A_co", covariant=True)


class Initial(Protocol[A_co]):
    """Makes the accumulator of a fold: ``float``, ``Totals``, ``lambda: {"n": 0}``.

    A protocol, since mypy looks at a lambda for a ``Callable[[], A]`` only together with the lambda that follows, and
    then takes the accumulator of that one for ``Any``.
    """

    def __call__(self) -> A_co: ...
