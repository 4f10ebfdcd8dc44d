"""A step written as a class that reads two keyed streams, with state and timers that both share."""

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
    """Subclass it to handle records ``L`` and ``R`` of two streams with keys ``K`` together, giving results ``U``.

    State is declared and reached as in a ``KeyedProcess``, and a key has the same state and the same timers whichever
    stream its record came by. Records of one stream keep their order for each key; whether a record of the one comes
    before a record of the other is not known, and may differ between runs. What must not depend on it waits for a
    timer: the watermark has passed a moment once *both* streams have.
    """

    preceding_call = ".connect(other)"

    @abstractmethod
    def process_left(self, value: L, ctx: Context[K]) -> Iterable[U] | None:
        """The results for a record of the left stream: a list, a tuple, a generator (run to its end at once) or None.

        Results have the timestamp of the record.
        """

    @abstractmethod
    def process_right(self, value: R, ctx: Context[K]) -> Iterable[U] | None:
        """The results for a record of the right stream, as for the left one."""


def check_co_process(function: object) -> None:
    """Refuse what cannot run as a ``CoProcess``, and two states of one name. Raises ``FlowDefinitionError``."""
    handlers = ("process_left", "process_right", "on_timer", "open", "close")
    check_kind(function, CoProcess, handlers=handlers)
    keyed_states(function)


class CoProcessOperator(KeyedFunctionOperator[CoProcess[Any, Any, Any, Any]], TwoInputOperator):
    """Runs a ``CoProcess``: each record of both inputs, and each timer, with its key as the current one."""

    def process_left(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process_left)

    def process_right(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process_right)
