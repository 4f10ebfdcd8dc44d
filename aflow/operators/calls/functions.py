"""The functions of an async step that the scheduler calls: conversion of results, and fallbacks of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.settings import CallResults, CallSettings
from aflow.machines.calls.step_functions import StepFunctions
from aflow.operators.base import RAISED, OperatorContext
from aflow.operators.first_call import refuse_coroutine
from aflow.operators.handler_results import iterable


def step_functions(settings: CallSettings, context: OperatorContext) -> StepFunctions:
    """Return the functions of a step with ``settings``."""
    many = settings.results is CallResults.MANY
    return StepFunctions(
        step=context.name,
        raised=RAISED,
        random=context.random,
        convert=_listed if many else None,
        fallback=_fallback_many if many else _fallback,
    )


def _listed(result: Any) -> list[Any]:
    return list(iterable(result))


def _fallback(function: Callable[..., Any], call: Call, error: BaseException) -> Any:
    result = function(call.value, error)
    refuse_coroutine(result, "Fallback()")
    return result


def _fallback_many(function: Callable[..., Any], call: Call, error: BaseException) -> list[Any]:
    return _listed(_fallback(function, call, error))


def with_resource(call: Callable[..., Any], resource: object, value: Any) -> Any:
    """Call a function of the user with a resource."""
    return call(value, resource)


def no_time() -> float:
    """Return 0: the clock of a step that measures nothing."""
    return 0.0
