"""Types of user functions for which ``Callable`` is too imprecise."""

from __future__ import annotations

from typing import Protocol, TypeVar

A_co = TypeVar("A_co", covariant=True)


class Initial(Protocol[A_co]):
    """The function that makes the accumulator of a fold: ``float``, ``Totals``, ``lambda: {"n": 0}``.

    It is a protocol because mypy infers a lambda for a ``Callable[[], A]`` only together with the following lambda, and
    then infers ``Any`` for its accumulator.
    """

    def __call__(self) -> A_co: ...
