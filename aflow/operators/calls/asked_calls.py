"""Calls for the records of questions: their results are emitted apart from others, as those of the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from aflow.machines.calls.call import Call
from aflow.model.questions import Correlation


class AskedCalls:
    """The calls of one subtask that belong to questions, until their results are emitted."""

    def __init__(self) -> None:
        self._correlations: dict[Call, Correlation] = {}

    def add(self, calls: Sequence[Call], correlation: Correlation) -> None:
        """Add calls that were made for the record of a question."""
        for call in calls:
            self._correlations[call] = correlation
            correlation.hold()

    def emit(self, run: list[Call], emit: Callable[[list[Call]], None]) -> None:
        """Emit the results of ``run`` in its order, those of questions each alone."""
        if not self._correlations:
            emit(run)
            return
        start = 0
        for index, call in enumerate(run):
            correlation = self._correlations.pop(call, None)
            if correlation is not None:
                if index > start:
                    emit(run[start:index])
                correlation.run(partial(emit, [call]))
                start = index + 1
        if start < len(run):
            emit(run[start:])
