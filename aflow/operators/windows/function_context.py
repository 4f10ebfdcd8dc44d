"""What window functions see beside the value, and the function of those steps that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.tags import Tag
from aflow.model.time import Clock, Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.base import OperatorContext
from aflow.operators.first_call import FirstCall
from aflow.operators.sides import SideOutputs
from aflow.operators.windows.contents import KeyWindow
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.horizon import Horizon
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.window_state import WindowState, entries
from aflow.state.memory import MemoryBackend
from aflow.state.specs import StateSpec

K = TypeVar("K")
S = TypeVar("S")
C = TypeVar("C")


class AsWindowed(WindowFunction[Any, Any, Windowed[Any, Any]]):
    """One ``Windowed`` for each firing, with the value as it is or with what ``apply`` makes of it."""

    def __init__(self, apply: Callable[[list[Any]], Any] | None = None) -> None:
        self._apply = apply

    def open(self) -> None:
        # Not in ``__init__``: each subtask has a copy of its own, whose attribute is to be replaced.
        if self._apply is not None:
            self._apply = FirstCall(self, "_apply", self._apply, "a window")

    def process(self, value: Any, ctx: WindowContext[Any]) -> tuple[Windowed[Any, Any]]:
        result = value if self._apply is None else self._apply(value)
        return (Windowed(ctx.key, ctx.window, result, ctx.firing),)


class FiringContext(Generic[K]):
    """A ``WindowContext`` that is made once and set to each key and window in turn."""

    __slots__ = (
        "_at",
        "_backend",
        "_clock",
        "_horizon",
        "_name",
        "_sides",
        "_specs",
        "_window_state",
    )

    def __init__(
        self,
        context: OperatorContext,
        *,
        horizon: Horizon,
        sides: SideOutputs,
        backend: MemoryBackend,
        specs: tuple[StateSpec[Any], ...],
        window_state: WindowState | None,
    ) -> None:
        self._name = context.name
        self._clock: Clock = context.clock
        self._horizon = horizon
        self._sides = sides
        self._backend = backend
        self._specs: Final = {spec: backend.cell(spec) for spec in specs}
        #: None where windows merge.
        self._window_state = window_state
        #: None outside of the function's methods.
        self._at: KeyWindow | None = None

    def enter(self, at: KeyWindow) -> None:
        """A method of the function is called for ``at``."""
        self._at = at
        if self._specs:
            self._backend.key = at.key
            if self._window_state is not None:
                self._window_state.enter(at.key, at.window)

    def leave(self) -> None:
        """It has returned."""
        self._at = None
        if self._specs:
            self._backend.leave()
            if self._window_state is not None:
                self._window_state.leave()

    @property
    def entries(self) -> int:
        """How many states hold something, of keys and of windows."""
        of_windows = 0 if self._window_state is None else self._window_state.entries
        return of_windows + entries(self._backend, self._specs)

    @property
    def key(self) -> K:
        return cast("K", self._here.key)  # key_by made it: the stream's type says so

    @property
    def window(self) -> TimeWindow:
        return self._here.window

    @property
    def firing(self) -> int:
        return self._here.firing

    @property
    def watermark(self) -> Timestamp:
        return self._horizon.watermark

    @property
    def processing_time(self) -> Timestamp:
        return self._clock.now()

    def state(self, spec: StateSpec[C]) -> C:
        """Raises ``FlowDefinitionError`` for a declaration that is no attribute of the function."""
        return self._cell(self._specs, spec)

    def window_state(self, spec: StateSpec[C]) -> C:
        """Raises ``FlowDefinitionError`` as ``state`` does, and where windows merge."""
        if self._window_state is None:
            raise FlowDefinitionError(
                f"step {self._name!r} has windows that merge, so there is no state of one window; "
                f"use ctx.state(…), which belongs to the key"
            )
        return self._cell(self._window_state.cells, spec)

    def side(self, tag: Tag[S], value: S) -> None:
        """Raises ``FlowDefinitionError`` for the name under which late records go out."""
        if tag.name == LATE:
            raise FlowDefinitionError(
                f"side output {LATE!r} of step {self._name!r} is that of its late records; give the tag another name"
            )
        self._sides.add(tag.name, value, self._here.window.max_timestamp)

    @property
    def _here(self) -> KeyWindow:
        if self._at is None:
            raise OperatorError(
                f"step {self._name!r} used the context of a window function outside of its methods; "
                f"it belongs to the window at hand: use it before the method returns",
                operator=self._name,
            )
        return self._at

    def _cell(self, cells: dict[StateSpec[Any], Any], spec: StateSpec[C]) -> C:
        cell: C | None = cells.get(spec)
        if cell is None:
            known = ", ".join(repr(known.name) for known in cells) or "none"
            raise FlowDefinitionError(
                f"{spec!r} is not declared; make it an attribute of the window function, so that snapshots know of it "
                f"(declared: {known})"
            )
        return cell
