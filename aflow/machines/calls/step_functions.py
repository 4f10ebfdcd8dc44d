"""Functions that the scheduler of a step calls: of the user, and of the operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.failures import call_failed


def _is_never_fatal(error: BaseException) -> bool:
    return False


def _fallback(function: Callable[..., Any], call: Call, error: BaseException) -> Any:
    return function(call.value, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFunctions:
    """Functions of one step."""

    step: str = "step"
    """The name of the step."""
    raised: tuple[type[BaseException], ...] = (Exception,)
    """Errors that a function of the user may raise."""
    random: Callable[[], float] = lambda: 0.5
    """Return a number from 0 to 1, for jitter."""
    describe: Callable[[str, Call, BaseException], Exception] = call_failed
    """Return the error that the job fails with, given the step, the call and its error."""
    is_fatal: Callable[[BaseException], bool] = _is_never_fatal
    """Return True if the job fails with an error of a call, whatever the error policy is."""
    convert: Callable[[Any], Any] | None = None
    """Return the result of a record, made of what the call returned."""
    fallback: Callable[[Callable[..., Any], Call, BaseException], Any] = _fallback
    """Return what a function of ``Fallback`` gives for a call and its error."""
