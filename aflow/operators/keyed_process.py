"""A step written as a class, with state and timers for each key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from aflow.model.batch import Batch
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedFunction, KeyedFunctionOperator
from aflow.operators.process import check_kind
from aflow.state.broadcast import keyed_states

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")


class KeyedProcess(KeyedFunction[Context[K], U], Generic[K, T, U]):
    """Subclass it to process records ``T`` with state and timers for each key ``K``; results are ``U``.

    State is declared as class attributes, ``last = ValueState("last", of=Payment)``, and accessed as
    ``ctx.state(self.last)``. Attributes of ``self`` are shared by all keys and are in no snapshot.
    """

    preceding_call = ".key_by(…)"

    @abstractmethod
    def process(self, value: T, ctx: Context[K]) -> Iterable[U] | None:
        """Return the results for ``value``: a list, a tuple, a generator (run at once) or None.

        Results have the timestamp of the record.
        """


def check_keyed_process(function: object) -> None:
    """Check a ``KeyedProcess``. Raises ``FlowDefinitionError`` for anything else, and for two states of one name."""
    check_kind(function, KeyedProcess, handlers=("process", "on_timer", "open", "close"))
    keyed_states(function)


class KeyedProcessOperator(KeyedFunctionOperator[KeyedProcess[Any, Any, Any]]):
    """Runs a ``KeyedProcess``: each record, and each timer, with its key as the current key."""

    def process(self, batch: Batch[Any]) -> None:
        self._handle(batch, self._function.process)
