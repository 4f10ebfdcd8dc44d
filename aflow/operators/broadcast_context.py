"""Contexts of a ``BroadcastProcess``: one for records, one for control records."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeVar, overload

from aflow.errors import FlowDefinitionError
from aflow.model.time import Clock
from aflow.operators.context import Context, ProcessContext, undeclared
from aflow.operators.side_outputs import SideOutputs
from aflow.state.broadcast import BroadcastCell, BroadcastState, BroadcastView
from aflow.state.specs import StateSpec

K = TypeVar("K")
C = TypeVar("C")
N = TypeVar("N", bound=Hashable)
V = TypeVar("V")


class BroadcastContext(Context[K]):
    """Context of ``BroadcastProcess.process`` and ``on_timer``: a ``Context`` that reads broadcast state too."""

    __slots__ = ()

    @overload
    def state(self, spec: StateSpec[C]) -> C: ...
    @overload
    def state(self, spec: BroadcastState[N, V]) -> BroadcastView[N, V]: ...
    def state(self, spec: StateSpec[Any] | BroadcastState[Any, Any]) -> Any:
        """Return the cell of a declaration, bound to the current key, or the view of a broadcast state.

        Raises ``FlowDefinitionError`` for a declaration that is no attribute of the process function.
        """
        try:
            return self._cells[spec]
        except KeyError:
            raise undeclared(spec, self._cells) from None


class ControlContext(ProcessContext):
    """Context of ``BroadcastProcess.process_broadcast``: broadcast state to write, and no key."""

    __slots__ = ("_cells",)

    def __init__(
        self,
        *,
        clock: Clock,
        sides: SideOutputs,
        cells: Mapping[BroadcastState[Any, Any], BroadcastCell[Any, Any]],
    ) -> None:
        super().__init__(clock=clock, sides=sides)
        self._cells: Final = cells

    def state(self, spec: BroadcastState[N, V]) -> BroadcastCell[N, V]:
        """Return the broadcast state of a declaration: ``ctx.state(self.rules).put(…)``.

        Raises ``FlowDefinitionError`` for anything else: a control record has no key, so there is no keyed state.
        """
        try:
            return self._cells[spec]
        except KeyError:
            raise _no_broadcast_state(spec, self._cells) from None


def _no_broadcast_state(spec: object, cells: Mapping[Any, Any]) -> FlowDefinitionError:
    match spec:
        case StateSpec(name=name):
            return FlowDefinitionError(
                f"state {name!r} is kept for each key, and a control record has none; process_broadcast writes "
                f"BroadcastState, which process reads"
            )
        case _:
            return undeclared(spec, cells)
