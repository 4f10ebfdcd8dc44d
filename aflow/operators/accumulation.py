"""Accumulators of fold, reduce and aggregate: the one thing in which the three differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from aflow.errors import shown
from aflow.model.codecs import Codec
from aflow.operators.first_call import MisuseError, refuse_coroutine
from aflow.state.aggregate import Aggregate, is_commutative, own_codec
from aflow.state.aggregates.numbers import number_of
from aflow.state.defensive_copies import reader_copy
from aflow.state.inferred_codecs import (
    codec_of_items,
    codec_of_reduced,
    codec_of_results,
    may_return_none,
)
from aflow.state.layouts import Many, state_codec

#: Methods that take a function; otherwise the function itself is named.
_METHODS: Final = frozenset({"fold()", "reduce()", "merge="})


@dataclass(slots=True, eq=False)
class Accumulation:
    """Functions for the first record, for each further one, and for the result.

    ``merge(a, b)`` returns the accumulator of the records of both; those of ``a`` are the older ones if the order is
    known. It may change ``a`` and return it; it must not change ``b``. ``fresh()``, if given, returns a new accumulator
    of no records, into which others can be merged. Without it accumulators are values that neither ``add`` nor
    ``merge`` changes (``reduce``).

    ``add`` and ``merge`` may be replaced by equal functions that cost less: read them again for each batch or firing.
    """

    first: Callable[[Any], Any]
    """Returns the accumulator of a first record."""
    add: Callable[[Any, Any], Any]
    """Returns the accumulator with one more record."""
    result: Callable[[Any], Any] | None = None
    """Returns the result of an accumulator; None: the accumulator is the result."""
    merge: Callable[[Any, Any], Any] | None = None
    """None: accumulators cannot be merged (a fold without ``merge``)."""
    fresh: Callable[[], Any] | None = None
    commutative: bool = False
    """True if the results of ``add`` and ``merge`` do not depend on the order of records."""
    number_of: Callable[[Any], Any] | None = None
    """Returns the summand of a record if the accumulator is an exact sum (``aflow.state.aggregates.exact``)."""
    codec: Codec[Any] | None = None
    """Codec of accumulators without a declared type, from annotations or from the aggregate.

    None: plain Python values.
    """

    records: Callable[[Any], list[Any]] | None = None
    """Returns the records of an accumulator that keeps them in another form than a list."""
    keeps_records: bool = False
    """True if ``result`` is a function of the user for the records that the accumulator keeps."""

    def shown(self, held: Any) -> Any:
        """Return an accumulator as a user may see it: records as a list."""
        return held if self.records is None else list(self.records(held))

    def seen(self, held: Any) -> Any:
        """Return what a reader of the state gets: the kept records, or the result. It shares nothing with ``held``."""
        if self.keeps_records:
            return reader_copy(self.shown(held))
        return reader_copy(held if self.result is None else self.result(self.copy(held)))

    def copy(self, held: Any) -> Any:
        """Return an accumulator equal to ``held`` that may be changed or emitted while ``held`` is kept."""
        if self.fresh is None or self.merge is None:
            return held
        return self.merge(self.fresh(), held)

    def merged(self, older: Any, newer: Any) -> Any:
        """Return ``merge(older, newer)``, for windows that require a ``merge``."""
        assert self.merge is not None
        return self.merge(older, newer)

    def codec_for(self, of: type[Any] | None) -> Codec[Any]:
        """Return the codec of accumulators of the declared type ``of``, or None. Raises ``FlowDefinitionError``."""
        return state_codec(of) if of is not None or self.codec is None else self.codec


def folding(
    initial: Callable[[], Any],
    fn: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any] | None = None,
) -> Accumulation:
    """Start with ``initial()``, continue with ``fn(accumulator, value)``.

    The first accumulator and the first merge of a step are checked: ``fn`` and ``merge`` must return an accumulator,
    and not only change one.
    """
    first = _checked_first(initial, fn, "fold()")
    made = Accumulation(first, fn, fresh=initial, codec=codec_of_results(initial, fn))
    if merge is not None:
        made.merge = _checked_once(made, "merge", merge, "merge=")
    return made


def reducing(fn: Callable[[Any, Any], Any]) -> Accumulation:
    """Start with the first record, continue with ``fn(so_far, value)``. The first result is checked."""

    made = Accumulation(lambda value: value, fn, merge=fn, codec=codec_of_reduced(fn))
    made.add = _checked_once(made, "add", fn, "reduce()")
    return made


def _checked_first(
    create: Callable[[], Any], add: Callable[[Any, Any], Any], method: str
) -> Callable[[Any], Any]:
    """Return a function that makes an accumulator of a first value; it checks the first one of a step."""
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


def _checked_once(
    owner: Accumulation, name: str, fn: Callable[[Any, Any], Any], method: str
) -> Callable[[Any, Any], Any]:
    """Return ``fn`` with a check; when a result has passed it, ``fn`` itself replaces attribute ``name``."""

    def checked(older: Any, newer: Any) -> Any:
        after = fn(older, newer)
        _check_returned(older, after, method, fn)
        setattr(owner, name, fn)
        return after

    return checked


def _check_returned(before: object, after: object, method: str, fn: Callable[..., Any]) -> None:
    """Raise ``MisuseError`` if ``after``, returned by ``fn``, is a coroutine, or None by mistake."""
    refuse_coroutine(after, method)
    if after is None and before is not None and not may_return_none(fn):
        begin = "" if method != "fold()" and method in _METHODS else "begin with None, or "
        function = f"the function given to {method}" if method in _METHODS else method
        raise MisuseError(
            f"{function} returned None and got {shown(before)}: it must return the "
            f"accumulator, also if it has changed it in place; if None is a valid accumulator, "
            f"{begin}annotate the function with -> X | None"
        )


def aggregating(aggregate: Aggregate[Any, Any, Any]) -> Accumulation:
    """Use the methods of ``aggregate``; the first accumulator of a step is checked, as that of a fold.

    Raises ``FlowDefinitionError`` if its ``codec`` is no codec.
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


def listing(layout: Codec[Any]) -> Accumulation:
    """Keep the records in a list, in the order of arrival; the list is the result, too.

    The order between the records of two parts is unknown, so this is not for windows that merge.
    """
    return Accumulation(lambda value: [value], _appended, merge=_joined, fresh=list, codec=layout)


def applying(fn: Callable[[list[Any]], Any], lists: Accumulation) -> Accumulation:
    """Return ``lists``, an accumulation of records, with the result ``fn(values)`` for a new list.

    The first result of a step is checked.
    """
    records, checked = lists.result, False

    def applied(held: Any) -> Any:
        nonlocal checked
        result = fn(list(held if records is None else records(held)))
        if not checked:
            refuse_coroutine(result, "a window")
            checked = True
        return result

    return replace(lists, result=applied, records=records, keeps_records=True)


def layout_of_records(fn: Callable[[list[Any]], Any] | None, of: type[Any] | None) -> Many[Any]:
    """Return the codec of records: of type ``of``, or of the type in the annotations of ``fn``."""
    inferred = codec_of_items(fn) if of is None and fn is not None else None
    return Many(inferred or state_codec(of))


def _appended(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _joined(values: list[Any], others: list[Any]) -> list[Any]:
    values += others
    return values
