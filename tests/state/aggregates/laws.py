"""What every aggregate has to keep to, however records are divided into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aflow.state.aggregate import Aggregate, accumulator_codec

Agg = Aggregate[Any, Any, Any]


def added(aggregate: Agg, records: Sequence[Any], acc: Any = None) -> Any:
    """The accumulator of ``records``, added to ``acc`` or to a new one."""
    acc = aggregate.create() if acc is None else acc
    for record in records:
        acc = aggregate.add(acc, record)
    return acc


def stored(aggregate: Agg, acc: Any) -> bytes:
    return accumulator_codec(aggregate, None).encode(acc)


def restored(aggregate: Agg, acc: Any) -> Any:
    return accumulator_codec(aggregate, None).decode(stored(aggregate, acc))


def image(aggregate: Agg, acc: Any) -> bytes | list[float]:
    """What ``acc`` holds: its bytes; of a KLL sketch, which puts itself in order when it is asked, what a copy says."""
    if not hasattr(acc, "get_quantiles"):
        return stored(aggregate, acc)
    return [acc.n, *restored(aggregate, acc).get_quantiles([i / 50 for i in range(51)])]


def merged_from_the_left(aggregate: Agg, parts: Sequence[Sequence[Any]]) -> Any:
    """As sessions merge: each part into all that came before it."""
    acc = aggregate.create()
    for part in parts:
        acc = checked_merge(aggregate, acc, added(aggregate, part))
    return acc


def merged_from_the_right(aggregate: Agg, parts: Sequence[Sequence[Any]]) -> Any:
    """As sliding windows merge: all that came after a part into a copy of it."""
    acc = aggregate.create()
    for part in reversed(parts):
        copy = checked_merge(aggregate, aggregate.create(), added(aggregate, part))
        acc = checked_merge(aggregate, copy, acc)
    return acc


def checked_merge(aggregate: Agg, a: Any, b: Any) -> Any:
    """``merge(a, b)``, after which ``b`` is as it was."""
    before = image(aggregate, b)
    merged = aggregate.merge(a, b)
    assert image(aggregate, b) == before
    return merged


def checked_result(aggregate: Agg, acc: Any) -> str:
    """The result as text, which tells NaN and types; ``acc`` is as it was afterwards, and gives the same again."""
    before = image(aggregate, acc)
    result = repr(aggregate.result(acc))
    assert image(aggregate, acc) == before
    assert repr(aggregate.result(acc)) == result
    return result
