"""Several aggregates of the same records as fields of one result."""

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

    ``into`` makes the result; it is called with their results by name: a dataclass, NamedTuple, ``msgspec.Struct``, or
    a function with these parameters::

        totals = aggregates.fields(Totals, n=aggregates.count(), mean=aggregates.mean(lambda e: e.price))

    Outside of a step a type checker cannot infer the type of the records: annotate the variable,
    ``Aggregate[Event, Any, Totals]``, or use functions instead of lambdas.

    Raises ``FlowDefinitionError`` for names that ``into`` does not accept and for names that it requires. Type checkers
    compare neither names nor types with ``into``.

    After a field is removed, older snapshots can be restored. An added field is refused: they hold nothing for it.
    """
    if not aggregates:
        raise FlowDefinitionError(
            "fields: no aggregate is given; write, for instance, fields(Totals, n=count())"
        )
    for name, aggregate in aggregates.items():
        check_aggregate(aggregate, f"fields: {name}")
    _check_names(into, aggregates)
    return _Fields(into, aggregates)


class _Fields(Aggregate[Any, list[Any], Any]):
    """Several aggregates; the accumulator is the list of theirs."""

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
            f"fields: the first argument must be callable, such as a dataclass, not {shown(into)}"
        )
    try:
        taken = signature(into)
    except (TypeError, ValueError) as exc:
        raise FlowDefinitionError(
            f"fields: {shown(into)} has no signature ({exc}); use a dataclass, a NamedTuple or a function"
        ) from exc
    try:
        taken.bind(**aggregates)
    except TypeError as exc:
        raise FlowDefinitionError(
            f"fields: {getattr(into, '__name__', into)} takes {taken}, but is given {', '.join(aggregates)}: {exc}"
        ) from exc
