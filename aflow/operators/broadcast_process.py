"""A step written as a class that processes a stream by rules that a second, broadcast stream updates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar, overload

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.batch import Batch
from aflow.model.time import Clock, Timestamp
from aflow.operators.base import OperatorContext, StateSize, TwoInputOperator
from aflow.operators.context import Context, ProcessContext, undeclared
from aflow.operators.keyed_function import KeyedFunction, KeyedFunctionOperator
from aflow.operators.process import check_kind
from aflow.operators.side_outputs import SideOutputs
from aflow.state.broadcast import (
    BroadcastCell,
    BroadcastState,
    BroadcastStore,
    BroadcastView,
    broadcast_states,
)
from aflow.state.keyed_entries import CapturedRows
from aflow.state.layouts import descriptions
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import StateSpec, declared_states

K = TypeVar("K")
T = TypeVar("T")
C = TypeVar("C")
U = TypeVar("U")
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


class BroadcastProcess(KeyedFunction[BroadcastContext[K], U], Generic[K, T, C, U]):
    """Subclass it to process records ``T`` with keys ``K`` by rules of control records ``C``; results are ``U``.

    The rules are kept in broadcast state, declared as ``rules = BroadcastState("rules", key=str,
    of=Rule)``; keyed state and timers are those of a ``KeyedProcess``. Each subtask gets every control record, in
    the order of each sender. So all subtasks have the same broadcast state, provided that ``process_broadcast`` depends
    on its record and the broadcast state only, and that the order of control records from different senders does not
    matter (one sender: a control stream of parallelism 1).

    The position of a control record among the records of the stream is undefined, and may differ between subtasks. A
    control stream without event time does not hold back that of the other; one with event time is an input like any
    other, so give it ``idle_after`` if it is mostly idle. For a stream without keys ``K`` is None; then keyed state is
    refused, and timers and ``ctx.key`` fail.
    """

    preceding_call = ".connect_broadcast(control)"

    @abstractmethod
    def process(self, value: T, ctx: BroadcastContext[K]) -> Iterable[U] | None:
        """Return the results for a record, by the present broadcast state: a list, a tuple, a generator, or None.

        Results have the timestamp of the record.
        """

    @abstractmethod
    def process_broadcast(self, value: C, ctx: ControlContext) -> Iterable[U] | None:
        """Process a control record: ``ctx.state(self.rules).put(value.name, value)``. Called in each subtask.

        So its results and its records for side outputs are emitted once by each subtask.
        """


def check_broadcast_process(function: object, *, keyed: bool = True) -> None:
    """Check a ``BroadcastProcess``, for a stream without keys if not ``keyed``.

    Raises ``FlowDefinitionError`` for anything else, and for two states of one name.
    """
    handlers = ("process", "process_broadcast", "on_timer", "open", "close")
    check_kind(function, BroadcastProcess, handlers=handlers)
    broadcast_states(function)
    states = declared_states(function)
    if states and not keyed:
        raise FlowDefinitionError(
            f"{type(function).__name__} keeps state {states[0].name!r} for each key, and its stream has no keys; "
            f"call .key_by(…) before .connect_broadcast(…)"
        )


class BroadcastProcessOperator(
    KeyedFunctionOperator[BroadcastProcess[Any, Any, Any, Any]], TwoInputOperator
):
    """Runs a ``BroadcastProcess``: the left input has the records, the right one the control records.

    ``keyed`` is True if the records have keys.
    """

    def __init__(
        self,
        function: BroadcastProcess[Any, Any, Any, Any],
        key_type: type[Hashable] | None = None,
        *,
        keyed: bool = True,
    ) -> None:
        super().__init__(function, key_type)
        self._keyed = keyed
        self._broadcast: Final = broadcast_states(function)

    def open(self, context: OperatorContext) -> None:
        self._store = BroadcastStore(context.name, self._broadcast)
        super().open(context)
        self._control = ControlContext(
            clock=context.clock, sides=self._sides, cells=self._store.cells
        )

    def declares(self) -> Mapping[str, bytes]:
        return {**super().declares(), **descriptions(self._broadcast)}

    def _new_context(self, context: OperatorContext) -> Context[Any]:
        return BroadcastContext(
            clock=context.clock,
            sides=self._sides,
            backend=self._backend,
            cells={**self._cells(), **self._store.views},
            timers=self._timers.queues,
            clocked=context.clocked,
        )

    def process_left(self, batch: Batch[Any]) -> None:
        if self._keyed:
            self._handle(batch, self._function.process)
        else:
            self._backend.key = _Unkeyed(self.name)
            self._handle_each(batch, self._function.process, self._ctx)
            self._backend.leave()

    def process_right(self, batch: Batch[Any]) -> None:
        self._store.writable = True
        self._handle_each(batch, self._function.process_broadcast, self._control)
        self._store.writable = False

    def meet(self, watermark: Timestamp) -> None:
        super().meet(watermark)
        self._control.reach(watermark)

    def row_times(self) -> None:
        """Return None: the order of control records and records is none of event time."""

    def size(self) -> StateSize:
        """Return one entry for each state of a key, and for each entry of a broadcast state."""
        size = super().size()
        return replace(size, entries=size.entries + len(self._store))

    def capture(self, *, changes: bool) -> CapturedRows:
        """Capture changes, and all broadcast state. Raises ``CheckpointError`` for a value without encoding."""
        return replace(super().capture(changes=changes), broadcast=self._store.snapshot())

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Continue from ``snapshot``; each subtask has a complete copy of the broadcast states."""
        yield from super().restore_in_pieces(snapshot)
        self._store.restore(snapshot.broadcast)


class _Unkeyed:
    """The current key of a record without one: any use of it raises."""

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __hash__(self) -> int:
        raise OperatorError(
            f"step {self._step!r} used the key or a timer, and its stream has no keys; "
            f"call .key_by(…) before .connect_broadcast(…)",
            operator=self._step,
        )
