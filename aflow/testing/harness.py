"""A harness for steps with one input: push, time, snapshot and restore by hand, without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar, overload

from aflow.errors import FlowDefinitionError
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Instant, to_timestamp
from aflow.operators.base import Operator
from aflow.operators.keyed_function import (
    KeyedProcess,
    KeyedProcessOperator,
    check_keyed_process,
)
from aflow.operators.process import ProcessFunction, ProcessOperator, check_process_function
from aflow.state.backend_choice import StateBackend
from aflow.testing.step_harness import Element, Mode, StepHarness

__all__ = ["Element", "Mode", "OperatorHarness"]

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
V = TypeVar("V")


class OperatorHarness(StepHarness[Operator, U], Generic[T, U]):
    """Drive one step, values of ``T`` in and ``U`` out, in one subtask and without an event loop.

    ``OperatorHarness.of(function)`` is for process functions; ``factory`` makes any other operator. ``key`` returns the
    key of a value, for keyed steps. The clock starts at ``start``. With a ``parallelism`` above 1 the step is subtask
    ``subtask`` of as many, owns its share of the ``key_groups``, and rejects keys of the others. ``backend`` is where
    its state is kept; default: in memory. Errors of the step are raised by the call.
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
        backend: StateBackend | None = None,
    ) -> None:
        super().__init__(
            factory,
            mode=mode,
            name=name,
            start=start,
            subtask=subtask,
            parallelism=parallelism,
            key_groups=key_groups,
            backend=backend,
        )
        self._key = key
        #: The last watermark that was pushed.
        self._watermark = MIN_TIMESTAMP

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
        """Return a harness for a process function; ``key`` and ``key_type`` are those of ``key_by(key, of=key_type)``.

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

    # --------------------------------------------------------------------------------- input

    def push(self, value: T, timestamp: Instant | None = None) -> None:
        """Process one record, with an aware ``datetime`` or epoch ms as its timestamp, or without one."""
        self.push_batch([value], None if timestamp is None else [timestamp])

    def push_batch(self, values: Sequence[T], timestamps: Sequence[Instant] | None = None) -> None:
        """Process records as one batch: at least one, with a timestamp for each or for none."""
        batch = self._batch(values, timestamps, self._key)
        self._step(lambda: self.operator.process(batch))

    def watermark(self, at: Instant) -> None:
        """Advance event time to ``at``. Raises ``FlowDefinitionError`` if that is before the last watermark."""
        timestamp = to_timestamp(at, what="watermark")
        if timestamp < self._watermark:
            raise FlowDefinitionError(
                f"a watermark only grows, and {timestamp} is before {self._watermark}"
            )
        self._watermark = timestamp
        self._step(lambda: self.operator.on_watermark(timestamp))

    def idle(self) -> None:
        """Mark the input as idle."""
        self._step(lambda: self.operator.on_idle())

    def active(self) -> None:
        """Mark the input as active again."""
        self._step(lambda: self.operator.on_active())

    def end(self) -> None:
        """End the input as a bounded source does, with the last watermark. Afterwards no record can be pushed."""
        self._check_running()
        self._used = True
        self.operator.on_watermark(MAX_TIMESTAMP)
        self.operator.end_input()
        self._ended = True
