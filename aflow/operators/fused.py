"""Several maps, and at most one filter among them, as a single loop.

``map → filter → map`` of a chain becomes one loop without lists between the steps, which saves 8 % of a chain of
trivial functions (``python -m bench stateless``). The source of the loop is generated once for each shape. Each step is
on a line of its own and keeps its result in a variable of its own: so the traceback of an error identifies the failed
step, and the frame has the record that the step got.

An error of one record ends the loop, which is then entered again with the same iterator: no function is called twice
for a record. If the policy of the failed step replaces its result, the record passes the remaining steps alone.

At most one filter, because then the counters of all steps follow from the lengths of input and output. A filter over
records with timestamps runs step by step: the timestamps would have to be filtered too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Protocol, TypeAlias

from aflow.errors import InternalError
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, Operator, Output
from aflow.operators.first_call import FirstCall
from aflow.operators.stateless import FilterOperator, MapOperator, columns_of, watermarks_of

Fusible: TypeAlias = MapOperator | FilterOperator

Loop: TypeAlias = Callable[..., None]
"""Called with an iterator over values, the list for the results, and the function of each step."""

#: File name of the loops in tracebacks.
FILE: Final = "<steps of aflow, fused>"


class Counters(Protocol):
    """Counters of one step."""

    records_in: int
    batches_in: int
    records_out: int
    watermark: Timestamp
    idle: bool


class FusedOperator(Operator):
    """Runs ``steps`` as one. ``counters`` are theirs; the runtime counts the first input and the last output.

    The steps are opened; the fused operator needs no context of its own.
    """

    def __init__(
        self, steps: Sequence[Fusible], counters: Sequence[Counters], output: Output
    ) -> None:
        """``output`` is that of the last step."""
        self._steps = steps
        self._counters = counters
        self._functions = self._current_functions()
        self._shape = "".join("f" if isinstance(step, FilterOperator) else "m" for step in steps)
        #: The index of the filter, or the number of steps without one.
        self._filter_at = self._shape.find("f") if "f" in self._shape else len(steps)
        self._loop = loop(self._shape)
        self.output = output

    @property
    def name(self) -> str:
        """The name of the first step."""
        return self._steps[0].name

    def process(self, batch: Batch[Any]) -> None:
        has_columns = batch.timestamps is not None or batch.keys is not None
        if has_columns and self._filter_at < len(self._steps):
            self._steps[0].process(
                batch
            )  # and from step to step, which are linked as if they were not fused
            return
        # Hot path (benchmark `stateless`).
        if self._first_calls:
            self._functions = self._current_functions()
        left = iter(batch.values)
        values: list[Any] = []
        skipped: list[int] = []
        lost: dict[int, int] = {}
        done = len(batch.values)
        try:
            while True:
                try:
                    self._loop(left, values, *self._functions)
                    break
                except RAISED as exc:
                    done = index = self.index_of(batch, left)
                    self._settle_in_step(exc, batch, index, values, skipped, lost)
                    done = len(batch.values)
        finally:
            # Also before the job fails: then these are the results of the records before the failed one.
            self._count(done, len(values), lost)
            if values:
                times, keys = columns_of(batch, done, skipped)
                met = watermarks_of(batch, done, skipped)
                self.output.emit(Batch(values, times, keys, met))

    def _current_functions(self) -> list[Callable[[Any], Any]]:
        """Return the functions of the steps. A step replaces its ``FirstCall`` after its first record."""
        functions = [step.function for step in self._steps]
        self._first_calls = any(isinstance(function, FirstCall) for function in functions)
        return functions

    def name_at(self, line: int) -> str:
        """Return the name of the step that is called on a line of the loop."""
        return self._steps[step_at(self._shape, line)].name

    def on_watermark(self, timestamp: Timestamp) -> None:
        for counters in self._counters:
            counters.watermark = timestamp
        super().on_watermark(timestamp)

    def on_idle(self) -> None:
        self._count_idle(True)
        super().on_idle()

    def on_active(self) -> None:
        self._count_idle(False)
        super().on_active()

    def _count_idle(self, idle: bool) -> None:
        for counters in self._counters:
            counters.idle = idle

    def _count(self, entered: int, left: int, lost: dict[int, int]) -> None:
        """Count the records between the steps."""
        if lost:
            self._count_with_losses(entered, left, lost)
            return
        for index in range(len(self._counters) - 1):
            self._count_step(index, entered if index < self._filter_at else left)

    def _count_with_losses(self, entered: int, left: int, lost: dict[int, int]) -> None:
        """Count as ``_count``, after steps have ``lost`` records, by their index."""
        for index in range(len(self._counters) - 1):
            if index < self._filter_at:
                entered -= lost.get(index, 0)
                self._count_step(index, entered)
            else:
                after = sum(count for step, count in lost.items() if step > index)
                self._count_step(index, left + after)

    def _count_step(self, index: int, records: int) -> None:
        self._counters[index].records_out += records
        if records:
            self._counters[index + 1].records_in += records
            self._counters[index + 1].batches_in += 1

    def _settle_in_step(
        self,
        cause: BaseException,
        batch: Batch[Any],
        index: int,
        values: list[Any],
        skipped: list[int],
        lost: dict[int, int],
    ) -> None:
        """Apply the policy of the step that failed on record ``index``. Raises ``OperatorError``.

        If it replaces the result, pass that to the remaining steps, whose policies apply to it, too. ``lost`` counts
        dropped records by the index of their step.
        """
        original = batch.slice(index, index + 1)
        start = 0
        while True:
            at, record = self._failed_call(cause, start)
            step = self._steps[at]
            one = Batch([record], original.timestamps, original.keys, original.watermarks)
            if isinstance(step, FilterOperator):
                if not step.settle_kept(cause, one, 0):
                    return
            elif made := step.settle(cause, one, 0):
                record = made[0]
            else:
                skipped.append(index)
                lost[at] = lost.get(at, 0) + 1
                return
            start = at + 1
            if start == len(self._steps):
                values.append(record)
                return
            try:
                loop(self._shape[start:])(iter([record]), values, *self._functions[start:])
                return
            except RAISED as exc:
                cause = exc

    def _failed_call(self, cause: BaseException, start: int) -> tuple[int, object]:
        """Return the index of the step whose function raised ``cause``, and the record that it got.

        ``start`` is the index of the first step of the loop that failed.
        """
        trace = cause.__traceback__
        # The outermost frame: a user function may raise an error of an older call, or use a flow of its own.
        while trace is not None and trace.tb_frame.f_code.co_filename != FILE:
            trace = trace.tb_next
        if trace is None:
            raise InternalError(f"step {self.name!r} failed outside of its functions") from cause
        shape = self._shape[start:]
        at = step_at(shape, trace.tb_lineno)
        return start + at, trace.tb_frame.f_locals[variables(shape)[at]]


@cache
def loop(shape: str) -> Loop:
    """Return the loop for a ``shape`` such as ``mfm``: ``m`` a map, ``f`` a filter (at most one)."""
    namespace: dict[str, Any] = {}
    exec(compile(source(shape), FILE, "exec"), namespace)
    made: Loop = namespace["run"]
    return made


def variables(shape: str) -> list[str]:
    """Return the name of the variable with the input of each step: a filter's output is its input."""
    return [f"v{shape[:index].count('m')}" for index in range(len(shape))]


def source(shape: str) -> str:
    """Return the source of the function: the third line is the first step, and each step has one line."""
    functions = ", ".join(f"f{index}" for index in range(len(shape)))
    lines = [f"def run(left, values, {functions}):", " for v0 in left:"]
    for index, (kind, value) in enumerate(zip(shape, variables(shape), strict=True)):
        last = index == len(shape) - 1
        call = f"f{index}({value})"
        if kind == "f":
            lines.append(
                f"  if {call}: values.append({value})" if last else f"  if not {call}: continue"
            )
        else:
            lines.append(
                f"  values.append({call})" if last else f"  v{int(value[1:]) + 1} = {call}"
            )
    return "\n".join(lines)


def step_at(shape: str, line: int) -> int:
    """Return the index of the step that is called on a line (from 1) of ``source``."""
    return min(max(line - 3, 0), len(shape) - 1)
