"""The steps behind the joins of ``KeyedStream``: arguments checked, operators chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from aflow.api.checks import check_function, check_storable
from aflow.api.connected import JoinResults
from aflow.api.place import Pair
from aflow.api.windows import Windows, choose
from aflow.errors import FlowDefinitionError, shown
from aflow.graph.nodes import Edge
from aflow.machines.windows.assigners import GlobalWindows, WindowAssigner
from aflow.machines.windows.trigger import Trigger
from aflow.model.time import TimeDomain, short, to_millis
from aflow.operators.base import TwoInputOperator
from aflow.operators.joins.as_of import AsOfJoinOperator
from aflow.operators.joins.co_group import CoGroupOperator, WindowJoinOperator
from aflow.operators.joins.interval import IntervalJoinOperator, closed
from aflow.operators.joins.join import Join
from aflow.operators.windows.factory import check_logic
from aflow.operators.windows.logic import WindowLogic

Types = tuple[type[Any] | None, type[Any] | None]
"""By which snapshots store the records of the left and of the right side."""


def interval_join(
    pair: Pair,
    between: tuple[timedelta, timedelta],
    into: Callable[..., Any],
    name: str,
    kind: Join,
    *,
    inclusive: tuple[bool, bool],
    types: Types,
) -> JoinResults[Any, Any, Any]:
    """The step behind ``KeyedStream.interval_join``."""
    _check("interval_join", into, name, types)
    _check_kind(kind, Join, "interval_join")
    lower, upper = _bounds(between)
    try:
        closed(lower, upper, inclusive=inclusive)
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"step {name!r} (interval_join): {exc}") from exc
    key_type = pair.key_type
    return _results(
        "interval_join",
        name,
        pair,
        lambda: IntervalJoinOperator(
            lower,
            upper,
            into,
            kind=kind,
            lower_inclusive=inclusive[0],
            upper_inclusive=inclusive[1],
            left_type=types[0],
            right_type=types[1],
            key_type=key_type,
        ),
        f"{kind.value}, {short(lower)} to {short(upper)}",
    )


def as_of_join(
    pair: Pair,
    into: Callable[..., Any],
    name: str,
    kind: Join,
    tolerance: timedelta | None,
    *,
    types: Types,
) -> JoinResults[Any, Any, Any]:
    """The step behind ``KeyedStream.as_of_join``."""
    _check("as_of_join", into, name, types)
    _check_kind(kind, (Join.INNER, Join.LEFT), "as_of_join")
    reach = None if tolerance is None else to_millis(tolerance, what="tolerance")
    if reach is not None and reach < 0:
        raise FlowDefinitionError(f"tolerance must not be negative, and it is {tolerance!r}")
    key_type = pair.key_type
    return _results(
        "as_of_join",
        name,
        pair,
        lambda: AsOfJoinOperator(
            into,
            kind=kind,
            tolerance=reach,
            left_type=types[0],
            right_type=types[1],
            key_type=key_type,
        ),
        kind.value if reach is None else f"{kind.value}, tolerance {short(reach)}",
    )


def window_join(
    pair: Pair,
    windows: Windows[Any] | WindowAssigner[Any],
    into: Callable[..., Any],
    name: str,
    kind: Join,
    trigger: Trigger[Any] | None,
    lateness: timedelta,
    *,
    types: Types,
) -> JoinResults[Any, Any, Any]:
    """The step behind ``KeyedStream.window_join``."""
    _check("window_join", into, name, types)
    _check_kind(kind, Join, "window_join")
    logic, detail = _logic("window_join", name, windows, trigger, lateness, pair.key_type)
    return _results(
        "window_join",
        name,
        pair,
        lambda: WindowJoinOperator(logic, into, kind=kind, left_type=types[0], right_type=types[1]),
        f"{kind.value}, {detail}",
        windows=logic,
    )


def co_group(
    pair: Pair,
    windows: Windows[Any] | WindowAssigner[Any],
    into: Callable[[list[Any], list[Any]], Any],
    name: str,
    trigger: Trigger[Any] | None,
    lateness: timedelta,
    *,
    types: Types,
) -> JoinResults[Any, Any, Any]:
    """The step behind ``KeyedStream.co_group``."""
    _check("co_group", into, name, types)
    logic, detail = _logic("co_group", name, windows, trigger, lateness, pair.key_type)
    return _results(
        "co_group",
        name,
        pair,
        lambda: CoGroupOperator(logic, into, left_type=types[0], right_type=types[1]),
        detail,
        windows=logic,
    )


def _check(what: str, into: object, name: str, types: Types) -> None:
    check_function(into, what)
    for of in types:
        check_storable(of, f"step {name!r} ({what})")


def _check_kind(kind: object, allowed: type[Join] | tuple[Join, ...], what: str) -> None:
    if not isinstance(kind, Join) or kind not in allowed:
        names = " or ".join(f"aflow.Join.{one.name}" for one in allowed)
        raise FlowDefinitionError(f"kind= of {what}() is {names}, not {shown(kind)}")


def _bounds(between: tuple[timedelta, timedelta]) -> tuple[int, int]:
    if not isinstance(between, tuple) or len(between) != 2:
        raise FlowDefinitionError(
            f"between= takes two timedeltas, (lower, upper), not {shown(between)}"
        )
    return to_millis(between[0], what="lower bound"), to_millis(between[1], what="upper bound")


def _logic(
    what: str,
    name: str,
    windows: Windows[Any] | WindowAssigner[Any],
    trigger: Trigger[Any] | None,
    lateness: timedelta,
    key_type: type[Any] | None,
) -> tuple[WindowLogic, str]:
    chosen = choose(windows, trigger, None, lateness)
    logic = WindowLogic(
        assigner=chosen.assigner,
        trigger=chosen.trigger,
        evictor=chosen.evictor,
        lateness=chosen.lateness,
        key_type=key_type,
    )
    try:
        check_logic(replace(logic, apply=len))  # what comes of the lists is the operator's matter
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"step {name!r} ({what}): {exc}") from exc
    return logic, chosen.detail


def _by_time(assigner: WindowAssigner[Any]) -> bool:
    """True if windows depend on event time, so that records of them can be late."""
    return assigner.domain is TimeDomain.EVENT and not isinstance(assigner, GlobalWindows)


def _results(
    what: str,
    name: str,
    pair: Pair,
    operator: Callable[[], TwoInputOperator],
    detail: str,
    *,
    windows: WindowLogic | None = None,
) -> JoinResults[Any, Any, Any]:
    if windows is None or _by_time(windows.assigner):
        pair.check_time(what, name)
    node = pair.add_step(what, name, operator, detail=detail, windows=windows)
    return JoinResults(pair.left.graph, Edge(node))
