"""Several aggregates at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.state.aggregate import Aggregate, accumulator_codec, is_commutative
from aflow.state.aggregates.accumulator_codecs import FieldsCodec
from aflow.state.specs import check_aggregate

T = TypeVar("T")
R = TypeVar("R")


def fields(
    into: Callable[..., R], /, **aggregates: Aggregate[T, Any, Any]
) -> Aggregate[T, list[Any], R]:
    """Several aggregates of the same records, each as a field of one result.

    ``into`` is what makes the result of them, called with their names: a dataclass, NamedTuple, ``msgspec.Struct``, or
    a function with such parameters::

        totals = aggregates.fields(Totals, n=aggregates.count(), mean=aggregates.mean(lambda e: e.price))

    Away from a step nothing says what records are; there annotate the variable, ``Aggregate[Event, Any, Totals]``, or
    use functions in place of lambdas.

    Raises ``FlowDefinitionError`` for names that ``into`` does not take, and for those that it misses. Type checkers
    compare neither names nor types with ``into``.

    A field can be taken out, and a snapshot from before be restored; a field that it does not hold is refused.
    """
    if not aggregates:
        raise FlowDefinitionError("fields: which? Say, for instance, fields(Totals, n=count())")
    for name, aggregate in aggregates.items():
        check_aggregate(aggregate, f"fields: {name}")
    _check_names(into, aggregates)
    return _Fields(into, aggregates)


class _Fields(Aggregate[Any, list[Any], Any]):
    """The accumulator is a list of theirs."""

    def __init__(
        self, into: Callable[..., Any], aggregates: Mapping[str, Aggregate[Any, Any, Any]]
    ) -> None:
        parts = list(aggregates.values())
        self._into: Final = into
        self._names: Final = list(aggregates)
        self._creates: Final = [part.create for part in parts]
        self._adds: Final = [part.add for part in parts]
        self._merges: Final = [part.merge for part in parts]
        self._results: Final = [part.result for part in parts]
        self.commutative: Final = all(map(is_commutative, parts))
        self.codec: Final = FieldsCodec(
            {name: accumulator_codec(part, None) for name, part in aggregates.items()}
        )

    def create(self) -> list[Any]:
        return [create() for create in self._creates]

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        # Hot path: once per record and field.
        for index, add in enumerate(self._adds):
            acc[index] = add(acc[index], value)
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [merge(x, y) for merge, x, y in zip(self._merges, a, b, strict=True)]

    def result(self, acc: list[Any]) -> Any:
        found = [result(held) for result, held in zip(self._results, acc, strict=True)]
        return self._into(**dict(zip(self._names, found, strict=True)))


def _check_names(into: object, aggregates: Mapping[str, object]) -> None:
    if not callable(into):
        raise FlowDefinitionError(
            f"fields: the first argument makes the result, such as a dataclass; {shown(into)} cannot be called"
        )
    try:
        taken = signature(into)
    except (TypeError, ValueError) as exc:
        raise FlowDefinitionError(
            f"fields: {shown(into)} does not say what it takes ({exc}); use a dataclass, a NamedTuple or a function"
        ) from exc
    try:
        taken.bind(**aggregates)
    except TypeError as exc:
        raise FlowDefinitionError(
            f"fields: {getattr(into, '__name__', into)} takes {taken}, but is given {', '.join(aggregates)}: {exc}"
        ) from exc
