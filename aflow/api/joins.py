"""Joins by time: the builders that ``KeyedStream`` returns, and the steps that they add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aflow.api.checks import check_function, check_storable
from aflow.api.connected import JoinResults
from aflow.api.error_policy import error_policy
from aflow.api.missing_methods import missing_method
from aflow.api.step_inputs import KeyedPair
from aflow.api.windows import Windows, choose_windows
from aflow.errors import FlowDefinitionError, shown
from aflow.graph.nodes import Edge
from aflow.machines.calls.on_error import OnError
from aflow.machines.windows.assigners import GlobalWindows, WindowAssigner
from aflow.machines.windows.trigger import Trigger
from aflow.model.time import TimeDomain, short, to_millis
from aflow.operators.base import TwoInputOperator
from aflow.operators.joins.as_of import AsOfJoinOperator
from aflow.operators.joins.co_group import CoGroupOperator, WindowJoinOperator
from aflow.operators.joins.interval import IntervalJoinOperator
from aflow.operators.joins.interval_side import closed
from aflow.operators.joins.join import Join
from aflow.operators.windows.factory import check_logic
from aflow.operators.windows.logic import WindowLogic

L = TypeVar("L")
R = TypeVar("R")
U = TypeVar("U")

Types = tuple[type[Any] | None, type[Any] | None]
"""The types by which snapshots store the records of the left and of the right stream."""


@dataclass(frozen=True, slots=True)
class JoinStep:
    """A join without its kind, function and name."""

    what: str
    pair: KeyedPair
    operator: Callable[[Callable[..., Any], Join], TwoInputOperator]
    """Makes the operator from ``into`` and the kind. It must not hold the pair: operators are sent to executors."""
    detail: str = ""
    """Its parameters, for plans."""
    windows: WindowLogic | None = None

    def add(
        self, kind: Join, into: Callable[..., Any], name: str, on_error: OnError[Any] | None
    ) -> JoinResults[Any, Any, Any]:
        """Add the step to the flow. Raises ``FlowDefinitionError``."""
        check_function(into, f"{self.what}().{kind.value}")
        make = self.operator
        detail = f"{kind.value}, {self.detail}" if self.detail else kind.value
        policy = _policy(self.pair, on_error, f"{self.what}().{kind.value}")
        return _results(
            self.what,
            name,
            self.pair,
            lambda: make(into, kind),
            detail,
            windows=self.windows,
            policy=policy,
        )


class _InnerOrLeft(Generic[L, R]):
    """The kinds that all joins have."""

    def __init__(self, step: JoinStep) -> None:
        self._step = step

    # Type checkers find the mistake themselves, and must not accept every name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, name)

    def inner(
        self,
        into: Callable[[L, R], U],
        *,
        name: str,
        on_error: OnError[tuple[L, R]] | None = None,
    ) -> JoinResults[L, R, U]:
        """Emit ``into(left, right)`` for each pair; drop records without a partner."""
        return self._step.add(Join.INNER, into, name, on_error)

    def left(
        self,
        into: Callable[[L, R | None], U],
        *,
        name: str,
        on_error: OnError[tuple[L, R | None]] | None = None,
    ) -> JoinResults[L, R, U]:
        """Emit ``into(left, right)`` for each pair, and ``into(left, None)`` for left records without a partner."""
        return self._step.add(Join.LEFT, into, name, on_error)


class AsOfJoinedStreams(_InnerOrLeft[L, R]):
    """Two keyed streams whose records ``L`` are joined with the newest record ``R``; choose ``inner`` or ``left``.

    Each method adds the step, which is named ``name``, and returns the stream of its results.
    """


class JoinedStreams(_InnerOrLeft[L, R]):
    """Two keyed streams whose records ``L`` and ``R`` are joined; choose ``inner``, ``left``, ``right`` or ``full``.

    Each method adds the step, which is named ``name``, and returns the stream of its results.
    """

    def right(
        self,
        into: Callable[[L | None, R], U],
        *,
        name: str,
        on_error: OnError[tuple[L | None, R]] | None = None,
    ) -> JoinResults[L, R, U]:
        """Emit ``into(left, right)`` for each pair, and ``into(None, right)`` for right records without a partner."""
        return self._step.add(Join.RIGHT, into, name, on_error)

    def full(
        self,
        into: Callable[[L | None, R | None], U],
        *,
        name: str,
        on_error: OnError[tuple[L | None, R | None]] | None = None,
    ) -> JoinResults[L, R, U]:
        """Emit ``into(left, right)`` for each pair, and records of both streams that have no partner with ``None``."""
        return self._step.add(Join.FULL, into, name, on_error)


def interval_join(
    pair: KeyedPair,
    between: tuple[timedelta, timedelta],
    *,
    inclusive: tuple[bool, bool],
    types: Types,
) -> JoinStep:
    """Return the step of ``KeyedStream.interval_join``."""
    what = "interval_join"
    _check_types(what, types)
    lower, upper = _bounds(between)
    try:
        closed(lower, upper, inclusive=inclusive)
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"{what}(): {exc}") from exc
    key_type = pair.key_type
    return JoinStep(
        what,
        pair,
        lambda into, kind: IntervalJoinOperator(
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
        f"{short(lower)} to {short(upper)}",
    )


def as_of_join(pair: KeyedPair, tolerance: timedelta | None, *, types: Types) -> JoinStep:
    """Return the step of ``KeyedStream.as_of_join``."""
    what = "as_of_join"
    _check_types(what, types)
    reach = None if tolerance is None else to_millis(tolerance, what="tolerance")
    if reach is not None and reach < 0:
        raise FlowDefinitionError(f"tolerance must not be negative, and it is {tolerance!r}")
    key_type = pair.key_type
    return JoinStep(
        what,
        pair,
        lambda into, kind: AsOfJoinOperator(
            into,
            kind=kind,
            tolerance=reach,
            left_type=types[0],
            right_type=types[1],
            key_type=key_type,
        ),
        "" if reach is None else f"tolerance {short(reach)}",
    )


def window_join(
    pair: KeyedPair,
    windows: Windows[Any] | WindowAssigner[Any],
    trigger: Trigger[Any] | None,
    lateness: timedelta,
    *,
    types: Types,
) -> JoinStep:
    """Return the step of ``KeyedStream.window_join``."""
    what = "window_join"
    _check_types(what, types)
    logic, detail = _logic(f"{what}()", windows, trigger, lateness, pair.key_type)
    return JoinStep(
        what,
        pair,
        lambda into, kind: WindowJoinOperator(
            logic, into, kind=kind, left_type=types[0], right_type=types[1]
        ),
        detail,
        windows=logic,
    )


def co_group(
    pair: KeyedPair,
    windows: Windows[Any] | WindowAssigner[Any],
    into: Callable[[list[Any], list[Any]], Any],
    name: str,
    trigger: Trigger[Any] | None,
    lateness: timedelta,
    *,
    types: Types,
    on_error: OnError[Any] | None,
) -> JoinResults[Any, Any, Any]:
    """Add the step of ``KeyedStream.co_group``."""
    what = "co_group"
    check_function(into, what)
    _check_types(what, types, name)
    policy = _policy(pair, on_error, what)
    logic, detail = _logic(f"step {name!r} ({what})", windows, trigger, lateness, pair.key_type)
    return _results(
        what,
        name,
        pair,
        lambda: CoGroupOperator(logic, into, left_type=types[0], right_type=types[1]),
        detail,
        windows=logic,
        policy=policy,
    )


def _check_types(what: str, types: Types, name: str | None = None) -> None:
    for of in types:
        check_storable(of, f"{what}()" if name is None else f"step {name!r} ({what})")


def _bounds(between: tuple[timedelta, timedelta]) -> tuple[int, int]:
    if not isinstance(between, tuple) or len(between) != 2:
        raise FlowDefinitionError(
            f"between= takes two timedeltas, (lower, upper), not {shown(between)}"
        )
    return to_millis(between[0], what="lower bound"), to_millis(between[1], what="upper bound")


def _logic(
    where: str,
    windows: Windows[Any] | WindowAssigner[Any],
    trigger: Trigger[Any] | None,
    lateness: timedelta,
    key_type: type[Any] | None,
) -> tuple[WindowLogic, str]:
    """Return the windows as their operator takes them, and their parameters for plans."""
    chosen = choose_windows(windows, trigger, None, lateness)
    logic = WindowLogic(
        assigner=chosen.assigner,
        trigger=chosen.trigger,
        evictor=chosen.evictor,
        lateness=chosen.lateness,
        key_type=key_type,
    )
    try:
        # ``apply`` marks windows that keep their records; the operator has its own function.
        check_logic(replace(logic, apply=len))
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"{where}: {exc}") from exc
    return logic, chosen.detail


def _policy(pair: KeyedPair, on_error: OnError[Any] | None, method: str) -> OnError[Any]:
    return error_policy(pair.left.graph, on_error, method, pair.left.edge, pair.right.edge)


def _depends_on_event_time(assigner: WindowAssigner[Any]) -> bool:
    """Return True if records can be late for windows of ``assigner``."""
    return assigner.domain is TimeDomain.EVENT and not isinstance(assigner, GlobalWindows)


def _results(
    what: str,
    name: str,
    pair: KeyedPair,
    operator: Callable[[], TwoInputOperator],
    detail: str,
    *,
    windows: WindowLogic | None,
    policy: OnError[Any],
) -> JoinResults[Any, Any, Any]:
    if windows is None or _depends_on_event_time(windows.assigner):
        pair.check_time(what, name)
    node = pair.add_step(what, name, operator, detail=detail, windows=windows, on_error=policy)
    return JoinResults(pair.left.graph, Edge(node))
