"""Transactions: keyed state for handlers that wait. All updates of one take effect together, at its commit.

Theory. While such a handler waits, handlers of other keys run, the current key of the backend changes, and checkpoints
are taken. So a handler uses the cells of a *transaction*. They are the same cells, bound to one key, over an *overlay*
of each row. ``commit`` writes all overlays into the backend at once. A dropped transaction has no effect. The owner of
the transactions opens at most one of a key at a time.

An overlay reads the committed row once and never changes it:

- A value or an accumulator is replaced as a whole. Handlers get a copy of the committed one.
- A list or a map is a ``ListOverlay`` or a ``MapOverlay``: the committed one and, beside it, the changes. So an update
  of a large one takes time for the changes only. Handlers get copies of committed elements.

``commit`` applies the changes. It calls no user code, so it cannot fail half-way because of user code.

No other handler writes the row of the transaction's key, so it is read once. A row with a time to live is read at each
access, since it may have expired. From the first write on the overlay keeps the row of that moment, even if the
time to live ends before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import Any, Final, Generic, TypeVar, overload

from aflow.errors import InternalError, OperatorError, shown
from aflow.state.backend import KeyedBackend
from aflow.state.cells import ValueCell
from aflow.state.defensive_copies import defensive_copy
from aflow.state.specs import ListState, MapState, StateSpec

C = TypeVar("C")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Transactions:
    """Opens the transactions of one backend, on the states in ``specs``.

    Raises ``FlowDefinitionError`` as ``KeyedBackend.cell`` does.
    """

    __slots__ = ("backend", "states")

    def __init__(self, backend: KeyedBackend, specs: Iterable[StateSpec[Any]]) -> None:
        self.backend = backend
        #: By declaration, the arguments of its `OverlayRow`.
        self.states = {
            spec: (backend.stored_cell(spec), _row_copy(spec), spec.ttl is not None)
            for spec in specs
        }

    def open(self, key: Hashable) -> Transaction:
        """Open a transaction of ``key``. Rows are read when a cell asks for them."""
        return Transaction(self, key)


class Transaction:
    """The state of one key for one handler; the owner of its cells.

    With ``TtlOn.READ`` a read restarts the time to live of a row, also if the transaction is dropped. An update
    restarts it at the commit. Until then an updated row does not expire.
    """

    # Hot path: one for each record. A cell is made when it is first asked for.
    __slots__ = ("_cells", "_of", "_settled", "key", "over", "written")

    def __init__(self, of: Transactions, key: Hashable) -> None:
        self._of = of
        self._cells: dict[StateSpec[Any], Any] = {}
        #: True once it was committed or dropped.
        self._settled = False
        self.key = key
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
            # Raises KeyError for an unknown declaration, and for what is none.
            row = OverlayRow(self, *self._of.states[spec])
            cell = self._cells[spec] = spec.cell(self, row)
        return cell

    @property
    def declared(self) -> Mapping[StateSpec[Any], object]:
        """Mapping whose keys are the known declarations."""
        return self._of.states

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


def _row_copy(spec: StateSpec[Any]) -> Callable[[Any], Any]:
    if isinstance(spec, ListState):
        return ListOverlay
    return MapOverlay if isinstance(spec, MapState) else defensive_copy


class _Absent(Enum):
    """Marks the absence of a row. ``None`` cannot mark it: it is a valid value."""

    ABSENT = "absent"


_ABSENT: Final = _Absent.ABSENT


class OverlayRow:
    """The row of one state in one transaction; ``LiveRows`` for its cell, with the transaction's key alone.

    All access raises ``OperatorError`` after the end of the handler.
    """

    # Hot path: one for each state of a transaction, so a few for each record.
    __slots__ = ("_committed", "_copied", "_known", "_of", "_row", "_timed", "_written")

    def __init__(
        self,
        of: Transaction,
        committed: ValueCell[Any],
        copied: Callable[[Any], Any],
        timed: bool,
    ) -> None:
        self._of = of
        self._committed = committed
        #: Returns the row for this transaction of a committed one.
        self._copied = copied
        #: True if the committed row may expire.
        self._timed = timed
        #: True if the committed row is not read again.
        self._known = False
        self._row: Any = _ABSENT
        #: True if this is among the overlays that the transaction commits.
        self._written = False

    def get(self, key: Hashable, default: Any = None, /) -> Any:
        if self._of.over:
            raise self._of.was_over()
        if not self._known:
            row = self._of.read(self._committed, _ABSENT)
            self._row = row if row is _ABSENT else self._copied(row)
            self._known = not self._timed
        row = self._row
        return default if row is _ABSENT else row

    def __contains__(self, key: object, /) -> bool:
        return self.get(None, _ABSENT) is not _ABSENT

    def __getitem__(self, key: Hashable, /) -> Any:
        """Return the row; ``in`` has just returned True."""
        return self._row

    def __setitem__(self, key: Hashable, row: Any, /) -> None:
        of = self._of
        if of.over:
            raise of.was_over()
        self._row = row
        if not self._written:
            self._known = self._written = True
            of.written.append(self)

    def touch(self, key: Hashable, /) -> Any:
        """Return the row, which the caller changes in place; None if there is none."""
        if not self._written:
            row = self.get(key)
            if row is not None:
                self._known = self._written = True
                self._of.written.append(self)
            return row
        if self._of.over:
            raise self._of.was_over()
        return None if self._row is _ABSENT else self._row

    def pop(self, key: Hashable, default: None = None, /) -> None:
        self[key] = _ABSENT

    def commit(self) -> None:
        """Replace the committed row. The transaction's key is the current one."""
        row = self._row
        if row is _ABSENT:
            self._committed.clear()
        else:
            self._committed.set(row.applied() if type(row) in _CHANGED_IN_PLACE else row)


class ListOverlay(Generic[T]):
    """A committed list with further values."""

    __slots__ = ("_added", "_list")

    def __init__(self, committed: list[T]) -> None:
        self._list: Final = committed
        self._added: list[T] = []

    def append(self, value: T) -> None:
        self._added.append(value)

    def extend(self, values: Iterable[T]) -> None:
        self._added += values

    def __iter__(self) -> Iterator[T]:
        return chain(map(defensive_copy, self._list), self._added)

    def __len__(self) -> int:
        return len(self._list) + len(self._added)

    def applied(self) -> list[T]:
        """Append the further values to the committed list and return it. A copy of a long list would take long."""
        self._list.extend(self._added)
        return self._list


class MapOverlay(Generic[K, V]):
    """A committed dict with changed and removed entries."""

    __slots__ = ("_dict", "_put", "_removed")

    def __init__(self, committed: dict[K, V]) -> None:
        self._dict: Final = committed
        #: Removed keys of the dict. A key that was put again is here too: its entry is a new, last one.
        self._removed: set[K] = set()
        #: Entries that were put, in order.
        self._put: dict[K, V] = {}

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        if key in self._put:
            return self._put[key]
        return defensive_copy(self._dict[key]) if self._is_kept(key) else default

    def __contains__(self, key: object) -> bool:
        return key in self._put or self._is_kept(key)

    def __setitem__(self, key: K, value: V) -> None:
        self._put[key] = value

    def __delitem__(self, key: K) -> None:
        self._put.pop(key, None)
        if key in self._dict:
            self._removed.add(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield the entries of the dict in its order, then new ones in the order in which they were put."""
        put = self._put
        for key, value in self._dict.items():
            if key not in self._removed:
                yield key, put[key] if key in put else defensive_copy(value)
        for key, value in put.items():
            if not self._is_kept(key):
                yield key, value

    def values(self) -> Iterator[V]:
        return (value for _, value in self.items())

    def __iter__(self) -> Iterator[K]:
        kept = (key for key in self._dict if key not in self._removed)
        return chain(kept, (key for key in self._put if not self._is_kept(key)))

    def __len__(self) -> int:
        new = sum(not self._is_kept(key) for key in self._put)
        return len(self._dict) - len(self._removed) + new

    def __bool__(self) -> bool:
        return bool(self._put) or len(self._dict) > len(self._removed)

    def applied(self) -> dict[K, V]:
        """Apply the changes to the committed dict and return it."""
        for key in self._removed:
            del self._dict[key]
        self._dict.update(self._put)
        return self._dict

    def _is_kept(self, key: object) -> bool:
        """Return True if the entry of ``key`` in the dict was not removed."""
        return key in self._dict and key not in self._removed


_CHANGED_IN_PLACE: Final = (ListOverlay, MapOverlay)
