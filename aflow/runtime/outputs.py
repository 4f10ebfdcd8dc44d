"""Outputs of the operators of a chain: links to each other, and channels to other tasks.

Each step has one ``StepOutput``. Its targets are ``OutputLink``s (the next step of the same task) and ``OutEdge``s (an
exchange to another task). A link is one method call, so a chain of steps costs nothing for each record.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from aflow.errors import AflowError, OperatorError
from aflow.model.batch import Batch
from aflow.model.elements import Marker
from aflow.model.questions import current_correlation, without_correlation
from aflow.model.time import Timestamp
from aflow.operators.base import Operator, Output
from aflow.runtime.metrics import StepCounters
from aflow.runtime.pieces import OperatorPieces


class OutputLink:
    """Pushes into the next operator of the chain, counts records, and names the operator in errors.

    While the operator has unfinished work, elements wait in the queue of its pieces.
    """

    __slots__ = ("_counters", "_operator", "_pieces", "_process")

    def __init__(
        self,
        operator: Operator,
        counters: StepCounters,
        pieces: OperatorPieces,
        process: Callable[[Batch[Any]], None] | None = None,
    ) -> None:
        """``process`` is the method of ``operator`` that takes the batches, if it is not the one named ``process``."""
        self._operator = operator
        self._process = process or operator.process
        self._counters = counters
        self._pieces = pieces

    def emit(self, batch: Batch[Any]) -> None:
        counters = self._counters
        counters.records_in += len(batch.values)
        counters.batches_in += 1
        if self._pieces.unfinished:
            self._pieces.put(_deferred(partial(self._process, batch)))
            return
        try:
            self._process(batch)
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            # Operators are synchronous, so a CancelledError is the user function's own and cancels no task. Unhandled,
            # it would end the task as if the job had been cancelled.
            raise OperatorError.of(self._operator.name, exc) from exc

    def watermark(self, timestamp: Timestamp) -> None:
        if self._pieces.unfinished:
            self._pieces.put(partial(self._pass_watermark, timestamp))
        else:
            self._pass_watermark(timestamp)

    def _pass_watermark(self, timestamp: Timestamp) -> None:
        """Advance the operator, for which no element waits."""
        try:
            without_correlation(partial(self._operator.on_watermark, timestamp))
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            # Operators are synchronous, so a CancelledError is the user function's own and cancels no task. Unhandled,
            # it would end the task as if the job had been cancelled.
            raise OperatorError.of(self._operator.name, exc) from exc

    def idle(self) -> None:
        if self._pieces.unfinished:
            self._pieces.put(self._operator.on_idle)
        else:
            self._operator.on_idle()

    def active(self) -> None:
        if self._pieces.unfinished:
            self._pieces.put(self._operator.on_active)
        else:
            self._operator.on_active()

    def marker(self, marker: Marker) -> None:
        if self._pieces.unfinished:
            self._pieces.put(partial(self._operator.on_marker, marker))
        else:
            self._operator.on_marker(marker)

    def side(self, tag: str, batch: Batch[Any]) -> None:
        raise TypeError("a link is one output of a step; side outputs are the step's")


def _deferred(work: Callable[[], None]) -> Callable[[], None]:
    """Return ``work`` for later: its output belongs to the question that is current now."""
    correlation = current_correlation()
    if correlation is None:
        return work
    correlation.hold()
    return partial(correlation.run, work)


class StepOutput:
    """All outputs of one step: the main one, and the side outputs that have readers."""

    __slots__ = ("_counters", "_emit", "_main", "_sides", "targets")

    def __init__(
        self, counters: StepCounters, targets: Sequence[tuple[Output, str | None]]
    ) -> None:
        """``targets`` are the readers, each with the side output that it reads; None for the main output."""
        self._counters = counters
        #: All readers, including those of side outputs.
        self.targets: Final = [target for target, _ in targets]
        self._main = [target for target, side in targets if side is None]
        #: ``emit`` of the only reader, or ``_emit_to_all``.
        self._emit = self._main[0].emit if len(self._main) == 1 else self._emit_to_all
        self._sides: dict[str, list[Output]] = {}
        for target, side in targets:
            if side is not None:
                self._sides.setdefault(side, []).append(target)

    def emit(self, batch: Batch[Any]) -> None:
        self._counters.records_out += len(batch.values)
        self._emit(batch)

    def watermark(self, timestamp: Timestamp) -> None:
        self._counters.watermark = timestamp
        for target in self.targets:
            target.watermark(timestamp)

    def idle(self) -> None:
        self._counters.idle = True
        for target in self.targets:
            target.idle()

    def active(self) -> None:
        self._counters.idle = False
        for target in self.targets:
            target.active()

    def marker(self, marker: Marker) -> None:
        for target in self.targets:
            target.marker(marker)

    def side(self, tag: str, batch: Batch[Any]) -> None:
        self._counters.count_side(tag, len(batch.values))
        for target in self._sides.get(tag, ()):
            target.emit(batch)

    def _emit_to_all(self, batch: Batch[Any]) -> None:
        for target in self._main:
            target.emit(batch)
