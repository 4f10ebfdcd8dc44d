"""Keyed state for handlers that wait: what one writes takes effect all at once, when its transaction is committed.

Theory. Between the first line of such a handler and its last, handlers of other keys run, and the current key of the
backend is now this and now that; checkpoints are taken. So a handler gets cells of a *transaction*: they are bound to
one key, read what is committed and what the transaction has written, and write into the transaction. ``commit`` puts
all of it into the backend, in one go; to drop the transaction is to forget it. At most one transaction of a key may be
open at a time; whoever opens them sees to that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from aflow.errors import InternalError, OperatorError, shown
from aflow.state.backend import KeyedBackend
from aflow.state.cells import AggregatingCell, ListCell, MapCell, ReducingCell, ValueCell
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateSpec,
    ValueState,
)
from aflow.state.transaction_cells import (
    TransactionAggregatingCell,
    TransactionCell,
    TransactionListCell,
    TransactionMapCell,
    TransactionReducingCell,
    TransactionValueCell,
)

C = TypeVar("C")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class Transactions:
    """Opens the transactions of one backend, on the states in ``specs``.

    Raises ``FlowDefinitionError`` as ``KeyedBackend.cell`` does.
    """

    __slots__ = ("backend", "rows")

    def __init__(self, backend: KeyedBackend, specs: Iterable[StateSpec[Any]]) -> None:
        self.backend = backend
        #: What is committed, by declaration.
        self.rows = {spec: backend.stored_cell(spec) for spec in specs}

    def open(self, key: Hashable) -> Transaction:
        """Begin one for ``key``. Nothing is looked up before it is asked for."""
        return Transaction(self, key)


class Transaction:
    """The state of one key for one handler.

    What was read is not taken back when a transaction is dropped: with ``TtlOn.READ`` it has begun the time to live
    anew. What is written has it begin at the commit; until then nothing that was written is out of date, nor is what it
    was added to.
    """

    # Hot path (a few for each record): a cell is made when it is asked for.
    __slots__ = ("_cells", "_of", "_settled", "key", "over")

    def __init__(self, of: Transactions, key: Hashable) -> None:
        self._of = of
        self._cells: dict[StateSpec[Any], Any] = {}
        #: Whether it was committed or dropped.
        self._settled = False
        self.key = key
        self.over = False

    def cell(self, spec: StateSpec[C]) -> C:
        """The cell of a declaration. Raises ``KeyError`` for one that is not known, ``OperatorError`` after the end."""
        if self.over:
            raise self.was_over()
        cell: C | None = self._cells.get(spec)
        if cell is None:
            self._of.rows[spec]  # raises KeyError
            cell = self._cells[spec] = spec.cell(self)
        return cell

    @property
    def declared(self) -> Mapping[StateSpec[Any], object]:
        """The declarations that it has cells for, as keys."""
        return self._of.rows

    def end(self) -> None:
        """The handler is over: its cells raise from here on. What it has written waits for ``commit``."""
        self.over = True

    def commit(self) -> None:
        """Put everything that was written into the backend; the transaction is over.

        Raises ``TypeError`` and ``OperatorError`` as ``KeyedBackend.touch`` does, and then nothing was written; and
        ``InternalError`` if it was committed or dropped before.
        """
        if self._settled:
            raise InternalError(
                f"a transaction of key {shown(self.key)} was committed that had been committed or dropped"
            )
        self.over = self._settled = True
        written: list[TransactionCell[Any]] = [
            cell for cell in self._cells.values() if cell.written
        ]
        if not written:
            return
        backend = self._of.backend
        backend.touch((self.key,))
        backend.key = self.key
        try:
            for cell in written:
                cell.commit()
        finally:
            backend.leave()

    def drop(self) -> None:
        """Nothing that was written takes effect; whoever still uses a cell is told so by an ``OperatorError``.

        Without it, cells of a transaction that is not committed go on to work, and to no effect.
        """
        self.over = self._settled = True

    def read(self, stored: ValueCell[Any], default: object) -> Any:
        """For cells: what is committed for the key of the transaction."""
        backend = self._of.backend
        backend.touch((self.key,))
        backend.key = self.key
        try:
            return stored.get(default)
        finally:
            backend.leave()

    def was_over(self) -> OperatorError:
        """For cells: what to raise when one is used after the end."""
        operator = self._of.backend.filing.operator
        return OperatorError(
            f"step {operator!r} used state of key {shown(self.key)} after the end of the handler that got it; "
            f"use state before the handler returns, and not at all once it was cancelled",
            operator=operator,
            key=self.key,
        )

    def value_cell(self, spec: ValueState[T]) -> ValueCell[T]:
        return TransactionValueCell(self, self._of.rows[spec], timed=spec.ttl is not None)

    def list_cell(self, spec: ListState[T]) -> ListCell[T]:
        return TransactionListCell(self, self._of.rows[spec], timed=spec.ttl is not None)

    def map_cell(self, spec: MapState[K, V]) -> MapCell[K, V]:
        return TransactionMapCell(self, self._of.rows[spec], timed=spec.ttl is not None)

    def reducing_cell(self, spec: ReducingState[T]) -> ReducingCell[T]:
        return TransactionReducingCell(
            self, self._of.rows[spec], spec.fn, timed=spec.ttl is not None
        )

    def aggregating_cell(self, spec: AggregatingState[IN, ACC, OUT]) -> AggregatingCell[IN, OUT]:
        return TransactionAggregatingCell(
            self, self._of.rows[spec], spec.aggregate, timed=spec.ttl is not None
        )
