"""Contexts of triggers, evictors and window functions, and the default window function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from aflow.errors import FlowDefinitionError, OperatorError, shown
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, Clock, TimeDomain, Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.base import OperatorContext
from aflow.operators.context import no_clock
from aflow.operators.first_call import FirstCall
from aflow.operators.side_outputs import SideOutputs
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.lateness import LATE, WindowLifetime
from aflow.operators.windows.window_contents import KeyWindow
from aflow.operators.windows.window_state import WindowState, entries
from aflow.state.backend import WindowTimerQueue
from aflow.state.memory import MemoryBackend
from aflow.state.specs import StateSpec

S = TypeVar("S")


class WindowTriggerContext:
    """A ``MergeContext`` and ``EvictorContext``: one object, set to one key and window after the other.

    The trigger is called for the clean-up timer of the window in any case: setting a timer for the clean-up time has no
    effect, and deleting it has none. A timer after the end of time would never fire and is not set.
    """

    __slots__ = ("_clock", "_clocked", "_event", "_former", "_lifetime", "_processing", "at")

    at: KeyWindow
    """The current key and window."""

    def __init__(
        self,
        lifetime: WindowLifetime,
        clock: Clock,
        timers: Mapping[TimeDomain, WindowTimerQueue],
        *,
        clocked: bool = True,
    ) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._clocked = clocked
        self._event = timers[TimeDomain.EVENT]
        self._processing = timers[TimeDomain.PROCESSING]
        #: During a merge: the memory of the former windows.
        self._former: Sequence[dict[str, object] | None] = ()

    @property
    def key(self) -> Hashable:
        return self.at.key

    @property
    def watermark(self) -> Timestamp:
        return self._lifetime.watermark

    @property
    def processing_time(self) -> Timestamp:
        return self._clock.now()

    # Hot path: called once for each record by most triggers.

    def set_event_timer(self, at: Timestamp) -> None:
        here = self.at
        if at == here.cleanup and self._lifetime.domain is TimeDomain.EVENT:
            return
        if here.cleanup is None and self._lifetime.watermark == MAX_TIMESTAMP:
            # No later watermark would fire the timer. At this watermark it would fire at once: a trigger that sets
            # the next timer in each timer would not terminate before the end of time.
            return
        if _is_beyond_time(at):
            return
        here.timers += self._event.set(at, here.window, here.key)

    def delete_event_timer(self, at: Timestamp) -> None:
        here = self.at
        if at != here.cleanup or self._lifetime.domain is not TimeDomain.EVENT:
            here.timers -= self._event.delete(at, here.window, here.key)

    def set_processing_timer(self, at: Timestamp) -> None:
        if not self._clocked:
            raise no_clock()
        here = self.at
        if at == here.cleanup and self._lifetime.domain is TimeDomain.PROCESSING:
            return
        if not _is_beyond_time(at):
            here.timers += self._processing.set(at, here.window, here.key)

    def delete_processing_timer(self, at: Timestamp) -> None:
        here = self.at
        if at != here.cleanup or self._lifetime.domain is not TimeDomain.PROCESSING:
            here.timers -= self._processing.delete(at, here.window, here.key)

    def get(self, name: str, default: S) -> S:
        memory = self.at.memory
        # The trigger itself has put the value, so it has the type of the default.
        return default if memory is None else cast("S", memory.get(name, default))

    def put(self, name: str, value: object) -> None:
        memory = self.at.memory
        if memory is None:
            self.at.memory = {name: value}
        else:
            memory[name] = value

    def drop(self, name: str) -> None:
        memory = self.at.memory
        if memory is not None:
            memory.pop(name, None)
            if not memory:
                self.at.memory = None

    def merged(self, name: str, default: S) -> list[S]:
        return [
            default if memory is None else cast("S", memory.get(name, default))
            for memory in self._former
        ]

    def merging(self, former: Sequence[KeyWindow]) -> None:
        """Set the windows whose memory ``merged`` returns."""
        self._former = [each.memory for each in former]


def window_text(window: TimeWindow) -> str:
    """Return a window as messages show it."""
    return f"window [{window.start}, {window.end})"


def _is_beyond_time(at: Timestamp) -> bool:
    if type(at) is not int:
        raise TypeError(f"a trigger sets its timers in epoch ms (an int), not to {shown(at)}")
    return at > MAX_TIMESTAMP


K = TypeVar("K")
C = TypeVar("C")


class AsWindowed(WindowFunction[Any, Any, Windowed[Any, Any]]):
    """Emit one ``Windowed`` for each firing, with the value as it is or with the result of ``apply``."""

    def __init__(self, apply: Callable[[list[Any]], Any] | None = None) -> None:
        self._apply = apply

    def open(self) -> None:
        # Not in ``__init__``: each subtask has its own copy, whose attribute is replaced.
        if self._apply is not None:
            self._apply = FirstCall(self, "_apply", self._apply, "a window")

    def process(self, value: Any, ctx: WindowContext[Any]) -> tuple[Windowed[Any, Any]]:
        result = value if self._apply is None else self._apply(value)
        return (Windowed(ctx.key, ctx.window, result, ctx.firing),)


class WindowFunctionContext(Generic[K]):
    """A ``WindowContext``: one object, set to one key and window after the other."""

    __slots__ = (
        "_at",
        "_backend",
        "_clock",
        "_lifetime",
        "_name",
        "_sides",
        "_specs",
        "_window_state",
    )

    def __init__(
        self,
        context: OperatorContext,
        *,
        lifetime: WindowLifetime,
        sides: SideOutputs,
        backend: MemoryBackend,
        specs: tuple[StateSpec[Any], ...],
        window_state: WindowState | None,
    ) -> None:
        self._name = context.name
        self._clock: Clock = context.clock
        self._lifetime = lifetime
        self._sides = sides
        self._backend = backend
        self._specs: Final = {spec: backend.cell(spec) for spec in specs}
        #: None if windows merge.
        self._window_state = window_state
        #: None outside of the function's methods.
        self._at: KeyWindow | None = None

    def enter(self, at: KeyWindow) -> None:
        """Set the key and window for a call of the function."""
        self._at = at
        if self._specs:
            self._backend.key = at.key
            if self._window_state is not None:
                self._window_state.enter(at.key, at.window)

    def leave(self) -> None:
        """Unset the key and window after the call."""
        self._at = None
        if self._specs:
            self._backend.leave()
            if self._window_state is not None:
                self._window_state.leave()

    @property
    def entries(self) -> int:
        """Count the states of keys and windows that are not empty."""
        of_windows = 0 if self._window_state is None else self._window_state.entries
        return of_windows + entries(self._backend, self._specs)

    @property
    def key(self) -> K:
        return cast("K", self._current.key)  # key_by made it: the stream's type says so

    @property
    def window(self) -> TimeWindow:
        return self._current.window

    @property
    def firing(self) -> int:
        return self._current.firing

    @property
    def watermark(self) -> Timestamp:
        return self._lifetime.watermark

    @property
    def processing_time(self) -> Timestamp:
        return self._clock.now()

    def state(self, spec: StateSpec[C]) -> C:
        """Return the cell of ``spec`` for the key. Raises ``FlowDefinitionError`` unless the function declares
        ``spec``.
        """
        return self._cell(self._specs, spec)

    def window_state(self, spec: StateSpec[C]) -> C:
        """Return the cell of ``spec`` for key and window. Raises as ``state`` does, and if windows merge."""
        if self._window_state is None:
            raise FlowDefinitionError(
                f"step {self._name!r} has windows that merge, so a window has no state of its own; "
                f"use ctx.state(…), which belongs to the key"
            )
        return self._cell(self._window_state.cells, spec)

    def side(self, tag: Tag[S], value: S) -> None:
        """Emit ``value`` to a side output. Raises ``FlowDefinitionError`` for the name of the late output."""
        if tag.name == LATE:
            raise FlowDefinitionError(
                f"side output {LATE!r} of step {self._name!r} has its late records; give the tag another name"
            )
        self._sides.add(tag.name, value, self._current.window.max_timestamp)

    @property
    def _current(self) -> KeyWindow:
        if self._at is None:
            raise OperatorError(
                f"step {self._name!r} used the context of a window function outside of its methods; "
                f"it is valid for one window: use it before the method returns",
                operator=self._name,
            )
        return self._at

    def _cell(self, cells: dict[StateSpec[Any], Any], spec: StateSpec[C]) -> C:
        cell: C | None = cells.get(spec)
        if cell is None:
            known = ", ".join(repr(known.name) for known in cells) or "none"
            raise FlowDefinitionError(
                f"{spec!r} is not declared; make it an attribute of the window function, so that snapshots store it "
                f"(declared: {known})"
            )
        return cell
