"""The protocol of aggregates, for windows and for aggregating state."""

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
    """Aggregate many values into one result by a small accumulator that can be stored.

    Subclass it, or write a class with the same four methods. The data determines the order of calls, so ``add`` should
    not depend on the order of values, and no method may keep state in ``self``. An accumulator may be changed in place
    as long as it is returned.

    Snapshots store accumulators by the type that the step or state declares with ``of=``; without it by the ``Codec``
    in the attribute ``codec``, if there is one; else accumulators must be plain Python values.

    Set ``commutative = True`` in the class if the result is exactly the same for any order of adding values and merging
    accumulators: a backfill on Spark then aggregates windows before the shuffle. It shuffles accumulators instead of
    records, pickled unless they are plain. Many are in memory at once, so they should be small.

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
        """Return a new accumulator, of no values."""
        ...

    @abstractmethod
    def add(self, acc: ACC, value: IN) -> ACC:
        """Return the accumulator of ``acc`` and ``value``."""
        ...

    @abstractmethod
    def merge(self, a: ACC, b: ACC) -> ACC:
        """Return the accumulator of the values of both. ``a`` may be changed and returned, ``b`` must not be changed.

        Needed where windows merge (sessions) and where they share parts (sliding windows).
        """
        ...

    @abstractmethod
    def result(self, acc: ACC) -> OUT:
        """Return the result of the values added so far. It may be called repeatedly and must not change ``acc``."""
        ...


def accumulator_codec(aggregate: Aggregate[Any, ACC, Any], of: type[ACC] | None) -> Codec[ACC]:
    """Return the codec of the accumulators of ``aggregate``. Raises ``FlowDefinitionError``."""
    codec = own_codec(aggregate)
    return state_codec(of) if of is not None or codec is None else codec


def is_commutative(aggregate: Aggregate[Any, Any, Any]) -> bool:
    """Return True if ``aggregate`` is commutative. Raises ``FlowDefinitionError`` for a flag that is no bool."""
    said = cast("object", getattr(aggregate, "commutative", False))
    if not isinstance(said, bool):
        raise FlowDefinitionError(
            f"{type(aggregate).__name__}.commutative must be True or False, not {shown(said)}: it declares that values "
            f"may be added in any order; rename the attribute if it means something else"
        )
    return said


def own_codec(aggregate: Aggregate[Any, ACC, Any]) -> Codec[ACC] | None:
    """Return the ``codec`` of ``aggregate``, None without one. Raises ``FlowDefinitionError`` if it is no codec."""
    codec = cast("Codec[ACC] | None", getattr(aggregate, "codec", None))
    if codec is None:
        return None
    if not (callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None))):
        raise FlowDefinitionError(
            f"{type(aggregate).__name__}.codec must be a Codec for accumulators, with encode, decode and name, "
            f"not {shown(codec)}; rename the attribute if it means something else"
        )
    return codec
