"""What an aggregation over many values is: the same for aggregating state and for windows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, TypeVar, cast

from aflow.errors import FlowDefinitionError, shown
from aflow.model.codecs import Codec
from aflow.state.layouts import state_codec

IN = TypeVar("IN", contravariant=True)
ACC = TypeVar("ACC")
OUT = TypeVar("OUT", covariant=True)


class Aggregate(Protocol[IN, ACC, OUT]):
    """Turns many values into one result through an accumulator that is small and can be stored.

    Subclass it, or write a class with the same four methods. They are called in any order that the data asks for, so
    ``add`` should not depend on the order of values, and none of them may keep anything in ``self``. An accumulator may
    be changed in place as long as it is returned.

    Snapshots store accumulators by the type that the step or state declares with ``of=``; without it by the ``Codec``
    in the attribute ``codec``, if there is one; else accumulators must be plain Python values.

    Where the result is exactly the same in whatever order values are added and accumulators are merged, say so with
    ``commutative = True`` in the class: a backfill on Spark then aggregates windows before it moves records. It moves
    accumulators instead, pickled unless they are plain; many are held at once, so they should be small.

    >>> class Mean(Aggregate[float, tuple[float, int], float]):
    ...     def create(self) -> tuple[float, int]:
    ...         return 0.0, 0
    ...     def add(self, acc: tuple[float, int], value: float) -> tuple[float, int]:
    ...         return acc[0] + value, acc[1] + 1
    ...     def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    ...         return a[0] + b[0], a[1] + b[1]
    ...     def result(self, acc: tuple[float, int]) -> float:
    ...         return acc[0] / acc[1]
    """

    @abstractmethod
    def create(self) -> ACC:
        """The accumulator of no values at all; a new one each time."""
        ...

    @abstractmethod
    def add(self, acc: ACC, value: IN) -> ACC:
        """The accumulator that has seen ``value`` too."""
        ...

    @abstractmethod
    def merge(self, a: ACC, b: ACC) -> ACC:
        """The accumulator of the values of both. ``a`` may be changed and returned; ``b`` must stay as it is.

        Needed where windows merge (sessions) and where they share parts (sliding windows).
        """
        ...

    @abstractmethod
    def result(self, acc: ACC) -> OUT:
        """What the values seen so far amount to. Called as often as somebody asks; must leave ``acc`` as it is."""
        ...


def accumulator_codec(aggregate: Aggregate[Any, ACC, Any], of: type[ACC] | None) -> Codec[ACC]:
    """How snapshots store the accumulators of ``aggregate``. Raises ``FlowDefinitionError``."""
    codec = own_codec(aggregate)
    return state_codec(of) if of is not None or codec is None else codec


def is_commutative(aggregate: Aggregate[Any, Any, Any]) -> bool:
    """True if ``aggregate`` says that no order matters. Raises ``FlowDefinitionError`` if it says something else."""
    said = cast("object", getattr(aggregate, "commutative", False))
    if not isinstance(said, bool):
        raise FlowDefinitionError(
            f"{type(aggregate).__name__}.commutative must be True or False, not {shown(said)}: whether values may be "
            f"added, and accumulators merged, in any order; give the attribute another name if it is something else"
        )
    return said


def own_codec(aggregate: Aggregate[Any, ACC, Any]) -> Codec[ACC] | None:
    """The ``codec`` that ``aggregate`` brings along, if it does. Raises ``FlowDefinitionError`` if it cannot be one."""
    codec = cast("Codec[ACC] | None", getattr(aggregate, "codec", None))
    if codec is None:
        return None
    if not (callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None))):
        raise FlowDefinitionError(
            f"{type(aggregate).__name__}.codec must be a Codec for accumulators, with encode, decode and name, "
            f"not {shown(codec)}; give the attribute another name if it is something else"
        )
    return codec
