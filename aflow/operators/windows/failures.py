"""Errors of window steps, which name the key and the window."""

from __future__ import annotations

from collections.abc import Hashable

from aflow.errors import OperatorError, described, shown
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.windows.contexts import window_text
from aflow.operators.windows.window_contents import KeyWindow


def in_window(error: OperatorError, one: KeyWindow) -> OperatorError:
    """Return ``error`` of a record with the window in which the record failed."""
    return OperatorError(
        f"{error}; in the {window_text(one.window)}",
        operator=error.operator,
        record=error.record,
        key=error.key,
        timestamp=error.timestamp,
    )


def timer_failure(
    step: str, cause: BaseException, timer: str, at: Timestamp, one: KeyWindow
) -> OperatorError:
    """Return the error of a ``timer``, described with its time ``at``, in which ``cause`` was raised."""
    return OperatorError(
        f"step {step!r} failed in the {timer} of key {shown(one.key)} in the "
        f"{window_text(one.window)}: {described(cause)}",
        operator=step,
        key=one.key,
        timestamp=at,
    )


def contents_failure(
    step: str, cause: BaseException, key: Hashable, window: TimeWindow
) -> OperatorError:
    """Return the error of a user function that raised ``cause`` for the contents of a window."""
    return OperatorError(
        f"step {step!r} failed on the contents of key {shown(key)} in the {window_text(window)}: "
        f"{described(cause)}",
        operator=step,
        key=key,
    )
