"""Number of distinct values: exact, or approximate in little memory.

The approximate count is a HyperLogLog sketch of Apache DataSketches (Flajolet, Fusy, Gandouet and Meunier,
"HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import nan
from typing import Any, Final, Literal, Protocol, TypeVar, overload

from aflow.errors import FlowDefinitionError
from aflow.model.codecs import PLAIN, Codec, CodecError
from aflow.state.aggregate import Aggregate
from aflow.state.aggregates.accumulator_codecs import values_codec
from aflow.state.aggregates.selector import select
from aflow.state.aggregates.sketches import datasketches

T = TypeVar("T")

#: 2**12 registers of a byte: a standard error of 1.04 / 2**6.
_LOG_SIZE: Final = 12

_WHAT: Final = "distinct(approximate=True)"

#: Ints that a sketch accepts.
_INTS: Final = range(-(2**63), 2**63)


class DistinctSketch(Protocol):
    """The methods used of an ``hll_union``. Unlike an ``hll_sketch`` it can be both updated and merged."""

    def update(self, datum: Any, /) -> None: ...

    def get_estimate(self) -> float: ...

    def get_result(self, kind: Any, /) -> Any: ...


@overload
def distinct(
    *, approximate: Literal[False] = False, stored_as: type[Any] | None = None
) -> Aggregate[Any, set[Any], int]: ...


@overload
def distinct(
    of: Callable[[T], Hashable],
    *,
    approximate: Literal[False] = False,
    stored_as: type[Any] | None = None,
) -> Aggregate[T, set[Any], int]: ...


@overload
def distinct(*, approximate: Literal[True]) -> Aggregate[Any, DistinctSketch, int]: ...


@overload
def distinct(
    of: Callable[[T], Hashable], *, approximate: Literal[True]
) -> Aggregate[T, DistinctSketch, int]: ...


def distinct(
    of: Callable[[Any], Hashable] | None = None,
    *,
    approximate: bool = False,
    stored_as: type[Any] | None = None,
) -> Aggregate[Any, Any, int]:
    """Number of distinct ``of(record)``; of distinct records without ``of``. 0 for none.

    Equal values count once, as in a set: 1, 1.0 and True are one value. All NaNs are one value too. Memory grows with
    the number of distinct values. Snapshots store them by the type ``stored_as``, which is needed unless they are plain
    Python values.

    ``approximate=True`` takes at most 4 KB for each key. The relative error is 1.6 % (one standard deviation; three of
    them in one case of 400), and practically zero up to some hundred values. Values must be plain Python values and no
    sets. Equal ints, floats and bools count once; values of other types, and items of tuples, are equal only if their
    types are. Needs ``aflow-streams[sketch]``: raises ``FlowDefinitionError`` without it.
    """
    picked = select(of, "distinct")
    if not approximate:
        return _Distinct(picked, stored_as)
    if stored_as is not None:
        raise FlowDefinitionError(
            "distinct: an approximate count keeps no values, so there is nothing to store as "
            f"{stored_as!r}; omit stored_as"
        )
    return _ApproximatelyDistinct(picked)


class _Distinct(Aggregate[Any, set[Any], int]):
    def __init__(self, of: Callable[[Any], Any], stored_as: type[Any] | None) -> None:
        self._of: Final = of
        self.codec: Final = _SetCodec(values_codec(stored_as))

    def create(self) -> set[Any]:
        return set()

    def add(self, acc: set[Any], value: Any) -> set[Any]:
        found = self._of(value)
        acc.add(found if found == found else nan)
        return acc

    def merge(self, a: set[Any], b: set[Any]) -> set[Any]:
        a |= b
        return a

    def result(self, acc: set[Any]) -> int:
        return len(acc)


@dataclass(frozen=True, slots=True)
class _SetCodec:
    values: Codec[list[Any]]

    @property
    def name(self) -> str:
        return f"set of {self.values.name}"

    def encode(self, value: set[Any]) -> bytes:
        return self.values.encode(list(value))

    def decode(self, data: bytes) -> set[Any]:
        # A set compares NaNs by identity, so all of them are the one that `add` uses.
        return {found if found == found else nan for found in self.values.decode(data)}


class _ApproximatelyDistinct(Aggregate[Any, DistinctSketch, int]):
    def __init__(self, of: Callable[[Any], Any]) -> None:
        module = datasketches(_WHAT)
        self._union: Final[Any] = module.hll_union
        self._form: Final[Any] = module.tgt_hll_type.HLL_8
        self._of: Final = of
        self.codec: Final = _SketchCodec()

    def __reduce__(self) -> tuple[object, ...]:
        # The functions of the sketches' module cannot be pickled, and a backfill sends steps to executors.
        return type(self), (self._of,)

    def create(self) -> DistinctSketch:
        union: DistinctSketch = self._union(_LOG_SIZE)
        return union

    def add(self, acc: DistinctSketch, value: Any) -> DistinctSketch:
        acc.update(_datum(self._of(value)))
        return acc

    def merge(self, a: DistinctSketch, b: DistinctSketch) -> DistinctSketch:
        a.update(b.get_result(self._form))
        return a

    def result(self, acc: DistinctSketch) -> int:
        return round(acc.get_estimate())


def _datum(value: object) -> int | float | str:
    """Return the datum of ``value`` for a sketch: the same for equal values, and in every process."""
    # Hot path: once per record, mostly with a str or an int.
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and value in _INTS:
        return value
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, (set, frozenset)):
        raise TypeError(
            f"{value!r} has no order, so equal values would differ in bytes; make it a sorted tuple"
        )
    # Sketches accept no bytes and ignore the empty str. No str of a user begins with this prefix.
    return "\0plain:" + PLAIN.encode(value).hex()


def _number(value: int | float) -> int | float | str:
    """Return one datum for equal numbers. Large ones are a str, since a sketch would round them."""
    if isinstance(value, float) and not value.is_integer():
        return value  # also infinities and NaN
    whole = int(value)
    return whole if whole in _INTS else f"\0int:{whole:x}"


@dataclass(frozen=True, slots=True)
class _SketchCodec:
    """Codec of the portable format of Apache DataSketches, which its libraries for other languages read too.

    It holds no functions of the library: these cannot be pickled, and a backfill sends codecs to executors.
    """

    @property
    def name(self) -> str:
        return "HLL sketch"

    def encode(self, value: DistinctSketch) -> bytes:
        form = datasketches(_WHAT).tgt_hll_type.HLL_8
        data: bytes = value.get_result(form).serialize_compact()
        return data

    def decode(self, data: bytes) -> DistinctSketch:
        module = datasketches(_WHAT)
        union: DistinctSketch = module.hll_union(_LOG_SIZE)
        try:
            union.update(module.hll_sketch.deserialize(data))
        except Exception as exc:  # the library raises various errors
            raise CodecError(f"{len(data)} stored bytes are no HLL sketch: {exc}") from exc
        return union
