"""How records become a running result: the one thing in which fold, reduce and aggregate differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aflow.errors import shown
from aflow.model.codecs import Codec
from aflow.operators.first_call import refuse_coroutine
from aflow.state.aggregate import Aggregate, is_commutative, own_codec
from aflow.state.aggregates.numbers import number_of
from aflow.state.inferred_codecs import (
    codec_of_items,
    codec_of_reduced,
    codec_of_results,
    may_return_none,
)
from aflow.state.layouts import Many, state_codec

#: Methods that take a function; otherwise the function itself is named.
_METHODS: Final = frozenset({"fold()", "reduce()"})


@dataclass(slots=True, eq=False)
class Accumulation:
    """What to do with the first record, with each further one, and at the end.

    ``merge(a, b)`` gives the accumulator of the records of both, those of ``a`` being the older ones where that is
    known. It may change ``a`` and return it; ``b`` stays as it is and may be used again. Where ``fresh`` is given,
    ``fresh()`` is an accumulator of no records, a new one at each call, into which others can be merged; without it
    accumulators are values that neither ``add`` nor ``merge`` changes (``reduce``).

    ``add`` may be replaced by one that does the same and costs less: read it again for each batch.
    """

    first: Callable[[Any], Any]
    """The accumulator of a first record."""
    add: Callable[[Any, Any], Any]
    """The accumulator with one more record."""
    result: Callable[[Any], Any] | None = None
    """What is emitted for an accumulator; None: itself."""
    merge: Callable[[Any, Any], Any] | None = None
    """None: accumulators cannot be merged (a fold that was given no ``merge``)."""
    fresh: Callable[[], Any] | None = None
    commutative: bool = False
    """True if ``add`` and ``merge`` give the same in whatever order records come."""
    number_of: Callable[[Any], Any] | None = None
    """Where the accumulator is an exact sum (``aflow.state.aggregates.exact``), what of a record is added."""
    codec: Codec[Any] | None = None
    """How snapshots store accumulators where no type is declared: what annotations tell, or the aggregate itself.

    None: as plain Python values.
    """

    def codec_for(self, of: type[Any] | None) -> Codec[Any]:
        """How snapshots store accumulators, declared to be of type ``of`` or not. Raises ``FlowDefinitionError``."""
        return state_codec(of) if of is not None or self.codec is None else self.codec


def folding(
    initial: Callable[[], Any],
    fn: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any] | None = None,
) -> Accumulation:
    """Begin with ``initial()``, go on with ``fn(accumulator, value)``.

    The first accumulator of all is checked: ``fn`` must return it, which a function that only changes it forgets.
    """
    first = _checked_first(initial, fn, "fold()")
    codec = codec_of_results(initial, fn)
    return Accumulation(first, fn, merge=merge, fresh=initial, codec=codec)


def reducing(fn: Callable[[Any, Any], Any]) -> Accumulation:
    """Begin with the first record as it is, go on with ``fn(so_far, value)``, whose first result is checked."""

    def add(so_far: Any, value: Any) -> Any:
        after = fn(so_far, value)
        _check_returned(so_far, after, "reduce()", fn)
        made.add = fn  # no further check
        return after

    made = Accumulation(lambda value: value, add, merge=fn, codec=codec_of_reduced(fn))
    return made


def _checked_first(
    create: Callable[[], Any], add: Callable[[Any, Any], Any], method: str
) -> Callable[[Any], Any]:
    """Return the function that begins an accumulator with a value; it checks the first accumulator of all."""
    checked = False

    def first(value: Any) -> Any:
        nonlocal checked
        if checked:
            return add(create(), value)
        begun = create()
        after = add(begun, value)
        _check_returned(begun, after, method, add)
        checked = True
        return after

    return first


def _check_returned(before: object, after: object, method: str, fn: Callable[..., Any]) -> None:
    """Raise ``TypeError`` if ``after`` is what ``fn`` returns by mistake in place of an accumulator."""
    refuse_coroutine(after, method)
    if after is None and before is not None and not may_return_none(fn):
        begin = "" if method == "reduce()" else "begin with None, or "
        function = f"the function given to {method}" if method in _METHODS else method
        raise TypeError(
            f"{function} returned None and got {shown(before)}: it must return the "
            f"accumulator, also if it has changed it in place; if None is a value that it may have, "
            f"{begin}annotate the function with -> X | None"
        )


def aggregating(aggregate: Aggregate[Any, Any, Any]) -> Accumulation:
    """Do as ``aggregate`` says; the first accumulator of all is checked, as that of a fold.

    Raises ``FlowDefinitionError`` for one whose ``codec`` is none.
    """
    create, add = aggregate.create, aggregate.add
    first = _checked_first(create, add, f"{type(aggregate).__qualname__}.add()")
    return Accumulation(
        first,
        add,
        aggregate.result,
        aggregate.merge,
        create,
        is_commutative(aggregate),
        number_of(aggregate),
        own_codec(aggregate),
    )


def listing(fn: Callable[[list[Any]], Any], of: type[Any] | None) -> Accumulation:
    """Keep the records, of type ``of``, and give ``fn(values)``: a list of its own, in the order of arrival.

    It cannot tell which of the records of two parts arrived first, so it is not for windows that merge.
    """
    return Accumulation(
        lambda value: [value],
        _appended,
        applying(fn, list[Any].copy),
        _joined,
        list,
        codec=layout_of_records(fn, of),
    )


def applying(
    fn: Callable[[list[Any]], Any], copied: Callable[[Any], list[Any]]
) -> Callable[[Any], Any]:
    """Return a function that gives ``fn(copied(held))``, and checks the first result of all."""
    checked = False

    def applied(held: Any) -> Any:
        nonlocal checked
        result = fn(copied(held))
        if not checked:
            refuse_coroutine(result, "a window")
            checked = True
        return result

    return applied


def layout_of_records(fn: Callable[[list[Any]], Any] | None, of: type[Any] | None) -> Many[Any]:
    """Return how records are stored: as type ``of``, or as the one that annotations of ``fn`` tell."""
    inferred = codec_of_items(fn) if of is None and fn is not None else None
    return Many(inferred or state_codec(of))


def _appended(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _joined(values: list[Any], others: list[Any]) -> list[Any]:
    values += others
    return values
