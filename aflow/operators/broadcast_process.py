"""A step written as a class that handles a stream by rules which a second, broadcast stream keeps up to date."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import OperatorContext, StateSize, TwoInputOperator
from aflow.operators.broadcast_context import BroadcastContext, ControlContext
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedFunction, KeyedFunctionOperator
from aflow.operators.process import check_kind
from aflow.state.broadcast import BroadcastStore, broadcast_states
from aflow.state.keyed_entries import CapturedRows
from aflow.state.layouts import descriptions
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import declared_states

K = TypeVar("K")
T = TypeVar("T")
C = TypeVar("C")
U = TypeVar("U")


class BroadcastProcess(KeyedFunction[BroadcastContext[K], U], Generic[K, T, C, U]):
    """Subclass it to handle records ``T`` with keys ``K`` by what control records ``C`` have said; results are ``U``.

    What control records say is kept in broadcast state, declared as ``rules = BroadcastState("rules", key=str,
    of=Rule)``; keyed state and timers are those of a ``KeyedProcess``. Each subtask gets every control record, and
    from each subtask of the control stream in the order sent. So all subtasks hold the same, provided that
    ``process_broadcast`` depends on nothing but its record and the broadcast state, and that the order of control
    records from different senders does not matter (one sender: a control stream of parallelism 1).

    When a control record takes effect among the records of the stream is not known, and may differ between subtasks.
    A control stream without event time does not hold that of the other; one that has it is waited for as any input, so
    give it ``idle_after`` if it is mostly silent. For a stream without keys ``K`` is None; then keyed state is refused,
    and timers and ``ctx.key`` fail.
    """

    preceding_call = ".connect_broadcast(control)"

    @abstractmethod
    def process(self, value: T, ctx: BroadcastContext[K]) -> Iterable[U] | None:
        """The results for a record, by broadcast state as it is now: a list, a tuple, a generator or None for none.

        Results have the timestamp of the record.
        """

    @abstractmethod
    def process_broadcast(self, value: C, ctx: ControlContext) -> Iterable[U] | None:
        """Take in a control record: ``ctx.state(self.rules).put(value.name, value)``. Called in each subtask.

        So what it returns as results, or sends to side outputs, comes once from each subtask.
        """


def check_broadcast_process(function: object, *, keyed: bool = True) -> None:
    """Refuse what cannot run as a ``BroadcastProcess``, on a stream without keys if not ``keyed``.

    Raises ``FlowDefinitionError``, also for two states of one name.
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
    """Runs a ``BroadcastProcess``: records come by the left input, control records by the right one.

    ``keyed`` says whether the records have keys.
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

    def on_watermark(self, timestamp: Timestamp) -> None:
        self._control.watermark = max(timestamp, self.watermark)
        super().on_watermark(timestamp)

    def size(self) -> StateSize:
        """Each state of a key is an entry, and so is each entry of a broadcast state."""
        size = super().size()
        return replace(size, entries=size.entries + len(self._store))

    def capture(self, *, changes: bool) -> CapturedRows:
        """Broadcast state is captured whole. Raises ``CheckpointError`` for a value that cannot be encoded."""
        return replace(super().capture(changes=changes), broadcast=self._store.snapshot())

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Each subtask goes on with a whole copy of the broadcast states."""
        super().restore(snapshot)
        self._control.watermark = self.watermark
        self._store.restore(snapshot.broadcast)


class _Unkeyed:
    """The current key of a record without one: whatever uses it raises."""

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __hash__(self) -> int:
        raise OperatorError(
            f"step {self._step!r} used the key or a timer, and its stream has no keys; "
            f"call .key_by(…) before .connect_broadcast(…)",
            operator=self._step,
        )
