"""The definition of a window step."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from aflow.machines.calls.on_error import FAIL, OnError
from aflow.machines.windows.assigners import WindowAssigner
from aflow.machines.windows.evictors import Evictor
from aflow.machines.windows.trigger import Trigger
from aflow.operators.accumulation import Accumulation
from aflow.operators.windows.function import WindowFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLogic:
    """Assigner, trigger, evictor and result of a window step."""

    assigner: WindowAssigner[Any]
    trigger: Trigger[Any]
    evictor: Evictor[Any] | None = None
    lateness: int = 0
    """Allowed lateness (ms); ignored by windows of processing time."""
    accumulation: Accumulation | None = None
    """Folds records when they arrive. None: records are kept in a list, which ``function`` gets.

    With an evictor records are kept in any case, and folded at each firing.
    """
    function: WindowFunction[Any, Any, Any] | None = None
    """Returns the results. None: each firing emits a ``Windowed`` with the result of the accumulation or of ``apply``.
    """
    apply: Callable[[list[Any]], Any] | None = None
    """Without accumulation and function: returns the value of the ``Windowed`` for the list of records."""
    of: type[Any] | None = None
    """The type by which snapshots store accumulators, or records where they are kept."""
    key_type: type[Hashable] | None = None
    on_error: OnError[Any] = FAIL
    """The policy for records for which the accumulation fails, and windows for which the function fails."""
