"""A harness for steps with two inputs: push and time each input by hand, without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar, overload

from aflow.errors import FlowDefinitionError, JobStopped
from aflow.machines.watermarks.valve import WatermarkValve
from aflow.model.elements import Active, Idle, Watermark
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import MAX_TIMESTAMP, Instant, Timestamp, to_timestamp
from aflow.operators.base import TwoInputOperator
from aflow.operators.broadcast_process import (
    BroadcastProcess,
    BroadcastProcessOperator,
    check_broadcast_process,
)
from aflow.operators.keyed_function import CoProcess, CoProcessOperator, check_co_process
from aflow.testing.step_harness import Mode, StepHarness

__all__ = ["TwoInputHarness"]

L = TypeVar("L")
R = TypeVar("R")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
B = TypeVar("B")
V = TypeVar("V")

#: The inputs by number, as in the node of a flow.
_LEFT: Final = 0
_RIGHT: Final = 1
_SIDES: Final = ("left", "right")


class TwoInputHarness(StepHarness[TwoInputOperator, U], Generic[L, R, U]):
    """Drive one step that reads two streams: values of ``L`` and of ``R`` in, ``U`` out, without an event loop.

    ``TwoInputHarness.of(function)`` is for process functions of two streams; ``factory`` makes any other operator.
    ``left_key`` and ``right_key`` return the key of a value, for inputs that are keyed. The two inputs are combined as
    in a job: the step receives the smaller watermark, an idle input does not hold it back, and the step is idle when
    both inputs are. All else is as with ``OperatorHarness``.

    >>> import aflow as af
    >>> from aflow.testing import TwoInputHarness
    >>> class Quote(af.CoProcess[str, float, int, float]):
    ...     price = af.ValueState("price", of=float)
    ...     def process_left(self, value, ctx):
    ...         ctx.state(self.price).set(value)
    ...     def process_right(self, value, ctx):
    ...         return [value * ctx.state(self.price).get(0.0)]
    >>> harness = TwoInputHarness.of(Quote(), left_key=lambda price: "EUR", right_key=lambda amount: "EUR")
    >>> harness.left(1.25, 100)
    >>> harness.right(4, 200)
    >>> harness.left_watermark(100)
    >>> harness.right_watermark(200)
    >>> harness.output
    [At(value=5.0, timestamp=200), Watermark(timestamp=100)]
    """

    def __init__(
        self,
        factory: Callable[[], TwoInputOperator],
        *,
        left_key: Callable[[L], Hashable] | None = None,
        right_key: Callable[[R], Hashable] | None = None,
        mode: Mode = Mode.STRAIGHT,
        name: str = "step",
        start: Instant = 0,
        subtask: int = 0,
        parallelism: int = 1,
        key_groups: int = DEFAULT_KEY_GROUPS,
    ) -> None:
        super().__init__(
            factory,
            mode=mode,
            name=name,
            start=start,
            subtask=subtask,
            parallelism=parallelism,
            key_groups=key_groups,
        )
        self._left_key = left_key
        self._right_key = right_key
        self._valve = WatermarkValve(2)
        #: The inputs that have ended.
        self._ended_inputs: set[int] = set()

    @overload
    @staticmethod
    def of(
        function: CoProcess[K, A, B, V],
        *,
        left_key: Callable[[A], K],
        right_key: Callable[[B], K],
        key_type: type[K] | None = None,
        mode: Mode = Mode.STRAIGHT,
        start: Instant = 0,
    ) -> TwoInputHarness[A, B, V]: ...

    @overload
    @staticmethod
    def of(
        function: BroadcastProcess[K, A, B, V],
        *,
        left_key: Callable[[A], K],
        key_type: type[K] | None = None,
        mode: Mode = Mode.STRAIGHT,
        start: Instant = 0,
    ) -> TwoInputHarness[A, B, V]: ...

    @overload
    @staticmethod
    def of(
        function: BroadcastProcess[None, A, B, V],
        *,
        mode: Mode = Mode.STRAIGHT,
        start: Instant = 0,
    ) -> TwoInputHarness[A, B, V]: ...

    @staticmethod
    def of(
        function: CoProcess[Any, A, B, V] | BroadcastProcess[Any, A, B, V],
        *,
        left_key: Callable[[A], Hashable] | None = None,
        right_key: Callable[[B], Hashable] | None = None,
        key_type: type[Hashable] | None = None,
        mode: Mode = Mode.STRAIGHT,
        start: Instant = 0,
    ) -> TwoInputHarness[A, B, V]:
        """Return a harness for a process function of two streams.

        A ``CoProcess`` needs both keys. The left input of a ``BroadcastProcess`` has keys if ``left_key`` is given; the
        right one, with the control records, never has. ``key_type`` is that of ``key_by(…, of=key_type)``. Raises
        ``FlowDefinitionError`` as the pipeline would, and for missing or superfluous keys.
        """
        if isinstance(function, BroadcastProcess):
            if right_key is not None:
                raise FlowDefinitionError(
                    f"{type(function).__name__} is a BroadcastProcess, whose control records have no keys; "
                    f"leave right_key out"
                )
            keyed = left_key is not None
            check_broadcast_process(function, keyed=keyed)
            return TwoInputHarness(
                lambda: BroadcastProcessOperator(function, key_type, keyed=keyed),
                left_key=left_key,
                mode=mode,
                start=start,
            )
        check_co_process(function)
        if left_key is None or right_key is None:
            raise FlowDefinitionError(
                f"{type(function).__name__} is a CoProcess and needs left_key=… and right_key=…, as in key_by(…)"
            )
        return TwoInputHarness(
            lambda: CoProcessOperator(function, key_type),
            left_key=left_key,
            right_key=right_key,
            mode=mode,
            start=start,
        )

    def left(self, value: L, timestamp: Instant | None = None) -> None:
        """Process one record of the left input, with an aware ``datetime`` or epoch ms as its timestamp, or none."""
        self.left_batch([value], None if timestamp is None else [timestamp])

    def right(self, value: R, timestamp: Instant | None = None) -> None:
        """Process one record of the right input."""
        self.right_batch([value], None if timestamp is None else [timestamp])

    def left_batch(self, values: Sequence[L], timestamps: Sequence[Instant] | None = None) -> None:
        """Process records of the left input as one batch: at least one, with a timestamp for each or for none."""
        self._check_open(_LEFT)
        batch = self._batch(values, timestamps, self._left_key)
        self._step(lambda: self.operator.process_left(batch))

    def right_batch(self, values: Sequence[R], timestamps: Sequence[Instant] | None = None) -> None:
        """Process records of the right input as one batch."""
        self._check_open(_RIGHT)
        batch = self._batch(values, timestamps, self._right_key)
        self._step(lambda: self.operator.process_right(batch))

    def watermark(self, at: Instant) -> None:
        """Advance event time to ``at`` on both inputs, the left one first.

        Raises ``FlowDefinitionError``, without any effect, if that is before the last watermark of either.
        """
        for channel in (_LEFT, _RIGHT):
            self._checked(channel, at)
        self.left_watermark(at)
        self.right_watermark(at)

    def left_watermark(self, at: Instant) -> None:
        """Advance event time to ``at`` on the left input; the step receives the smaller watermark if it advances.

        A watermark of an idle input is ignored. Raises ``FlowDefinitionError`` if ``at`` is before the last one.
        """
        self._watermark_of(_LEFT, at)

    def right_watermark(self, at: Instant) -> None:
        """Advance event time to ``at`` on the right input, as ``left_watermark`` does on the left."""
        self._watermark_of(_RIGHT, at)

    def idle(self) -> None:
        """Mark both inputs as idle."""
        self.left_idle()
        self.right_idle()

    def active(self) -> None:
        """Mark both inputs as active again."""
        self.left_active()
        self.right_active()

    def left_idle(self) -> None:
        """Mark the left input as idle: until it is active the watermark is that of the right one."""
        self._pass_elements(self._valve.on_idle(_LEFT))

    def right_idle(self) -> None:
        """Mark the right input as idle: until it is active the watermark is that of the left one."""
        self._pass_elements(self._valve.on_idle(_RIGHT))

    def left_active(self) -> None:
        """Mark the left input as active again."""
        self._pass_elements(self._valve.on_active(_LEFT))

    def right_active(self) -> None:
        """Mark the right input as active again."""
        self._pass_elements(self._valve.on_active(_RIGHT))

    def left_end(self) -> None:
        """End the left input as a bounded source does, with its last watermark; the right one continues."""
        self._end_of(_LEFT)

    def right_end(self) -> None:
        """End the right input as a bounded source does, with its last watermark; the left one continues."""
        self._end_of(_RIGHT)

    def end(self) -> None:
        """End both inputs unless they have ended. Afterwards no record can be pushed."""
        self._check_running()
        for channel in (_LEFT, _RIGHT):
            if channel not in self._ended_inputs:
                self._end_of(channel)

    def _watermark_of(self, channel: int, at: Instant) -> None:
        combined = self._valve.on_watermark(channel, self._checked(channel, at))
        if combined is not None:
            self._pass_watermark(combined)

    def _checked(self, channel: int, at: Instant) -> Timestamp:
        """Return ``at`` as epoch ms. Raises ``FlowDefinitionError`` if it is before the last watermark of the input."""
        self._check_open(channel)
        timestamp = to_timestamp(at, what="watermark")
        last = self._valve.watermark_of(channel)
        if timestamp < last:
            raise FlowDefinitionError(
                f"a watermark only grows, and {timestamp} is before {last} of the {_SIDES[channel]} input"
            )
        return timestamp

    def _end_of(self, channel: int) -> None:
        self._check_open(channel)
        self._watermark_of(channel, MAX_TIMESTAMP)
        self._pass_elements(self._valve.on_end(channel))
        self._ended_inputs.add(channel)
        if len(self._ended_inputs) == len(_SIDES):
            self.operator.end_input()
            self._ended = True

    def _check_open(self, channel: int) -> None:
        self._check_running()
        if channel in self._ended_inputs:
            raise JobStopped(f"the {_SIDES[channel]} input of this harness has ended")

    def _pass_elements(self, elements: Sequence[Watermark | Idle | Active]) -> None:
        """Pass the combined elements of both inputs to the step."""
        self._check_running()
        for element in elements:
            match element:
                case Watermark(timestamp):
                    self._pass_watermark(timestamp)
                case Idle():
                    self._step(lambda: self.operator.on_idle())
                case Active():
                    self._step(lambda: self.operator.on_active())

    def _pass_watermark(self, timestamp: Timestamp) -> None:
        self._step(lambda: self.operator.on_watermark(timestamp))
