"""One step of a pipeline on the workbench: pushed, timed, snapshotted and restored by hand, without an event loop.

The harness stands where the runtime stands: it makes the operator, gives it a context, calls it one step at a time and
writes down what it emits. Its clock stands still until the test moves it, and rings the operator's alarm on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from enum import Enum
from itertools import repeat
from types import TracebackType
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

from aflow.errors import FlowDefinitionError, JobStopped, shown
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, key_group, ranges, subtask_of
from aflow.model.tags import Tag
from aflow.model.time import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Instant,
    Timestamp,
    to_millis,
    to_timestamp,
)
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.keyed_process import (
    KeyedProcess,
    KeyedProcessOperator,
    check_keyed_process,
)
from aflow.operators.process import ProcessFunction, ProcessOperator, check_process_function
from aflow.state.snapshot import OperatorSnapshot, merge
from aflow.testing.records import At

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
V = TypeVar("V")

#: Rings of the alarm without a millisecond passing after which the operator is taken to be ringing for ever.
_MOST_RINGS: Final = 1000

Element: TypeAlias = At[U] | Watermark | Idle | Active
"""What a step emits: a record with its timestamp, or what stands between records."""


class Mode(Enum):
    """How a harness drives: ``@pytest.mark.parametrize("mode", Mode)`` runs a test in both ways."""

    STRAIGHT = "straight"
    """One operator from the first step to the last."""
    RESTORING = "restoring"
    """After each step a new operator goes on from the snapshot of the old one. Results must be the same, but for
    the order of keys when several have results at once: a snapshot has them in an order of its own."""


class OperatorHarness(Generic[T, U]):
    """Drives one step, values of ``T`` in and ``U`` out, in one subtask and without an event loop.

    ``OperatorHarness.of(function)`` is for process functions; ``factory`` makes any other operator. ``key`` gives the
    key of a value, for keyed steps. The clock starts at ``start``. With a ``parallelism`` above 1 the step is subtask
    ``subtask`` of as many, owns its share of the ``key_groups``, and keys of the others are refused. What the step
    raises, the call raises.
    """

    def __init__(
        self,
        factory: Callable[[], Operator],
        *,
        key: Callable[[T], Hashable] | None = None,
        mode: Mode = Mode.STRAIGHT,
        name: str = "step",
        start: Instant = 0,
        subtask: int = 0,
        parallelism: int = 1,
        key_groups: int = DEFAULT_KEY_GROUPS,
    ) -> None:
        shares = ranges(key_groups, parallelism)
        if not 0 <= subtask < parallelism:
            raise FlowDefinitionError(f"there is no subtask {subtask} of {parallelism}")
        self._factory = factory
        self._key = key
        self._mode = mode
        self._recorder = _Recorder()
        self._time = _ManualTime(to_timestamp(start, what="start"))
        self._context = OperatorContext(
            name=name,
            output=self._recorder,
            clock=self._time,
            alarm=self._time,
            subtask=subtask,
            parallelism=parallelism,
            key_groups=shares[subtask],
            key_group_count=key_groups,
        )
        #: The last watermark that was pushed.
        self._watermark = MIN_TIMESTAMP
        #: How much of the output ``take`` has given.
        self._taken = 0
        self._used = False
        self._ended = False
        self._closed = False
        #: The operator at work; another one after each restart.
        self.operator = self._new()

    @overload
    @staticmethod
    def of(
        function: KeyedProcess[K, S, V],
        *,
        key: Callable[[S], K],
        key_type: type[K] | None = None,
        mode: Mode = Mode.STRAIGHT,
        start: Instant = 0,
    ) -> OperatorHarness[S, V]: ...

    @overload
    @staticmethod
    def of(
        function: ProcessFunction[S, V], *, mode: Mode = Mode.STRAIGHT, start: Instant = 0
    ) -> OperatorHarness[S, V]: ...

    @staticmethod
    def of(
        function: KeyedProcess[K, S, V] | ProcessFunction[S, V],
        *,
        key: Callable[[S], K] | None = None,
        key_type: type[K] | None = None,
        mode: Mode = Mode.STRAIGHT,
        start: Instant = 0,
    ) -> OperatorHarness[S, V]:
        """A harness for a process function; ``key`` and ``key_type`` are what ``key_by(key, of=key_type)`` is given.

        Raises ``FlowDefinitionError`` as the pipeline would, and for a ``KeyedProcess`` without ``key``.
        """
        if isinstance(function, KeyedProcess):
            if key is None:
                raise FlowDefinitionError(
                    f"{type(function).__name__} is a KeyedProcess and needs key=…, as in key_by(…)"
                )
            check_keyed_process(function)
            return OperatorHarness(
                lambda: KeyedProcessOperator(function, key_type), key=key, mode=mode, start=start
            )
        check_process_function(function)
        return OperatorHarness(lambda: ProcessOperator(function), mode=mode, start=start)

    # --------------------------------------------------------------------------------- what goes in

    def push(self, value: T, timestamp: Instant | None = None) -> None:
        """Hand over one record, with an aware ``datetime`` or epoch ms as its timestamp, or without one."""
        self.push_batch([value], None if timestamp is None else [timestamp])

    def push_batch(self, values: Sequence[T], timestamps: Sequence[Instant] | None = None) -> None:
        """Hand over records as one batch: at least one, with a timestamp for each or for none."""
        if not values or (timestamps is not None and len(timestamps) != len(values)):
            count = "no" if timestamps is None else len(timestamps)
            raise FlowDefinitionError(
                f"a batch has at least one value and a timestamp for each or for none, not {len(values)} values "
                f"and {count} timestamps"
            )
        times = None if timestamps is None else [to_timestamp(at) for at in timestamps]
        batch = Batch(list(values), times, self._keys(values))
        self._step(lambda: self.operator.process(batch))

    def watermark(self, at: Instant) -> None:
        """Let event time advance to ``at``. Raises ``FlowDefinitionError`` if that is behind the last watermark."""
        timestamp = to_timestamp(at, what="watermark")
        if timestamp < self._watermark:
            raise FlowDefinitionError(
                f"a watermark only grows, and {timestamp} is behind {self._watermark}"
            )
        self._watermark = timestamp
        self._step(lambda: self.operator.on_watermark(timestamp))

    def idle(self) -> None:
        """Say that the input is idle."""
        self._step(lambda: self.operator.on_idle())

    def active(self) -> None:
        """Say that the input is active again."""
        self._step(lambda: self.operator.on_active())

    def advance_processing_time(self, to: Instant | timedelta) -> None:
        """Move the clock to a moment, or on by a ``timedelta``; the alarm rings on the way, each time at its moment.

        Raises ``FlowDefinitionError`` if that is in the past.
        """
        self._check_running()
        now = self._time.at
        if isinstance(to, timedelta):
            until = now + to_millis(to, what="the step of the clock")
        else:
            until = to_timestamp(to, what="the new time of the clock")
        if until < now:
            raise FlowDefinitionError(f"the clock says {now} and does not go back to {until}")
        self._used = True
        self._ring_until(until)
        self._time.at = until

    def end(self) -> None:
        """End the input as a bounded source does, with the last watermark. After that nothing can be pushed."""

        def finish() -> None:
            self.operator.on_watermark(MAX_TIMESTAMP)
            self.operator.end_input()

        self._check_running()
        self._used = True
        finish()
        self._ended = True

    # ------------------------------------------------------------------------- state and life cycle

    @property
    def now(self) -> Timestamp:
        """What the clock says (epoch ms)."""
        return self._time.at

    def snapshot(self) -> OperatorSnapshot | None:
        """The step's state as data; None if it has none."""
        return self.operator.snapshot()

    def restore(self, *snapshots: OperatorSnapshot) -> None:
        """Begin with what ``snapshots`` hold: one, or those of all subtasks of the step, whatever their number was.

        Raises ``RestoreError`` if they do not fit, and ``FlowDefinitionError`` once something was pushed.
        """
        if self._used:
            raise FlowDefinitionError("restore() comes before everything else; make a new harness")
        self._used = True
        self.operator.restore(merge(snapshots))

    def restart(self) -> None:
        """Replace the operator as after a failure: snapshot, close, make a new one, restore. The clock goes on.

        The new one has seen no watermark, as in a job that was restored. Without a snapshot it begins with nothing.
        """
        self._check_running()
        snapshot = self.operator.snapshot()
        self.operator.close()
        self._time.alarm = None
        self._recorder.restarted()
        self.operator = self._new()
        if snapshot is not None:
            self.operator.restore(snapshot)

    def close(self) -> None:
        """Close the operator; also done by leaving a ``with`` block. Can be called again."""
        if not self._closed:
            self._closed = True
            self.operator.close()

    def __enter__(self) -> OperatorHarness[T, U]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------------- what came out

    @property
    def output(self) -> list[Element[U]]:
        """Everything emitted so far, in order: ``At(value, timestamp)``, ``Watermark``, ``Idle`` and ``Active``."""
        return list(self._recorder.emitted)

    @property
    def values(self) -> list[U]:
        """The values of all records emitted so far."""
        return _values(self.output)

    def take(self) -> list[Element[U]]:
        """What was emitted since the last call (``output`` and ``values`` keep it)."""
        taken = self.output[self._taken :]
        self._taken += len(taken)
        return taken

    def side(self, tag: Tag[S]) -> list[At[S]]:
        """Everything sent to side output ``tag`` so far; late records of windows are in ``Tag("late")``."""
        return list(self._recorder.sides.get(tag.name, ()))

    # --------------------------------------------------------------------------------------- inside

    def _new(self) -> Operator:
        operator = self._factory()
        operator.open(self._context)
        return operator

    def _step(self, act: Callable[[], None]) -> None:
        self._check_running()
        self._used = True
        act()
        self._stepped()
        self._ring_until(self._time.at)

    def _stepped(self) -> None:
        if self._mode is Mode.RESTORING:
            self.restart()

    def _ring_until(self, until: Timestamp) -> None:
        """Ring the alarm whenever it is due up to ``until``; one that was set to the past rings now."""
        time = self._time
        rings = 0
        while time.alarm is not None and time.alarm <= until:
            rings = rings + 1 if time.alarm <= time.at else 1
            if rings > _MOST_RINGS:
                raise AssertionError(
                    f"step {self._context.name!r} set its alarm {_MOST_RINGS:,} times to a moment that has come "
                    f"already ({time.at}); a timer that sets itself again must set a later one"
                )
            time.at = max(time.at, time.alarm)
            time.alarm = None
            self.operator.on_processing_time(time.at)
            self._stepped()

    def _check_running(self) -> None:
        if self._ended or self._closed:
            what = "closed" if self._closed else "ended"
            raise JobStopped(f"this harness was {what} and does nothing more; make a new one")

    def _keys(self, values: Sequence[T]) -> list[Hashable] | None:
        if self._key is None:
            return None
        keys = [self._key(value) for value in values]
        context = self._context
        if context.parallelism > 1:
            for key in keys:
                group = key_group(key, context.key_group_count)
                if group not in context.key_groups:
                    owner = subtask_of(group, context.key_group_count, context.parallelism)
                    raise FlowDefinitionError(
                        f"key {shown(key)} never comes to subtask {context.subtask}: it belongs to subtask {owner}"
                    )
        return keys


class _ManualTime:
    """A clock, and the alarm on it."""

    def __init__(self, at: Timestamp) -> None:
        self.at = at
        self.alarm: Timestamp | None = None

    def now(self) -> Timestamp:
        return self.at

    def set(self, at: Timestamp | None) -> None:
        self.alarm = at


class _Recorder:
    """An ``Output`` that writes down what is emitted, and insists that it keeps the contract."""

    def __init__(self) -> None:
        # What an operator emits is known to its author only, so U of the harness is taken at its word.
        self.emitted: list[Any] = []
        self.sides: dict[str, list[Any]] = {}
        #: The last watermark that was emitted since the operator was made.
        self._watermark = MIN_TIMESTAMP

    def emit(self, batch: Batch[Any]) -> None:
        self.emitted.extend(_records(batch))

    def watermark(self, timestamp: Timestamp) -> None:
        if timestamp < self._watermark:
            raise AssertionError(
                f"the step sent watermark {timestamp} after {self._watermark}; watermarks only grow"
            )
        self._watermark = timestamp
        self.emitted.append(Watermark(timestamp))

    def idle(self) -> None:
        self.emitted.append(IDLE)

    def active(self) -> None:
        self.emitted.append(ACTIVE)

    def side(self, tag: str, batch: Batch[Any]) -> None:
        self.sides.setdefault(tag, []).extend(_records(batch))

    def restarted(self) -> None:
        """Watermarks begin anew, as they do for everybody in a job that was restored."""
        self._watermark = MIN_TIMESTAMP


def _records(batch: Batch[Any]) -> list[At[Any]]:
    if not batch.values:
        raise AssertionError("the step emitted an empty batch; emit nothing instead")
    times = batch.timestamps
    if times is not None and len(times) != len(batch):
        raise AssertionError(f"the step emitted {len(batch)} values with {len(times)} timestamps")
    return [At(value, at) for value, at in zip(batch.values, times or repeat(None), strict=False)]


def _values(elements: Sequence[Element[U]]) -> list[U]:
    return [one.value for one in elements if isinstance(one, At)]
