"""The step of a union: the gate of the task reads its inputs, and the records are unchanged."""

from __future__ import annotations

from typing import Any

from aflow.model.batch import Batch
from aflow.operators.base import Operator


class PassThroughOperator(Operator):
    """Emits its input."""

    def process(self, batch: Batch[Any]) -> None:
        self.output.emit(batch)
