"""A step written as a class that reads two keyed streams with shared state and timers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from aflow.model.batch import Batch
from aflow.operators.base import TwoInputOperator
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedFunction, KeyedFunctionOperator
from aflow.operators.process import check_kind
from aflow.state.broadcast import keyed_states

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")
U = TypeVar("U")


class CoProcess(KeyedFunction[Context[K], U], Generic[K, L, R, U]):
    """Subclass it to process records ``L`` and ``R`` of two streams with keys ``K`` together; results are ``U``.

    State is declared and accessed as in a ``KeyedProcess``; a key has the same state and timers for both streams.
    Records of one stream keep their order for each key; the order between the two streams is undefined, and may differ
    between runs. Results that must not depend on it are emitted by a timer: the watermark has reached a time once
    *both* streams have.
    """

    preceding_call = ".connect(other)"

    @abstractmethod
    def process_left(self, value: L, ctx: Context[K]) -> Iterable[U] | None:
        """Return the results for a record of the left stream: a list, a tuple, a generator (run at once) or None.

        Results have the timestamp of the record.
        """

    @abstractmethod
    def process_right(self, value: R, ctx: Context[K]) -> Iterable[U] | None:
        """Return the results for a record of the right stream, as for the left one."""


def check_co_process(function: object) -> None:
    """Check a ``CoProcess``. Raises ``FlowDefinitionError`` for anything else, and for two states of one name."""
    handlers = ("process_left", "process_right", "on_timer", "open", "close")
    check_kind(function, CoProcess, handlers=handlers)
    keyed_states(function)


class CoProcessOperator(KeyedFunctionOperator[CoProcess[Any, Any, Any, Any]], TwoInputOperator):
    """Runs a ``CoProcess``: each record of both inputs, and each timer, with its key as the current key."""

    def process_left(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process_left)

    def process_right(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process_right)
