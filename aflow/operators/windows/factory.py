"""Creation of the operator of a window step, and the checks of its definition.

``WindowOperator`` supports every definition. For some definitions there are faster operators with the same output.
"""

from __future__ import annotations

from inspect import iscoroutinefunction, signature
from typing import Final

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.calls.on_error import Fail
from aflow.machines.windows.assigners import SessionWindows, SlidingWindows, TumblingWindows
from aflow.machines.windows.evictors import Evictor
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import EventTime
from aflow.model.time import TimeDomain
from aflow.operators.accumulation import applying
from aflow.operators.base import Operator
from aflow.operators.windows.function import check_window_function
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.operators.windows.sessions import SessionAggregateOperator
from aflow.operators.windows.window_contents import keeping
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.layouts import state_codec

#: Classes that the faster operators replace by arithmetic. A subclass may override a method.
_REPLACEABLE: Final = frozenset({TumblingWindows, SlidingWindows, SessionWindows, EventTime})


def window_operator(logic: WindowLogic) -> Operator:
    """Return a new operator for ``logic``, which ``check_logic`` has checked."""
    incremental = _incremental(logic)
    return WindowOperator(logic) if incremental is None else incremental.with_policy(logic.on_error)


def is_incremental(logic: WindowLogic) -> bool:
    """Return True if records are folded when they arrive, and windows fire at their end in event time."""
    return _incremental(logic) is not None


def check_logic(logic: WindowLogic) -> None:
    """Raise ``FlowDefinitionError`` for a definition that no operator supports."""
    _check_parts(logic)
    _check_result(logic)
    if logic.lateness < 0:
        raise FlowDefinitionError(f"lateness must not be negative, it is {logic.lateness} ms")
    if logic.assigner.merging:
        _check_merging(logic)
        _check_policy(logic)
    for of in (logic.of, logic.key_type):
        state_codec(of)


def check_assigner(assigner: object) -> None:
    """Raise ``FlowDefinitionError`` for an object that lacks a member of ``WindowAssigner``."""
    if isinstance(assigner, type):
        raise FlowDefinitionError(
            f"windows must be an object, not a class; write {assigner.__name__}(…)"
        )
    if not callable(getattr(assigner, "assign", None)):
        raise FlowDefinitionError(
            f"windows must be a WindowAssigner, not {shown(assigner)}; subclass WindowAssigner"
        )
    _check_plain(assigner, ("assign",))
    for name, kind in (("domain", TimeDomain), ("merging", bool)):
        found = getattr(assigner, name, None)
        if not isinstance(found, kind):
            raise FlowDefinitionError(
                f"{type(assigner).__name__}.{name} must be a {kind.__name__}, not {shown(found)}; "
                f"subclass WindowAssigner, which defines it"
            )


def _incremental(logic: WindowLogic) -> Operator | None:
    """Return a faster operator if records are only folded, and windows fire at their end in event time.

    Keeping records in a list is a fold too.
    """
    trigger, accumulation, of = logic.trigger, logic.accumulation, logic.of
    if accumulation is None and logic.apply is not None:
        accumulation, of = applying(logic.apply, keeping(logic)), None
    if (
        logic.assigner.domain is not TimeDomain.EVENT
        or not isinstance(trigger, EventTime)
        or trigger.early is not None
        or trigger.late is not None
        or logic.evictor is not None
        or logic.function is not None
        or accumulation is None
        or not {type(logic.assigner), type(logic.trigger)} <= _REPLACEABLE
    ):
        return None
    lateness, key_type = logic.lateness, logic.key_type
    # Merging the records of several panes would lose their order of arrival.
    shared = logic.apply is None
    match logic.assigner:
        case SessionWindows(gap):
            return SessionAggregateOperator(
                gap, accumulation, lateness=lateness, of=of, key_type=key_type
            )
        case TumblingWindows() | SlidingWindows() as windows:
            return PaneAggregateOperator(
                windows, accumulation, shared=shared, lateness=lateness, of=of, key_type=key_type
            )
        case _:
            return None


def _check_parts(logic: WindowLogic) -> None:
    parts = [
        (
            "trigger",
            Trigger,
            logic.trigger,
            ("on_element", "on_event_time", "on_processing_time", "on_merge", "clear"),
        ),
        ("evictor", Evictor, logic.evictor, ("before", "after")),
    ]
    for what, kind, part, methods in parts:
        if part is None and what == "evictor":
            continue
        if isinstance(part, type):
            raise FlowDefinitionError(
                f"{what} must be an object of class {kind.__name__}, not its class; write {part.__name__}(…)"
            )
        if not isinstance(part, kind):
            raise FlowDefinitionError(
                f"{what} must be an object of class {kind.__name__}, not {shown(part)}; subclass {kind.__name__}"
            )
        _check_plain(part, methods)
    if logic.evictor is not None:
        _check_evictor(logic.evictor)
    check_assigner(logic.assigner)


def _check_evictor(evictor: Evictor[object]) -> None:
    for name in ("before", "after"):
        try:
            signature(getattr(evictor, name)).bind("elements", "window", "ctx")
        except TypeError as exc:
            raise FlowDefinitionError(
                f"{type(evictor).__name__}.{name} takes the elements, the window and an EvictorContext; "
                f"write {name}(self, elements, window, ctx)"
            ) from exc


def _check_result(logic: WindowLogic) -> None:
    if logic.function is not None:
        check_window_function(logic.function)
    if logic.apply is not None and (logic.accumulation is not None or logic.function is not None):
        raise FlowDefinitionError(
            "apply takes the records themselves, so it excludes an accumulation and a function"
        )
    if logic.accumulation is None and logic.function is None and logic.apply is None:
        raise FlowDefinitionError(
            "a window needs an accumulation, a function or apply to emit results"
        )


def _check_merging(logic: WindowLogic) -> None:
    if not logic.trigger.merges:
        raise FlowDefinitionError(
            f"{type(logic.assigner).__name__} has windows that merge, and {type(logic.trigger).__name__} cannot merge "
            f"its timers and memory; give it on_merge, or use another trigger"
        )
    if (
        logic.evictor is None
        and logic.accumulation is not None
        and logic.accumulation.merge is None
    ):
        raise FlowDefinitionError(
            f"{type(logic.assigner).__name__} has windows that merge, but the accumulators cannot be merged; "
            f"give merge= to fold, or use aggregate"
        )


def _check_policy(logic: WindowLogic) -> None:
    """Raise ``FlowDefinitionError`` for a fold into windows that merge before the record is folded."""
    if (
        not isinstance(logic.on_error, Fail)
        and logic.accumulation is not None
        and logic.evictor is None
        and not is_incremental(logic)
    ):
        raise FlowDefinitionError(
            f"windows that merge have merged by the time at which a record cannot be folded, so on_error="
            f"{type(logic.on_error).__name__}(…) would leave a window of a dropped record; use aflow.Session with the "
            f"default trigger and without then=, apply or process, or on_error=Fail()"
        )


def _check_plain(part: object, methods: tuple[str, ...]) -> None:
    for name in methods:
        if iscoroutinefunction(getattr(part, name)):
            raise FlowDefinitionError(
                f"{type(part).__name__}.{name} is a coroutine function and would never run; make it a plain method"
            )
