"""Everything that a window step is told, and which operator does it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from aflow.machines.windows.assigners import WindowAssigner
from aflow.machines.windows.evictor import Evictor
from aflow.machines.windows.trigger import Trigger
from aflow.operators.accumulation import Accumulation
from aflow.operators.windows.function import WindowFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLogic:
    """Which windows there are, when they fire, and what comes of them."""

    assigner: WindowAssigner[Any]
    trigger: Trigger[Any]
    evictor: Evictor[Any] | None = None
    lateness: int = 0
    """Ms; heeded by windows of event time only."""
    accumulation: Accumulation | None = None
    """Records are folded as they come; None: they are kept one by one, and ``function`` gets a list of them.

    With an evictor they are kept anyhow and folded at each firing.
    """
    function: WindowFunction[Any, Any, Any] | None = None
    """Makes the results. None: each firing gives one ``Windowed`` with the accumulation's result, or ``apply``'s."""
    apply: Callable[[list[Any]], Any] | None = None
    """Without accumulation and function: gives the value of the ``Windowed`` for the list of records."""
    of: type[Any] | None = None
    """The type by which snapshots store accumulators (or records, where they are kept)."""
    key_type: type[Hashable] | None = None
