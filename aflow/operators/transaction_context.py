"""The context of a handler whose effects are applied together, or not at all."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar, cast

from aflow.errors import InternalError
from aflow.model.time import Instant, Timestamp
from aflow.operators.context import Context, no_clock, timer_moment, undeclared
from aflow.state.backend import KeyTimerQueue
from aflow.state.specs import StateSpec
from aflow.state.transactions import Transaction

K = TypeVar("K")
C = TypeVar("C")


class TransactionContext(Context[K]):
    """A ``Context`` whose state and timers are those of one transaction.

    The cells show the changes of the handler. State and timers change when the handler returns; if it raises, they do
    not change. Cells are valid until then, and values of state are copies.
    """

    __slots__ = ("_timer_changes", "_transaction")

    #: The transaction of the current handler.
    _transaction: Transaction | None
    #: Queues and times of timers to register (True) or delete, in order.
    _timer_changes: list[tuple[KeyTimerQueue, Timestamp, bool]]

    @contextmanager
    def of(self, transaction: Transaction, ctx: Context[K]) -> Generator[None]:
        """Be the context of one handler, with the times of ``ctx``: commit if the block returns, else drop."""
        self.timestamp = ctx.timestamp
        self.reach(ctx.watermark)
        self._transaction = transaction
        self._timer_changes = []
        try:
            yield
        except BaseException:
            transaction.drop()
            raise
        finally:
            self._transaction = None
        transaction.commit()
        for queue, at, is_set in self._timer_changes:
            (queue.register if is_set else queue.delete)(at, transaction.key, None)
            if is_set and queue is self._event_timers:
                ctx.expect(at)

    @property
    def key(self) -> K:
        """The key of the current record."""
        return cast("K", self._current().key)  # key_by made it: the stream's type says so

    def state(self, spec: StateSpec[C]) -> C:
        """Return the cell of a declaration, bound to the current key, in the transaction.

        Raises ``FlowDefinitionError`` for a declaration that is no attribute of the process function.
        """
        transaction = self._current()
        try:
            return transaction.cell(spec)
        except KeyError:
            raise undeclared(spec, transaction.declared) from None

    def set_event_timer(self, at: Instant) -> None:
        self._change(self._event_timers, at, registers=True)

    def set_processing_timer(self, at: Instant) -> None:
        if not self._clocked:
            raise no_clock()
        self._change(self._processing_timers, at, registers=True)

    def delete_event_timer(self, at: Instant) -> None:
        self._change(self._event_timers, at, registers=False)

    def delete_processing_timer(self, at: Instant) -> None:
        self._change(self._processing_timers, at, registers=False)

    def _change(self, queue: KeyTimerQueue, at: Instant, *, registers: bool) -> None:
        self._current()
        self._timer_changes.append((queue, timer_moment(at), registers))

    def _current(self) -> Transaction:
        """Return the transaction. Raises ``OperatorError`` outside a handler."""
        if self._transaction is None:
            hash(self._backend.key)  # raises outside a handler
            raise InternalError("a context has no transaction within its handler")
        return self._transaction
