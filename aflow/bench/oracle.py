"""Correctness of results under load: the user's own check of all results, and two sinks that must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, TypeAlias

from aflow.bench.load_source import LoadSource
from aflow.bench.recorder import SinkRecord
from aflow.errors import FlowDefinitionError, described, shown

Oracle: TypeAlias = Callable[[dict[str, list[Any]], dict[str, list[Any]]], object]
"""Gets the records of each source, in order, and the results of each sink, in the order of their arrival. It raises for
wrong results, or returns a false value other than None. It is no coroutine function."""

#: Results that are shown of a difference.
_SHOWN: Final = 3


def check_oracle(oracle: Oracle | None) -> None:
    """Raise ``FlowDefinitionError`` for a coroutine function, whose result would be true, and for no function."""
    if oracle is None:
        return
    if not callable(oracle):
        raise FlowDefinitionError(
            f"the oracle of a load is a function of the records sent and the results received, not {shown(oracle)}"
        )
    if iscoroutinefunction(oracle) or iscoroutinefunction(type(oracle).__call__):
        raise FlowDefinitionError(
            f"the oracle of a load is a function that is not async, not {shown(oracle)}"
        )


def check_results(
    oracle: Oracle | None,
    equal: Sequence[tuple[str, str]],
    loads: Sequence[LoadSource],
    records: Mapping[str, SinkRecord],
) -> list[str]:
    """Return a description of each wrong result."""
    problems: list[str] = []
    if oracle is not None:
        sent = {load.name: load.supply.values or [] for load in loads}
        received = {name: one.values or [] for name, one in records.items()}
        try:
            verdict = oracle(sent, received)
            if isawaitable(verdict):
                close = getattr(verdict, "close", None)
                if callable(close):
                    close()
                problems.append(
                    "the results were not checked: the oracle returned an awaitable; use a function that is not async"
                )
            elif verdict is not None and not verdict:
                problems.append(f"the results are wrong: the oracle returned {shown(verdict)}")
        except Exception as exc:
            problems.append(f"the results are wrong: the oracle raised {described(exc)}")
    for one, other in equal:
        difference = _difference(records[one].values or [], records[other].values or [])
        if difference:
            problems.append(f"the results of sinks {one!r} and {other!r} differ: {difference}")
    return problems


def _difference(one: list[Any], other: list[Any]) -> str:
    """Return the difference of two collections of results in any order; empty if they are equal."""
    ours, theirs = _counted(one), _counted(other)
    parts = [
        f"{sum(beyond.values()):,} only in the {place}, such as "
        + ", ".join(shown(value) for value in list(beyond)[:_SHOWN])
        for place, beyond in (("first", ours - theirs), ("second", theirs - ours))
        if beyond
    ]
    return "; ".join(parts)


def _counted(values: list[Any]) -> Counter[object]:
    """Count equal values; those that cannot be hashed by their text."""
    try:
        return Counter(values)
    except TypeError:
        return Counter(map(repr, values))
