"""Laws of aggregates, for any division of the records into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aflow.state.aggregate import Aggregate, accumulator_codec

Agg = Aggregate[Any, Any, Any]


def added(aggregate: Agg, records: Sequence[Any], acc: Any = None) -> Any:
    """Add ``records`` to ``acc`` or to a new accumulator, and return it."""
    acc = aggregate.create() if acc is None else acc
    for record in records:
        acc = aggregate.add(acc, record)
    return acc


def stored(aggregate: Agg, acc: Any) -> bytes:
    return accumulator_codec(aggregate, None).encode(acc)


def restored(aggregate: Agg, acc: Any) -> Any:
    return accumulator_codec(aggregate, None).decode(stored(aggregate, acc))


def image(aggregate: Agg, acc: Any) -> bytes | list[float]:
    """Return the bytes of ``acc``; of a KLL sketch, which sorts itself when it is queried, the results of a copy."""
    if not hasattr(acc, "get_quantiles"):
        return stored(aggregate, acc)
    return [acc.n, *restored(aggregate, acc).get_quantiles([i / 50 for i in range(51)])]


def merged_from_the_left(aggregate: Agg, parts: Sequence[Sequence[Any]]) -> Any:
    """Merge each part into all preceding ones, as sessions do."""
    acc = aggregate.create()
    for part in parts:
        acc = checked_merge(aggregate, acc, added(aggregate, part))
    return acc


def merged_from_the_right(aggregate: Agg, parts: Sequence[Sequence[Any]]) -> Any:
    """Merge all following parts into a copy of each part, as sliding windows do."""
    acc = aggregate.create()
    for part in reversed(parts):
        copy = checked_merge(aggregate, aggregate.create(), added(aggregate, part))
        acc = checked_merge(aggregate, copy, acc)
    return acc


def checked_merge(aggregate: Agg, a: Any, b: Any) -> Any:
    """Return ``merge(a, b)`` and check that ``b`` is unchanged."""
    before = image(aggregate, b)
    merged = aggregate.merge(a, b)
    assert image(aggregate, b) == before
    return merged


def checked_result(aggregate: Agg, acc: Any) -> str:
    """Return the result as text, which shows NaN and types; check that ``acc`` is unchanged and gives it again."""
    before = image(aggregate, acc)
    result = repr(aggregate.result(acc))
    assert image(aggregate, acc) == before
    assert repr(aggregate.result(acc)) == result
    return result
