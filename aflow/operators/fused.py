"""Several maps, and at most one filter among them, as a single comprehension.

``map → filter → map`` of a chain becomes ``[f2(y) for v in left if f1(y := f0(v))]``: no list between the steps,
which saves 8 % of a chain of trivial functions (``python -m bench stateless``). The source of the comprehension is
generated once for each shape. Every call is on a line of its own, so that the line of a traceback identifies the failed
step.

An error has the input record of the first of these steps, which is the only one still available; if steps run on their
own (``chaining=False``, or an exchange in between), it has the input record of the failed step.

At most one filter, because then the counters of all steps follow from the lengths of input and output. A filter over
records with timestamps runs step by step: the timestamps would have to be filtered too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias

from aflow.errors import OperatorError
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED, Operator, Output
from aflow.operators.first_call import FirstCall
from aflow.operators.stateless import FilterOperator, MapOperator

Fusible: TypeAlias = MapOperator | FilterOperator

Comprehension: TypeAlias = Callable[..., list[Any]]
"""Called with an iterator over values and the function of each step."""

#: File name of the comprehensions in tracebacks.
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
        self._comprehension = comprehension(self._shape)
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
        try:
            values = self._comprehension(left, *self._functions)
        except RAISED as exc:
            raise self._failure_of(exc, batch, left) from exc
        self._count(len(batch.values), len(values))
        if values:
            self.output.emit(Batch(values, batch.timestamps, batch.keys))

    def _current_functions(self) -> list[Callable[[Any], Any]]:
        """Return the functions of the steps. A step replaces its ``FirstCall`` after its first record."""
        functions = [step.function for step in self._steps]
        self._first_calls = any(isinstance(function, FirstCall) for function in functions)
        return functions

    def name_at(self, line: int) -> str:
        """Return the name of the step that is called on a line of the comprehension."""
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

    def _count(self, entered: int, left: int) -> None:
        """Count the records between the steps."""
        for index in range(len(self._counters) - 1):
            records = entered if index < self._filter_at else left
            self._counters[index].records_out += records
            if records:
                self._counters[index + 1].records_in += records
                self._counters[index + 1].batches_in += 1

    def _failure_of(
        self, cause: BaseException, batch: Batch[Any], left: Iterator[object]
    ) -> OperatorError:
        step = step_at(self._shape, _line_of(cause.__traceback__))
        return self._steps[step].failure(cause, batch, left)


@cache
def comprehension(shape: str) -> Comprehension:
    """Return the comprehension for a ``shape`` such as ``mfm``: ``m`` a map, ``f`` a filter (at most one)."""
    namespace: dict[str, Any] = {}
    exec(compile(source(shape), FILE, "exec"), namespace)
    made: Comprehension = namespace["run"]
    return made


def source(shape: str) -> str:
    """Return the source of the function, with one call a line."""
    before, keep, _ = shape.partition("f")
    value = "v"
    for index in range(len(before)):
        value = f"f{index}(\n{value})"
    condition = ""
    if keep:
        condition = f"if f{len(before)}(\ny := {value})"
        value = "y"
        for index in range(len(before) + 1, len(shape)):
            value = f"f{index}(\n{value})"
    functions = ", ".join(f"f{index}" for index in range(len(shape)))
    return f"def run(left, {functions}):\n return [\n{value}\nfor v in left\n{condition}\n]"


def step_at(shape: str, line: int) -> int:
    """Return the index of the step that is called on a line (from 1) of ``source``.

    On a line without a call only the truth value of the filter's result can fail, as that of an array of NumPy. The
    line of that depends on the version of Python.
    """
    text = source(shape).splitlines()[line - 1]
    called = (index for index in range(len(shape)) if f"f{index}(" in text)
    return next(called, max(shape.find("f"), 0))


def _line_of(trace: TracebackType | None) -> int:
    """Return the line of the innermost frame of the comprehension."""
    line = 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
