"""Approximate quantiles in little memory: KLL sketches of Apache DataSketches.

Karnin, Lang and Liberty, "Optimal Quantile Approximation in Streams", 2016.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Final, Protocol, TypeVar, overload

from aflow.errors import FlowDefinitionError, shown
from aflow.model.codecs import CodecError
from aflow.state.aggregate import Aggregate
from aflow.state.aggregates.selector import select
from aflow.state.aggregates.sketches import datasketches

T = TypeVar("T")

#: Valid sizes of a sketch: its parameter k.
_K: Final = range(8, 65536)


class QuantileSketch(Protocol):
    """The methods used of a ``kll_doubles_sketch``."""

    def update(self, item: float, /) -> None: ...

    def merge(self, sketch: Any, /) -> None: ...

    def is_empty(self) -> bool: ...

    def get_quantiles(self, ranks: Sequence[float], inclusive: bool, /) -> list[float]: ...

    def get_min_value(self) -> float: ...

    def get_max_value(self) -> float: ...

    def serialize(self) -> bytes: ...


@overload
def quantile(q: float, *, error: float = 0.01) -> Aggregate[float, QuantileSketch, float]: ...


@overload
def quantile(
    q: float, of: Callable[[T], float], *, error: float = 0.01
) -> Aggregate[T, QuantileSketch, float]: ...


@overload
def quantile(
    q: Sequence[float], *, error: float = 0.01
) -> Aggregate[float, QuantileSketch, list[float]]: ...


@overload
def quantile(
    q: Sequence[float], of: Callable[[T], float], *, error: float = 0.01
) -> Aggregate[T, QuantileSketch, list[float]]: ...


def quantile(
    q: float | Sequence[float], of: Callable[[Any], float] | None = None, *, error: float = 0.01
) -> Aggregate[Any, QuantileSketch, Any]:
    """Approximate quantile ``q`` of ``of(record)``: the fraction ``q`` of all values is below it.

    ``quantile(0.5, …)`` is the median. Several quantiles, as a list, cost hardly more than one: ``quantile([0.5, 0.95,
    0.99], …)``. Values are floats, so large integers are rounded. A result is one of the values, never interpolated.
    NaN is skipped, and is the result only if there is nothing else.

    ``error`` is an error of rank: with 0.01 the median is, with a probability of 99 %, a value between the quantiles
    0.49 and 0.51. Their distance depends on the data. Minimum and maximum (0 and 1) are exact, and all quantiles are
    with about ``2.6 / error`` values or fewer. The sketch of a key takes up to about ``65 / error`` bytes. It makes
    random choices: the same records may result in another value within the error.

    Needs ``aflow-streams[sketch]``: raises ``FlowDefinitionError`` without it, for a ``q`` outside 0 to 1, and for an
    ``error`` that no sketch guarantees.
    """
    ranks = tuple(q) if isinstance(q, Sequence) else (q,)
    return _Quantiles(ranks, isinstance(q, Sequence), select(of, "quantile"), error)


class _Quantiles(Aggregate[Any, QuantileSketch, Any]):
    def __init__(
        self, ranks: Sequence[float], several: bool, of: Callable[[Any], Any], error: float
    ) -> None:
        _check_ranks(ranks)
        self._sketch: Final[Any] = datasketches("quantile").kll_doubles_sketch
        self._k: Final = _size(error, lambda k: self._sketch.get_normalized_rank_error(k, False))
        self._ranks: Final = ranks
        self._several: Final = several
        self._of: Final = of
        self._error: Final = error
        self.codec: Final = _SketchCodec()

    def __reduce__(self) -> tuple[object, ...]:
        # The functions of the sketches' module cannot be pickled, and a backfill sends steps to executors.
        return type(self), (self._ranks, self._several, self._of, self._error)

    def create(self) -> QuantileSketch:
        sketch: QuantileSketch = self._sketch(self._k)
        return sketch

    def add(self, acc: QuantileSketch, value: Any) -> QuantileSketch:
        number = self._of(value)
        try:
            acc.update(number)
        except TypeError as exc:
            raise TypeError(
                f"quantile: the value {number!r} is not a float; select a number with of="
            ) from exc
        return acc

    def merge(self, a: QuantileSketch, b: QuantileSketch) -> QuantileSketch:
        a.merge(b)
        return a

    def result(self, acc: QuantileSketch) -> Any:
        ranks = self._ranks
        found = [nan] * len(ranks) if acc.is_empty() else _quantiles(acc, ranks)
        return found if self._several else found[0]


def _quantiles(sketch: QuantileSketch, ranks: Sequence[float]) -> list[float]:
    found = sketch.get_quantiles(ranks, True)
    # The sketch knows minimum and maximum, but returns their neighbours for these ranks.
    ends: dict[float, float] = {0: sketch.get_min_value(), 1: sketch.get_max_value()}
    return [ends.get(rank, value) for rank, value in zip(ranks, found, strict=True)]


def _check_ranks(ranks: Sequence[object]) -> None:
    if not ranks:
        raise FlowDefinitionError(
            "quantile: q must be a number from 0 to 1, or several; it is empty"
        )
    for rank in ranks:
        if not isinstance(rank, (int, float)) or not 0 <= rank <= 1:
            raise FlowDefinitionError(
                f"quantile: q must be a number from 0 to 1, not {shown(rank)}; the 95th percentile is 0.95"
            )


def _size(error: object, error_of: Callable[[int], float]) -> int:
    """Return the smallest k that guarantees ``error``."""
    least = error_of(_K[-1])
    if not isinstance(error, (int, float)) or not least <= error < 1:
        raise FlowDefinitionError(
            f"quantile: error must be a fraction of all values, from {least:.6f} up to 1, not {shown(error)}"
        )
    return _K[bisect_left(_K, True, key=lambda k: error_of(k) <= error)]


@dataclass(frozen=True, slots=True)
class _SketchCodec:
    """Codec of the portable format of Apache DataSketches, which its libraries for other languages read too.

    It holds no functions of the library: these cannot be pickled, and a backfill sends codecs to executors.
    """

    @property
    def name(self) -> str:
        return "KLL sketch"

    def encode(self, value: QuantileSketch) -> bytes:
        return value.serialize()

    def decode(self, data: bytes) -> QuantileSketch:
        try:
            sketch: QuantileSketch = datasketches("quantile").kll_doubles_sketch.deserialize(data)
            return sketch
        except Exception as exc:  # the library raises various errors
            raise CodecError(f"{len(data)} stored bytes are no KLL sketch: {exc}") from exc
