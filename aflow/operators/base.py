"""The base of all operators: a synchronous step that takes batches and pushes batches.

Contract. One operator object belongs to one subtask, and everything in it runs in that subtask's coroutine, so
no other code of the task runs between the first and the last line of a method. Life cycle: ``open`` once, then any
number of ``process``, ``on_watermark``, ``on_processing_time``, ``on_idle``, ``on_active``, ``on_marker``,
``snapshot``; ``end_input`` once if the input ended by itself (after the final watermark, if there is one); ``close``
always, exactly once.
``restore`` is called after ``open`` and before everything else.

Work that may take long, such as firing, is done in pieces (``operators/pieces.py``): then the operator gets its next
element when the last piece is done, not when the method has returned.

An operator *pushes* its results into ``self.output`` rather than returning them, because one input batch may become
several batches with watermarks between them (see docs/decisions/001).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self, TypeAlias, TypeGuard

from aflow.errors import AflowError, InternalError, OperatorError
from aflow.machines.calls.on_error import (
    DROPPED,
    FAIL,
    DeadLetter,
    Fail,
    FailedRecord,
    Fallback,
    OnError,
)
from aflow.machines.calls.rate import SharedBuckets
from aflow.model.batch import Batch, in_batches
from aflow.model.elements import Marker
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.model.keys import UnsupportedKey, check_key
from aflow.model.time import MIN_TIMESTAMP, Clock, Timestamp
from aflow.operators.first_call import MisuseError, refuse_coroutine
from aflow.operators.pieces import OnePiece, PieceRunner
from aflow.state.backend_choice import InMemory, StateBackend
from aflow.state.readable_state import ReadableState
from aflow.state.snapshot import Captured, OperatorSnapshot

#: Failures of a user function that is called, not awaited. Such a call cannot have been cancelled, so a
#: ``CancelledError`` out of it is the function's own, and must not end a task as if the job had been cancelled.
RAISED: Final = (Exception, CancelledError)


class Output(Protocol):
    """Takes the results of an operator: the next operators of its chain, or the channels downstream."""

    def emit(self, batch: Batch[Any]) -> None:
        """Emit records. The batch must not be empty and must not be changed afterwards."""
        ...

    def watermark(self, timestamp: Timestamp) -> None:
        """Emit a watermark; timestamps only grow."""
        ...

    def idle(self) -> None:
        """Emit that the stream is idle, so that readers do not wait for its watermark."""
        ...

    def active(self) -> None:
        """Emit that the stream is active again."""
        ...

    def marker(self, marker: Marker) -> None:
        """Emit a marker."""
        ...

    def side(self, tag: str, batch: Batch[Any]) -> None:
        """Emit records to the side output ``tag``; they are dropped, and counted, if it has no reader."""
        ...


def _no_clock() -> float:
    """Return 0: the default clock if nothing is measured."""
    return 0.0


RowTimes: TypeAlias = Mapping[str, Callable[[bytes], Sequence[Timestamp]]]
"""By the name of stored rows, a function that returns the times (epoch ms, ascending) at which a row acts by itself."""


class Alarm(Protocol):
    """The one processing-time alarm of an operator on the clock of its task."""

    def set(self, at: Timestamp | None) -> None:
        """Have ``on_processing_time`` called when the clock reaches ``at``, and at no earlier setting; None: never."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """The position of an operator object in its job, and the services that it may use."""

    name: str
    output: Output
    clock: Clock
    alarm: Alarm
    advance: Callable[[Timestamp], None] | None = None
    """Passes a watermark to the operator, as its input does; None outside of a task, for ``on_watermark``."""
    carries_watermarks: bool = True
    """True if results should carry the watermarks that they meet: a step downstream may depend on them."""
    clocked: bool = True
    """False over history, which has no clock: processing timers of users are refused."""
    has_queued: Callable[[str], bool] = lambda split: False
    """Returns True if records of a split (of any, for ``""``) have arrived and wait to be processed."""
    subtask: int = 0
    parallelism: int = 1
    key_groups: KeyGroupRange = field(default_factory=lambda: KeyGroupRange(0, DEFAULT_KEY_GROUPS))
    """The key groups of this subtask."""
    key_group_count: int = DEFAULT_KEY_GROUPS
    backend: StateBackend = field(default_factory=InMemory)
    """The backend of keyed state."""
    resource: object = None
    """The open resource for the calls of this subtask; None for a step without one."""
    buckets: SharedBuckets = field(default_factory=SharedBuckets)
    """Rate limits shared by steps of the job."""
    steady: Callable[[], float] = _no_clock
    """A clock that never goes back (s), for durations."""
    random: Callable[[], float] = lambda: 0.5
    """Returns random numbers from 0 to 1."""
    warn: Callable[[str], None] = lambda text: None
    """Logs a warning for the user."""
    pieces: PieceRunner = field(default_factory=OnePiece)
    """Runs work that may take long in pieces."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """Amount of state of an operator in one subtask. Growth with a constant number of live keys is a leak."""

    entries: int = 0
    """Stored values: one for each key (and window, and name of state)."""
    event_timers: int = 0
    """Registered event timers. One timer may serve many keys."""
    processing_timers: int = 0
    """Registered processing timers."""


class Operator(ABC):
    """One step of a pipeline, in one subtask. The docstring of the module has the contract."""

    context: OperatorContext
    output: Output
    pieces: PieceRunner

    #: The policy for records on which a user function of the step failed.
    on_error: OnError[Any] = FAIL

    #: True if a snapshot was taken after the last checkpoint.
    _snapshot_taken = False

    #: The last watermark of the input (epoch ms).
    watermark: Timestamp = MIN_TIMESTAMP

    @property
    def name(self) -> str:
        """The name of the step, from the user or from the plan."""
        return self.context.name

    def open(self, context: OperatorContext) -> None:
        """Prepare for processing; overriders call ``super().open(context)`` first."""
        self.context = context
        self.output = context.output
        self.pieces = context.pieces

    def process(self, batch: Batch[Any]) -> None:
        """Process a batch, and push the results into ``self.output``."""
        raise TypeError(f"{type(self).__name__} takes no batches")

    def on_watermark(self, timestamp: Timestamp) -> None:
        """Advance event time: push the results of that, then the watermark."""
        self.watermark = timestamp
        self.output.watermark(timestamp)

    def on_processing_time(self, now: Timestamp) -> None:
        """Handle the alarm: ``now`` (epoch ms) is at or after the time that it was set to."""

    def on_start(self) -> None:
        """Handle the start of the task: state is restored, and records in flight in the chain are processed."""

    def on_idle(self) -> None:
        """Handle an idle input."""
        self.output.idle()

    def on_active(self) -> None:
        """Handle an input that is active again."""
        self.output.active()

    def on_marker(self, marker: Marker) -> None:
        """Handle a marker: forward it after the results of all preceding records that do not wait for time."""
        self.output.marker(marker)

    def on_split_start(self, split: str) -> None:
        """Handle the start of ``split``, which the source in this chain begins to read."""

    def on_split(self, split: str) -> None:
        """Handle a change of split: the next batches are from ``split`` of the source in this chain."""

    def on_split_watermark(self, split: str, timestamp: Timestamp) -> None:
        """Handle a watermark of the source: later records of ``split`` have timestamps (epoch ms) after it."""

    def on_split_idle(self, split: str) -> None:
        """Handle idleness: the source has no records of ``split`` for now."""

    def on_split_end(self, split: str) -> None:
        """Handle the end of ``split``: no batch of it follows."""

    def on_backpressure(self, blocked: bool, now: Timestamp) -> None:
        """Handle the begin or end of backpressure or of a wait for the alignment group; ``now`` in epoch ms."""

    def end_input(self) -> None:
        """Handle the end of the input: push the results that are still held back."""

    def close(self) -> None:
        """Release what ``open`` acquired. No output is possible any more."""

    def declares(self) -> Mapping[str, bytes] | None:
        """Return the layouts of its states by name, as a snapshot has them; may be called before ``open``.

        None, the default, if they are unknown: the layouts are compared when the operator is restored.
        """
        return None

    def capture(self, *, changes: bool) -> Captured | None:
        """Capture the state in the task, to be encoded later; None for an operator without state.

        With ``changes`` the operator may capture only what has changed since the last ``capture`` or ``restore``, if it
        keeps track of changes. The next ``capture`` counts from this one, even if this one is discarded. Raises
        ``CheckpointError``.
        """
        return None

    def checkpoint(self, *, changes: bool) -> Captured | None:
        """Capture the next link of a chain of captures: as ``capture``, and complete after a ``snapshot``."""
        changes = changes and not self._snapshot_taken
        self._snapshot_taken = False
        return self.capture(changes=changes)

    def snapshot(self) -> OperatorSnapshot | None:
        """Return the complete state as data; None for an operator without state.

        The changes up to now are not captured again: the next ``checkpoint`` is complete. Raises ``CheckpointError``.
        """
        self._snapshot_taken = True
        captured = self.capture(changes=False)
        return None if captured is None else captured.encoded()

    def row_times(self) -> RowTimes | None:
        """Return the times of stored rows, if the state of some keys may be restored without that of the others.

        A row *acts* when the watermark reaches one of its times: a timer or a window fires, or state expires. Names
        without rows that act are omitted. Results and state of a key must depend on nothing else than records and rows
        of that key, operator state and the watermark. None, the default: the step needs the state of all keys.
        """
        return None

    def size(self) -> StateSize:
        """Return the amount of state. May iterate over all of it."""
        return StateSize()

    def readable_state(self) -> ReadableState | None:
        """Return its keyed state for readers, valid until ``close``; None for a step without state that can be read."""
        return None

    def stored_state(
        self, snapshot: OperatorSnapshot, context: OperatorContext
    ) -> ReadableState | None:
        """Return the keyed state in ``snapshot`` as ``readable_state`` does, without a call of code of the user.

        It is called in place of ``open``, also in a worker thread; ``context`` is that of an operator with all key
        groups, whose output is ignored. The operator is used for nothing else. Raises ``RestoreError``.
        """
        return None

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Continue from ``snapshot``. Raises ``RestoreError`` if it does not fit."""
        for _ in self.restore_in_pieces(snapshot):
            pass

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """As ``restore``; yields after some hundred rows, so that the caller can let other code run.

        No other method may be called before its end, except ``close``.
        """
        return iter(())

    def keys_of(self, batch: Batch[Any]) -> Sequence[Hashable]:
        """Return the keys of ``batch``, which a keyed step always has."""
        if batch.keys is None:
            raise InternalError(f"step {self.name!r} is keyed and got a batch without keys")
        return batch.keys

    def event_times_of(self, batch: Batch[Any]) -> list[Timestamp]:
        """Return the timestamps of ``batch``. Raises ``OperatorError`` if it has none."""
        if batch.timestamps is None:
            raise OperatorError(
                f"step {self.name!r} needs event time, but its records have no timestamps; "
                f"call .event_time(…) before .key_by(…)",
                operator=self.name,
                record=batch.values[0],
            )
        return batch.timestamps

    def emit_all(self, values: list[Any], times: list[Timestamp]) -> None:
        """Emit any number of results in batches of the usual size."""
        for batch in in_batches(values, times):
            self.output.emit(batch)

    def emit_side(self, tag: str, batch: Batch[Any], indexes: Sequence[int]) -> None:
        """Emit the records at ``indexes``, if any, to a side output."""
        if indexes:
            self.output.side(tag, batch.pick(indexes))

    def with_policy(self, on_error: OnError[Any]) -> Self:
        """Set ``on_error``, and return the operator."""
        self.on_error = on_error
        return self

    def settle(self, cause: BaseException, batch: Batch[Any], index: int) -> list[Any]:
        """Apply ``on_error`` to record ``index`` of ``batch``, on which a user function raised ``cause``.

        Return the replacement of the result, or an empty list if the record is dropped. Raises ``OperatorError`` as
        ``settle_record`` does.
        """
        cause = _cause_at(cause, batch, index)
        error = self._described(cause, batch, index)
        met = None if batch.watermarks is None else batch.watermarks[index]
        return self.settle_record(cause, error, batch.values[index], error.timestamp, met)

    def settle_record(
        self,
        cause: BaseException,
        error: OperatorError,
        value: object,
        timestamp: Timestamp | None,
        met: Timestamp | None = None,
    ) -> list[Any]:
        """Apply ``on_error`` to ``value``, on which a user function raised ``cause``; as ``settle``.

        ``met`` is the watermark that the record meets, if its batch has such a column.

        Raises ``error`` with the policy ``Fail``, for errors of aflow, mistakes in the pipeline, and a ``cause`` that
        is no ``Exception``. Raises ``OperatorError`` for a failure of ``Fallback``.
        """
        policy = self.on_error
        if isinstance(policy, Fail) or not is_of_record(cause):
            raise error from cause
        if isinstance(policy, Fallback):
            return [self._replaced(policy, cause, value, error)]
        times = None if timestamp is None else [timestamp]
        marks = None if met is None else [met]
        if isinstance(policy, DeadLetter):
            now = self.context.clock.now()
            letter = FailedRecord(value, type(cause).__name__, str(cause), 1, self.name, now)
            self.output.side(policy.tag.name, Batch([letter], times, None, marks))
        else:
            self.output.side(DROPPED, Batch([value], times, None, marks))
        return []

    def _replaced(
        self, policy: Fallback[Any], cause: Exception, value: object, error: OperatorError
    ) -> Any:
        try:
            result = policy.result(value, cause)
            refuse_coroutine(result, "Fallback()")
        except RAISED as exc:
            raise OperatorError.of(
                self.name,
                exc,
                record=value,
                key=error.key,
                timestamp=error.timestamp,
                after=", in its Fallback",
            ) from exc
        return result

    def index_of(self, batch: Batch[Any], values: Iterator[object]) -> int:
        """Return the index of the last record of ``values``, which must be a list iterator over ``batch.values``."""
        return len(batch) - _left(values) - 1

    def failure(
        self, cause: BaseException, batch: Batch[Any], values: Iterator[object]
    ) -> OperatorError:
        """Describe ``cause``, raised by a user function for the last record of iterator ``values``.

        ``values`` must be the list iterator over ``batch.values`` of the failed loop: its remaining length tells the
        record, so that the hot loops need no counter.
        """
        return self.failure_at(cause, batch, self.index_of(batch, values))

    def failure_at(self, cause: BaseException, batch: Batch[Any], index: int) -> OperatorError:
        """Describe ``cause``, raised by a user function for record ``index`` of ``batch``."""
        return self._described(_cause_at(cause, batch, index), batch, index)

    def _described(self, cause: BaseException, batch: Batch[Any], index: int) -> OperatorError:
        return OperatorError.of(
            self.name,
            cause,
            record=batch.values[index],
            key=None if batch.keys is None else batch.keys[index],
            timestamp=None if batch.timestamps is None else batch.timestamps[index],
        )


def _cause_at(cause: BaseException, batch: Batch[Any], index: int) -> BaseException:
    """Return the error of an invalid key, which fails the lookup of its state with a ``TypeError``; else ``cause``."""
    if batch.keys is None or not isinstance(cause, TypeError):
        return cause
    return unsupported(batch.keys[index]) or cause


def is_of_record(cause: BaseException) -> TypeGuard[Exception]:
    """Return True if a policy applies to ``cause``: not to errors of aflow, mistakes in the pipeline, cancellations."""
    return isinstance(cause, Exception) and not isinstance(cause, AflowError | MisuseError)


class TwoInputOperator(Operator):
    """One step that reads two streams; the edges of its node are the left input and the right one.

    ``process_left`` and ``process_right`` are called in the order of arrival. Time is common: ``on_watermark`` gets the
    smaller watermark of the two inputs, ``on_idle`` is called when both are idle. So both inputs have reached a
    watermark, and results that must not depend on the order of arrival wait for it.
    """

    @abstractmethod
    def process_left(self, batch: Batch[Any]) -> None:
        """Process a batch of the left input."""

    @abstractmethod
    def process_right(self, batch: Batch[Any]) -> None:
        """Process a batch of the right input."""


def unsupported(key: Hashable) -> Exception | None:
    """Return the error for a ``key`` that cannot be one, which is clearer than that of a dict; None for a valid key."""
    try:
        check_key(key)
    except UnsupportedKey as exc:
        return exc
    return None


def _left(values: Iterator[object]) -> int:
    """Return the number of remaining items of a list iterator."""
    hint = getattr(values, "__length_hint__", None)
    if hint is None:
        raise TypeError(f"need an iterator over a list, not {type(values).__name__}")
    return int(hint())
