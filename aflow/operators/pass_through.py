"""The step of a union: nothing happens to the records, which come from several inputs through the task's gate."""

from __future__ import annotations

from typing import Any

from aflow.model.batch import Batch
from aflow.operators.base import Operator


class PassThroughOperator(Operator):
    """Sends on what comes."""

    def process(self, batch: Batch[Any]) -> None:
        self.output.emit(batch)
