"""Steps written as classes with state and timers for each key: of one stream, and of two that share them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice, repeat
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aflow.errors import OperatorError, described, readable, shown
from aflow.machines.calls.on_error import Fail
from aflow.machines.timer_queue import Timer
from aflow.model.batch import Batch
from aflow.model.keys import CheckedKeys
from aflow.model.time import TimeDomain, Timestamp
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize, TwoInputOperator
from aflow.operators.context import Context
from aflow.operators.group_watermarks import no_group_ahead, restored_watermarks
from aflow.operators.handler_results import TAKEN, iterable
from aflow.operators.key_timers import TIMER_NAMES, KeyTimers, time_of_row
from aflow.operators.keyed_state import BackendState, keyed_backend, stored_backend, touch
from aflow.operators.pieces import OnePiece
from aflow.operators.process import LifeCycle, ProcessFunctionOperator, check_kind
from aflow.operators.record_watermarks import EventTimers, ResultColumns
from aflow.operators.transaction_context import TransactionContext
from aflow.state.backend import KeyTimerQueue
from aflow.state.broadcast import keyed_states
from aflow.state.keyed_entries import CapturedRows, KeyedRows
from aflow.state.layouts import descriptions
from aflow.state.readable_state import ReadableState
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import StateSpec, declared_states
from aflow.state.transactions import Transactions

K = TypeVar("K")
T = TypeVar("T")
L = TypeVar("L")
R = TypeVar("R")
C = TypeVar("C", bound=Context[Any])
U = TypeVar("U")
F = TypeVar("F", bound="KeyedFunction[Any, Any]")

_Record: TypeAlias = tuple[Any, Any, Any]
"""Value, key and timestamp."""


#: Runs the work of firing between two records of a batch.
_AT_ONCE: Final = OnePiece()


class KeyedFunction(LifeCycle, Generic[C, U]):
    """A process function with state and timers for each key, which it accesses through a context ``C``."""

    def on_timer(self, at: Timestamp, ctx: C) -> Iterable[U] | None:
        """Return the results for a timer of ``ctx.key`` at ``at`` (epoch ms) on the clock of ``ctx.timer_domain``.

        Event timers fire when the watermark reaches them, in time order and before the watermark is emitted; results
        have ``at`` as their timestamp. At the end of a bounded input all of them fire. Processing timers fire by the
        clock, and not after the end of the input; their results have no timestamp.
        """
        raise NotImplementedError(f"{type(self).__name__} sets timers and needs an on_timer method")


class KeyedFunctionOperator(ProcessFunctionOperator[F]):
    """The base of operators of keyed functions: each record and each timer has its key as the current key.

    ``key_type`` is the type of the keys, which snapshots need unless keys are plain Python values.
    """

    def __init__(self, function: F, key_type: type[Hashable] | None = None) -> None:
        super().__init__(function)
        self._states: Final = declared_states(function)
        self._key_type = key_type
        self._to_close: Final = ExitStack()
        #: True while timers fire between two records of a batch.
        self._is_between_records = False

    def open(self, context: OperatorContext) -> None:
        self._backend = keyed_backend(context, self._key_type)
        self._to_close.callback(self._backend.close)
        self._timers = KeyTimers[KeyTimerQueue](context.alarm, self._backend.timers)
        self._known_keys = CheckedKeys()
        super().open(context)
        self._ctx = self._new_context(context)
        if not isinstance(self.on_error, Fail):
            self._transactions = Transactions(self._backend, self._states)
            self._transacted = TransactionContext[Any](
                clock=context.clock,
                sides=self._sides,
                backend=self._backend,
                cells={},
                timers=self._timers.queues,
                clocked=context.clocked,
            )
        #: The watermarks of key groups that were restored from a subtask which was ahead of this one.
        self._ahead = no_group_ahead(context)

    def _new_context(self, context: OperatorContext) -> Context[Any]:
        """Return the context of the handlers."""
        return Context(
            clock=context.clock,
            sides=self._sides,
            backend=self._backend,
            cells=self._cells(),
            timers=self._timers.queues,
            clocked=context.clocked,
        )

    def declares(self) -> Mapping[str, bytes]:
        return descriptions(self._states)

    def readable_state(self) -> ReadableState:
        return BackendState(self._backend, [state.name for state in self._states])

    def row_times(self) -> RowTimes | None:
        # A row with a time to live expires by the clock, whatever the watermark.
        if any(state.ttl is not None for state in self._states):
            return None
        return {TIMER_NAMES[TimeDomain.EVENT]: time_of_row}

    def stored_state(self, snapshot: OperatorSnapshot, context: OperatorContext) -> ReadableState:
        return stored_backend(snapshot, context, self._states, self._key_type)

    def _cells(self) -> dict[StateSpec[Any], Any]:
        return {spec: self._backend.cell(spec) for spec in self._states}

    def _handle(
        self, batch: Batch[Any], handle: Callable[[Any, Any], Iterable[Any] | None]
    ) -> None:
        """Call ``handle`` for each record, and emit its results."""
        keys = touch(self, self._backend, batch)
        if not isinstance(self.on_error, Fail):
            handle = self._in_transaction(handle)
        if self._ahead:
            handle = self._at_watermark_of_key(handle)
        left = iter(batch.values)
        moments = repeat(None) if batch.timestamps is None else batch.timestamps
        records = zip(left, keys, moments, strict=False)
        results = self._begin_results(batch, left)
        try:
            if batch.watermarks is None:
                self._handle_keyed(batch, handle, left, records, results)
            else:
                self._in_intervals(
                    batch.watermarks,
                    self._ctx,
                    left,
                    results,
                    lambda count: self._handle_keyed(
                        batch, handle, left, islice(records, count), results
                    ),
                    keys,
                )
        finally:
            self._timers.arm()
            self._end_piece(results, has_times=batch.timestamps is not None)

    def _handle_keyed(
        self,
        batch: Batch[Any],
        handle: Callable[[Any, Any], Iterable[Any] | None],
        left: Iterator[Any],
        records: Iterator[_Record],
        columns: ResultColumns,
    ) -> None:
        """Call ``handle`` for ``records`` of ``batch``, and append its results to ``columns``.

        ``left`` iterates over the values of the batch. Return early after a record that registers a timer which is due
        in the present interval.
        """
        # Hot path: no allocation for a record; key and timestamp are set, and results are appended to the columns.
        ctx, backend, known = self._ctx, self._backend, self._known_keys
        values, timestamps = columns.values, columns.timestamps
        while True:
            try:
                for value, key, at in records:
                    if key not in known:
                        known[key]  # checks it
                    backend.key = key
                    ctx.timestamp = at
                    results = handle(value, ctx)
                    if results is not None:
                        values.extend(results if type(results) in TAKEN else iterable(results))
                        timestamps.extend([at] * (len(values) - len(timestamps)))
                        if columns.watermarks is not None:
                            self._carry(columns, batch, left)
                    if ctx.is_soon:
                        return
                return
            except RAISED as exc:
                self._settle_handler(exc, batch, left, columns)

    def _touch_again(self, keys: Sequence[Hashable]) -> None:
        self._backend.touch(keys)

    def event_timers(self) -> EventTimers:
        return self._timers.queues[TimeDomain.EVENT]

    def meet(self, watermark: Timestamp) -> None:
        super().meet(watermark)
        self._ctx.reach(watermark)

    def advance_between_records(
        self, before: Timestamp, watermark: Timestamp, results: ResultColumns
    ) -> None:
        earliest = self.event_timers().earliest
        advance = self.context.advance or self.on_watermark
        carries = self.context.carries_watermarks
        # A timer for the past: its result is older than this watermark, and may be late downstream.
        is_past = earliest is not None and earliest <= before and before > self.watermark
        # The rest of the batch waits in the caller, so the timers fire in one piece.
        self._is_between_records = True
        # Results that carry no watermarks are emitted together: a batch for each firing costs more than its handlers.
        if carries or is_past:
            self._timers.arm()
            self._end_piece(results)
        if is_past:
            advance(before)
        if carries:
            # As the input does it, so that results of the timers carry the watermarks that they meet.
            advance(watermark)
        else:
            self._meet_after(watermark)
            self._fire_between_records(watermark, results)
        self._is_between_records = False

    def _fire_between_records(self, watermark: Timestamp, results: ResultColumns) -> None:
        """Call ``on_timer`` for all timers due at ``watermark``, and append its results to ``results``."""
        handle = self._timer_handler()
        self._ctx.timer_domain = TimeDomain.EVENT
        for timer in self._timers.due(TimeDomain.EVENT, watermark):
            if timer is not None:
                self._call_on_timer(handle, TimeDomain.EVENT, timer, results)
        self._ctx.timer_domain = None

    def _at_watermark_of_key(
        self, handle: Callable[[Any, Any], Iterable[Any] | None]
    ) -> Callable[[Any, Any], Iterable[Any] | None]:
        """Return ``handle`` with the watermark of the current key in its context."""
        backend = self._backend

        def handle_restored(value: Any, ctx: Any) -> Iterable[Any] | None:
            ctx.at_least(max(self._ahead.of(backend.key, self._reached), self._reached))
            return handle(value, ctx)

        return handle_restored

    def _in_transaction(
        self, handle: Callable[[Any, Any], Iterable[Any] | None]
    ) -> Callable[[Any, Any], Iterable[Any] | None]:
        """Return ``handle`` such that one that raises leaves no change of state, and no timer."""
        backend, transactions, transacted = self._backend, self._transactions, self._transacted

        def handle_in_transaction(value: Any, ctx: Any) -> Iterable[Any] | None:
            with transacted.of(transactions.open(backend.key), ctx):
                results = handle(value, transacted)
                return None if results is None else list(iterable(results))

        return handle_in_transaction

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs catch up
        self.watermark = timestamp
        # Otherwise the last record has met it. Timers that it has set for the past fire when the watermark advances.
        if timestamp > self._reached:
            self._meet_after(timestamp)
            if self._timers.is_due(TimeDomain.EVENT, timestamp):
                pieces = _AT_ONCE if self._is_between_records else self.pieces
                pieces.run(self._fire_until(timestamp))
                return
        super().on_watermark(timestamp)

    def _fire_until(self, timestamp: Timestamp) -> Iterator[int]:
        """Fire all event timers up to the watermark ``timestamp``, in pieces, and emit it."""
        yield from self._fire(TimeDomain.EVENT, timestamp)
        super().on_watermark(timestamp)

    def _meet_after(self, watermark: Timestamp) -> None:
        self.meet(watermark)
        self._ahead = self._ahead.after(watermark)

    def on_processing_time(self, now: Timestamp) -> None:
        self._timers.on_alarm()
        self.pieces.run(self._fire(TimeDomain.PROCESSING, now))

    def close(self) -> None:
        with self._to_close:
            super().close()

    def size(self) -> StateSize:
        """Return one entry for each state of a key."""
        queues = self._timers.queues
        return StateSize(
            entries=sum(len(self._backend.keys(spec.name)) for spec in self._states),
            event_timers=len(queues[TimeDomain.EVENT]),
            processing_timers=len(queues[TimeDomain.PROCESSING]),
        )

    def capture(self, *, changes: bool) -> CapturedRows:
        """Capture the state. Raises ``CheckpointError`` for a value that cannot be encoded."""
        rows = self._backend.capture(changes=changes)
        if changes and not self._states:
            rows = KeyedRows({}, ())  # without states no key has changed
        timers = self._timers.capture(changes=rows.keys is not None, beside=rows.keys or ())
        if timers is None:
            del rows  # otherwise it would be completed at once
            return self.capture(changes=False)
        key_codec, gather = self._backend.key_codec, self._timers.gather
        return CapturedRows(key_codec, rows, timers, self._stored_watermark(), more=gather)

    def _stored_watermark(self) -> Mapping[str, tuple[bytes, ...]]:
        return self._ahead.stored(self.watermark, self.context.key_groups)

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Continue with the smallest watermark of the former subtasks."""
        self.watermark, self._ahead = restored_watermarks(snapshot, self.watermark, self.context)
        self.meet(self.watermark)
        restore_timers = partial(self._timers.restore_group, step=self.name)
        yield from self._backend.restore_beside(snapshot.keyed, restore_timers)
        self._timers.on_restored()

    def _fire(self, domain: TimeDomain, now: Timestamp) -> Iterator[int]:
        """Call ``on_timer`` for all due timers, and emit its results, in pieces."""
        yield from self._timers.gather_slices()
        handle = self._timer_handler()
        event = domain is TimeDomain.EVENT
        self._ctx.timer_domain = domain
        self._sides.begin()
        results = ResultColumns()
        fired, limit = 0, self.pieces.limit  # of this piece
        for timer in self._timers.due(domain, now):
            if timer is None:
                yield 0
                continue
            self._call_on_timer(handle, domain, timer, results)
            fired += 1
            if fired >= limit:
                self._end_piece(results, has_times=event)
                yield fired
                self._ctx.timer_domain = domain
                self._sides.begin()
                fired, limit = 0, self.pieces.limit
        self._timers.arm()
        self._end_piece(results, has_times=event)

    def _timer_handler(self) -> Callable[[Any, Any], Iterable[Any] | None]:
        handle: Callable[[Any, Any], Iterable[Any] | None] = self._function.on_timer
        return self._at_watermark_of_key(handle) if self._ahead else handle

    def _call_on_timer(
        self,
        handle: Callable[[Any, Any], Iterable[Any] | None],
        domain: TimeDomain,
        timer: Timer[Hashable, None],
        columns: ResultColumns,
    ) -> None:
        """Call ``handle`` for ``timer``, and append its results to ``columns``."""
        at, key, _ = timer
        ctx, backend = self._ctx, self._backend
        values, timestamps = columns.values, columns.timestamps
        backend.touch((key,))
        backend.key = key
        moment = ctx.timestamp = at if domain is TimeDomain.EVENT else None
        try:
            results = handle(at, ctx)
            if results is not None:
                values.extend(results if type(results) in TAKEN else iterable(results))
                timestamps.extend([moment] * (len(values) - len(timestamps)))
        except RAISED as exc:
            del values[len(timestamps) :]  # results of a generator that failed later
            raise self._failed_at(domain, at, key, exc) from exc

    def _end_piece(self, results: ResultColumns, *, has_times: bool = True) -> None:
        """Leave the current key, and emit ``results``."""
        self._backend.leave()
        self._ctx.timer_domain = None
        self._ctx.reach(self._reached)
        self._emit_results(results, has_times=has_times)

    def _failed_at(
        self, domain: TimeDomain, at: Timestamp, key: Hashable, cause: BaseException
    ) -> OperatorError:
        return OperatorError(
            f"step {self.name!r} failed in the {domain.value} timer at {at} ({readable(at)}) of key {shown(key)}: "
            f"{described(cause)}",
            operator=self.name,
            key=key,
            timestamp=at,
        )


class KeyedProcess(KeyedFunction[Context[K], U], Generic[K, T, U]):
    """Subclass it to process records ``T`` with state and timers for each key ``K``; results are ``U``.

    State is declared as class attributes, ``last = ValueState("last", of=Payment)``, and accessed as
    ``ctx.state(self.last)``. Attributes of ``self`` are shared by all keys and are in no snapshot.
    """

    preceding_call = ".key_by(…)"

    @abstractmethod
    def process(self, value: T, ctx: Context[K]) -> Iterable[U] | None:
        """Return the results for ``value``: a list, a tuple, a generator (run at once) or None.

        Results have the timestamp of the record.
        """


def check_keyed_process(function: object) -> None:
    """Check a ``KeyedProcess``. Raises ``FlowDefinitionError`` for anything else, and for two states of one name."""
    check_kind(function, KeyedProcess, handlers=("process", "on_timer", "open", "close"))
    keyed_states(function)


class KeyedProcessOperator(KeyedFunctionOperator[KeyedProcess[Any, Any, Any]]):
    """Runs a ``KeyedProcess``: each record, and each timer, with its key as the current key."""

    def process(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process)


class CoProcess(KeyedFunction[Context[K], U], Generic[K, L, R, U]):
    """Subclass it to process records ``L`` and ``R`` of two streams with keys ``K`` together; results are ``U``.

    State is declared and accessed as in a ``KeyedProcess``; a key has the same state and timers for both streams.
    Records of one stream keep their order for each key; the order between the two streams is undefined, and may differ
    between runs. Results that must not depend on it are emitted by a timer: the watermark has reached a time once
    *both* streams have.
    """

    preceding_call = ".connect(other)"

    @abstractmethod
    def process_left(self, value: L, ctx: Context[K]) -> Iterable[U] | None:
        """Return the results for a record of the left stream: a list, a tuple, a generator (run at once) or None.

        Results have the timestamp of the record.
        """

    @abstractmethod
    def process_right(self, value: R, ctx: Context[K]) -> Iterable[U] | None:
        """Return the results for a record of the right stream, as for the left one."""


def check_co_process(function: object) -> None:
    """Check a ``CoProcess``. Raises ``FlowDefinitionError`` for anything else, and for two states of one name."""
    handlers = ("process_left", "process_right", "on_timer", "open", "close")
    check_kind(function, CoProcess, handlers=handlers)
    keyed_states(function)


class CoProcessOperator(KeyedFunctionOperator[CoProcess[Any, Any, Any, Any]], TwoInputOperator):
    """Runs a ``CoProcess``: each record of both inputs, and each timer, with its key as the current key."""

    def process_left(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process_left)

    def process_right(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process_right)
