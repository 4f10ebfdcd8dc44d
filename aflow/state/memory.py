"""State in memory: fast, lost with the process unless snapshots are kept."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aflow.errors import CheckpointError, FlowDefinitionError, OperatorError, RestoreError, shown
from aflow.model.codecs import CodecError
from aflow.state.cells import AggregatingCell, ListCell, MapCell, ReducingCell, ValueCell
from aflow.state.filing import Keyed, KeyedFiling, KeyedRows, KeyRow
from aflow.state.layouts import Layout, check_description, description
from aflow.state.memory_cells import (
    MemoryAggregatingCell,
    MemoryListCell,
    MemoryMapCell,
    MemoryReducingCell,
    MemoryValueCell,
)
from aflow.state.snapshot import STATES
from aflow.state.specs import (
    RESERVED,
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

#: So many changed keys are never too many to be captured alone.
_FEW: Final = 256


class NoKey:
    """The current key while there is none: using it in a dict raises, so that cells need no check of their own."""

    __slots__ = ("_operator",)

    def __init__(self, operator: str) -> None:
        self._operator = operator

    def __hash__(self) -> int:
        raise OperatorError(
            f"step {self._operator!r} used keyed state, a timer or the key outside of its handlers; "
            f"each belongs to the key of the record being handled: use it before the handler returns",
            operator=self._operator,
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """The state of one name."""

    spec: StateSpec[Any]
    layout: Layout[Any]
    rows: dict[Hashable, Any]


class MemoryBackend:
    """Keeps one dict for each state name, keyed by the key; see ``KeyedBackend``.

    Key groups are computed when a snapshot is taken, never for a record.
    """

    def __init__(self, filing: KeyedFiling) -> None:
        self.filing = filing
        self._nobody: Final = NoKey(filing.operator)
        self.key: Hashable = self._nobody
        self._tables: dict[str, _Table] = {}
        #: The keys touched since the last capture or restore; None: there was none, so nobody asks for changes.
        self._changed: set[Hashable] | None = None

    def touch(self, keys: Sequence[Hashable]) -> None:
        # Hot path: once for each batch of a keyed step.
        if self._changed is not None:
            self._changed.update(keys)

    def leave(self) -> None:
        self.key = self._nobody

    def cell(self, spec: StateSpec[C]) -> C:
        return spec.cell(self)

    def value_cell(self, spec: ValueState[T]) -> ValueCell[T]:
        return MemoryValueCell(self, self._rows(spec))

    def list_cell(self, spec: ListState[T]) -> ListCell[T]:
        return MemoryListCell(self, self._rows(spec))

    def map_cell(self, spec: MapState[K, V]) -> MapCell[K, V]:
        return MemoryMapCell(self, self._rows(spec))

    def reducing_cell(self, spec: ReducingState[T]) -> ReducingCell[T]:
        return MemoryReducingCell(self, self._rows(spec), spec.fn)

    def aggregating_cell(self, spec: AggregatingState[IN, ACC, OUT]) -> AggregatingCell[IN, OUT]:
        return MemoryAggregatingCell(self, self._rows(spec), spec.aggregate)

    def table(self, spec: ValueState[T]) -> dict[Hashable, T]:
        return self._rows(spec)

    def capture(self, *, changes: bool) -> KeyedRows:
        changed, self._changed = self._changed, set()
        most = max((len(table.rows) for table in self._tables.values()), default=0)
        if not changes or changed is None or len(changed) > max(_FEW, most // 2):
            changed = None
        rows = {name: list(self._encoded(table, changed)) for name, table in self._tables.items()}
        described = {name: description(table.layout) for name, table in self._tables.items()}
        return KeyedRows(rows, changed, described)

    def snapshot(self) -> Keyed:
        filed = self.filing.file(
            {name: self._encoded(table) for name, table in self._tables.items()}
        )
        described = {
            name: (name.encode(), description(table.layout)) for name, table in self._tables.items()
        }
        return {
            group: {**names, STATES: tuple(described[name] for name in names)}
            for group, names in filed.items()
        }

    def restore(self, keyed: Keyed) -> None:
        self._changed = set()
        for table in self._tables.values():
            table.rows.clear()
        for names in self.filing.own(keyed):
            for encoded_name, data in names.get(STATES, ()):
                table = self._declared(encoded_name.decode())
                check_description(table.layout, data, what=self._what(table))
        for name in sorted({name for names in self.filing.own(keyed) for name in names}):
            if not name.startswith(RESERVED):
                self._restore_table(self._declared(name), keyed)

    def get(self, name: str, key: Hashable) -> object | None:
        table = self._known(name)
        return table.spec.view(table.rows[key]) if key in table.rows else None

    def keys(self, name: str) -> list[Hashable]:
        return list(self._known(name).rows)

    def _rows(self, spec: StateSpec[Any]) -> dict[Hashable, Any]:
        table = self._tables.get(spec.name)
        if table is None:
            table = self._tables[spec.name] = _Table(spec, spec.layout(), {})
        elif table.spec is not spec:
            raise FlowDefinitionError(
                f"step {self.filing.operator!r} declares two states named {spec.name!r}; give each its own name"
            )
        return table.rows

    def _encoded(self, table: _Table, keys: Collection[Hashable] | None = None) -> Iterator[KeyRow]:
        """The rows of ``keys``, or of all keys."""
        encode, rows = table.layout.encode, table.rows
        found: Iterable[tuple[Hashable, Any]] = rows.items()
        if keys is not None:
            found = ((key, rows[key]) for key in keys if key in rows)
        for key, stored in found:
            try:
                yield key, encode(stored)
            except CodecError as exc:
                raise CheckpointError(
                    f"{self._what(table)} cannot be stored for key {shown(key)}: {exc}"
                ) from exc

    def _restore_table(self, table: _Table, keyed: Keyed) -> None:
        rows, decode = table.rows, table.layout.decode
        for key, data in self.filing.read(keyed, table.spec.name):
            try:
                rows[key] = decode(data)
            except CodecError as exc:
                raise RestoreError(
                    f"{self._what(table)} cannot be read for key {shown(key)}: {exc}"
                ) from exc

    def _declared(self, name: str) -> _Table:
        table = self._tables.get(name)
        if table is None:
            raise RestoreError(
                f"the snapshot of step {self.filing.operator!r} holds state {name!r}, which the step does not declare; "
                f"renamed or removed? declared: {self._names()}"
            )
        return table

    def _known(self, name: str) -> _Table:
        table = self._tables.get(name)
        if table is None:
            raise FlowDefinitionError(
                f"step {self.filing.operator!r} has no state named {name!r}; it has: {self._names()}"
            )
        return table

    def _names(self) -> str:
        return ", ".join(map(repr, self._tables)) or "none"

    def _what(self, table: _Table) -> str:
        return f"state {table.spec.name!r} of step {self.filing.operator!r}"
