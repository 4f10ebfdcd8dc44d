"""Transactions: keyed state for handlers that wait. All updates of one take effect together, at its commit.

Theory. While such a handler waits, handlers of other keys run, the current key of the backend changes, and checkpoints
are taken. So a handler uses the cells of a *transaction*. They are the same cells, bound to one key, over an overlay of
each row (see ``overlays``): they read the committed row and the updates of the transaction, and write into the overlay.
``commit`` writes all overlays into the backend at once. A dropped transaction has no effect. The owner of the
transactions opens at most one of a key at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from aflow.errors import InternalError, OperatorError, shown
from aflow.state.backend import KeyedBackend
from aflow.state.cells import AggregatingCell, ListCell, MapCell, ReducingCell, ValueCell
from aflow.state.defensive_copies import defensive_copy
from aflow.state.keyed_cells import (
    KeyedAggregatingCell,
    KeyedListCell,
    KeyedMapCell,
    KeyedReducingCell,
    KeyedValueCell,
)
from aflow.state.overlays import ListOverlay, MapOverlay, OverlayRow
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateSpec,
    ValueState,
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
        #: Cells of the committed rows, by declaration.
        self.rows = {spec: backend.stored_cell(spec) for spec in specs}

    def open(self, key: Hashable) -> Transaction:
        """Open a transaction of ``key``. Rows are read when a cell asks for them."""
        return Transaction(self, key)


class Transaction:
    """The state of one key for one handler; the owner of its cells.

    With ``TtlOn.READ`` a read restarts the time to live of a row, also if the transaction is dropped. An update
    restarts it at the commit. Until then an updated row does not expire.
    """

    # Hot path: one for each record. A cell is made when it is first asked for.
    __slots__ = ("_cells", "_of", "_settled", "committed", "key", "over", "written")

    def __init__(self, of: Transactions, key: Hashable) -> None:
        self._of = of
        self._cells: dict[StateSpec[Any], Any] = {}
        #: True once it was committed or dropped.
        self._settled = False
        self.key = key
        self.committed = of.rows
        #: True after the end of the handler: access to state raises.
        self.over = False
        #: Overlays with updates.
        self.written: list[OverlayRow] = []

    def cell(self, spec: StateSpec[C]) -> C:
        """Return the cell of a declaration.

        Raises ``KeyError`` for an unknown declaration and ``OperatorError`` after the end of the handler.
        """
        if self.over:
            raise self.was_over()
        cell: C | None = self._cells.get(spec)
        if cell is None:
            self.committed[spec]  # raises KeyError, also for what is no declaration
            cell = self._cells[spec] = spec.cell(self)
        return cell

    @property
    def declared(self) -> Mapping[StateSpec[Any], object]:
        """Mapping whose keys are the known declarations."""
        return self.committed

    def end(self) -> None:
        """End the handler: its cells raise from now on. Its updates wait for ``commit``."""
        self.over = True

    def commit(self) -> None:
        """Write all updates into the backend and end the transaction.

        Raises ``TypeError`` and ``OperatorError`` as ``KeyedBackend.touch`` does, without writing anything, and
        ``InternalError`` if the transaction was committed or dropped before.
        """
        if self._settled:
            raise InternalError(
                f"the transaction of key {shown(self.key)} cannot be committed: it was committed or dropped before"
            )
        self.over = self._settled = True
        if not self.written:
            return
        backend = self._of.backend
        backend.touch((self.key,))
        backend.key = self.key
        try:
            for overlay in self.written:
                overlay.commit()
        finally:
            backend.leave()

    def drop(self) -> None:
        """Discard all updates. Cells raise ``OperatorError`` from now on, rather than work without effect."""
        self.over = self._settled = True

    def read(self, stored: ValueCell[Any], default: object) -> Any:
        """Return the committed value of ``stored`` for the key of the transaction; for overlays."""
        backend = self._of.backend
        backend.touch((self.key,))
        backend.key = self.key
        try:
            return stored.get(default)
        finally:
            backend.leave()

    def was_over(self) -> OperatorError:
        """Return the error for the use of a cell after the end of the handler; for overlays."""
        operator = self._of.backend.key_codec.operator
        return OperatorError(
            f"step {operator!r} used state of key {shown(self.key)} after the end of the handler; "
            f"use state before the handler returns, and not after it was cancelled",
            operator=operator,
            key=self.key,
        )

    def value_cell(self, spec: ValueState[T]) -> ValueCell[T]:
        return KeyedValueCell(self, OverlayRow(self, spec, defensive_copy))

    def list_cell(self, spec: ListState[T]) -> ListCell[T]:
        return KeyedListCell(self, OverlayRow(self, spec, ListOverlay))

    def map_cell(self, spec: MapState[K, V]) -> MapCell[K, V]:
        return KeyedMapCell(self, OverlayRow(self, spec, MapOverlay))

    def reducing_cell(self, spec: ReducingState[T]) -> ReducingCell[T]:
        return KeyedReducingCell(self, OverlayRow(self, spec, defensive_copy), spec.fn)

    def aggregating_cell(self, spec: AggregatingState[IN, ACC, OUT]) -> AggregatingCell[IN, OUT]:
        return KeyedAggregatingCell(self, OverlayRow(self, spec, defensive_copy), spec.aggregate)
