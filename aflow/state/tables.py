"""Tables: the rows of each declared state of one operator, how long they live, and how they are stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Any, Final

from aflow.errors import FlowDefinitionError, InternalError, RestoreError, UnstorableState, shown
from aflow.model.codecs import CodecError
from aflow.model.time import Clock, Timestamp, to_millis
from aflow.state.cells import Rows
from aflow.state.keyed_entries import KeyRow, RowColumns, are_immutable
from aflow.state.layouts import Layout, One, check_description, description
from aflow.state.snapshot import STATES
from aflow.state.specs import RESERVED, StateSpec, TtlOn
from aflow.state.stored_entries import Entries
from aflow.state.timed_rows import TimedRows, encode_moment

#: Prefix of the name under which a snapshot holds the last touches of the rows of a state with a time to live. A
#: declaration without ``ttl`` ignores them, so ``ttl`` can be added and removed.
TOUCHED: Final = f"{RESERVED}touched "

#: Stands for the row of a key without one: any value may be a row.
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows at one moment, which each iteration encodes."""

    keys: Sequence[Hashable]
    values: Sequence[Any]
    encode: Callable[[Hashable, Any], bytes]

    def __iter__(self) -> Iterator[KeyRow]:
        return zip(self.keys, map(self.encode, self.keys, self.values), strict=True)

    def encoded(self) -> RowColumns:
        """Encode all rows now."""
        return RowColumns(self.keys, list(map(self.encode, self.keys, self.values)))


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one state."""

    spec: StateSpec[Any]
    layout: Layout[Any]
    rows: dict[Hashable, Any]
    """All rows, expired ones included until a sweep."""
    what: str
    """Its name in errors."""
    number: int
    """Its index among the tables of the operator."""
    timed: TimedRows | None = None
    """``rows`` with their time to live; None if they live until they are cleared."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def live_rows(self) -> Rows[Any]:
        """The rows for cells."""
        return self.rows if self.timed is None else self.timed

    @property
    def timed_rows(self) -> TimedRows:
        """The rows of a state that has a time to live."""
        if self.timed is None:
            raise InternalError(f"{self.what} has no time to live")
        return self.timed

    def has_row(self, key: Hashable) -> bool:
        """Return True if ``key`` has a row that is not expired. Never touches it."""
        return key in self.rows if self.timed is None else self.timed.is_alive(key)

    def decoded(self, key: Hashable, data: bytes) -> Any:
        """Return the row of ``key`` that was stored as ``data``. Raises ``RestoreError``."""
        try:
            return self.layout.decode(data)
        except CodecError as exc:
            raise RestoreError(f"{self.what} cannot be read for key {shown(key)}: {exc}") from exc

    def decoded_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[Any]:
        """Return the rows of ``keys``. Raises ``RestoreError``."""
        try:
            return self.layout.decode_all(stored)
        except CodecError:
            return list(map(self.decoded, keys, stored))  # raises it with the key

    def captured(self, keys: Collection[Hashable] | None) -> Mapping[str, Iterable[KeyRow]]:
        """Capture the rows of ``keys``, or of all keys, by their names in a snapshot.

        Rows of one immutable value are encoded later, others at once. Raises ``CheckpointError`` for a row that cannot
        be encoded, if it is found at once; otherwise the iteration raises it.
        """
        found = self._rows_of(keys)
        if self.timed is None:
            if isinstance(self.layout, One) and are_immutable(found.values):
                self._check_types(found)
                return {self.name: found}
            return {self.name: found.encoded()}
        touched = list(map(encode_moment, map(self.timed.moment, found.keys)))
        return {
            self.name: found.encoded(),
            f"{TOUCHED}{self.name}": RowColumns(found.keys, touched),
        }

    def _rows_of(self, keys: Collection[Hashable] | None) -> _Rows:
        rows = self.rows
        if keys is None:
            return _Rows(list(rows), list(rows.values()), self._encoded)
        wanted = list(keys)
        values = list(map(rows.get, wanted, repeat(_ABSENT)))
        there = [value is not _ABSENT for value in values]
        if not all(there):
            wanted, values = list(compress(wanted, there)), list(compress(values, there))
        return _Rows(wanted, values, self._encoded)

    def _check_types(self, found: _Rows) -> None:
        """Encode one value of each type: one that was not declared is an error at once."""
        for kind in set(map(type, found.values)):
            index = next(n for n, value in enumerate(found.values) if type(value) is kind)
            self._encoded(found.keys[index], found.values[index])

    def _encoded(self, key: Hashable, row: Any) -> bytes:
        try:
            return self.layout.encode(row)
        except CodecError as exc:
            raise UnstorableState(
                f"{self.what} cannot be stored for key {shown(key)}: {exc}"
            ) from exc

    def forget(self, key: Hashable) -> None:
        """Remove the row of ``key`` if there is one."""
        self.live_rows.pop(key, None)

    def clear(self) -> None:
        """Remove all rows."""
        self.rows.clear()
        if self.timed is not None:
            self.timed.clear()


class Tables:
    """The tables of one operator; iteration is in the order of declaration."""

    def __init__(self, operator: str, clock: Clock | None) -> None:
        self._operator = operator
        self._clock = clock
        self._tables: dict[str, Table] = {}
        #: Names and stored descriptions that fit the declared state. All key groups have the same ones.
        self._checked: set[tuple[str, bytes]] = set()
        #: The tables whose rows have a time to live.
        self.timed: Final[list[Table]] = []

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, number: int) -> Table:
        return next(table for table in self if table.number == number)

    def of(self, spec: StateSpec[Any]) -> Table:
        """Return the table of a declaration. Raises ``FlowDefinitionError`` if another one has its name."""
        table = self._tables.get(spec.name)
        if table is None:
            table = self._tables[spec.name] = self._new(spec)
            if table.timed is not None:
                self.timed.append(table)
        elif table.spec is not spec:
            raise FlowDefinitionError(
                f"step {self._operator!r} declares two states named {spec.name!r}; give each its own name"
            )
        return table

    def known(self, name: str) -> Table:
        """Return the table of ``name``. Raises ``FlowDefinitionError`` if there is none."""
        table = self._tables.get(name)
        if table is None:
            raise FlowDefinitionError(
                f"step {self._operator!r} has no state named {name!r}; it has: {self._names()}"
            )
        return table

    def stored(self, names: Mapping[str, Entries]) -> list[Table]:
        """Return the tables that have rows in a key group of a snapshot.

        A state that is described and has no rows need not be declared. Raises ``RestoreError`` for rows of a state
        that is not declared, or declared as another kind.
        """
        filled = {name for name, rows in names.items() if rows and not name.startswith(RESERVED)}
        for encoded_name, data in names.get(STATES, ()):
            if (name := encoded_name.decode()) in filled and (name, data) not in self._checked:
                table = self._declared(name)
                check_description(table.layout, data, what=table.what)
                self._checked.add((name, data))
        return [self._declared(name) for name in sorted(filled)]

    def described(self) -> dict[str, bytes]:
        """Return the description of each state for a snapshot."""
        return {table.name: description(table.layout) for table in self}

    def sweep(self) -> list[Hashable]:
        """Forget all expired rows and return their keys."""
        return [key for table in self.timed for key in table.timed_rows.sweep()]

    def _new(self, spec: StateSpec[Any]) -> Table:
        rows: dict[Hashable, Any] = {}
        what = f"state {spec.name!r} of step {self._operator!r}"
        return Table(
            spec, spec.layout(), rows, what, len(self._tables), self._timed_rows(spec, rows)
        )

    def _timed_rows(self, spec: StateSpec[Any], rows: dict[Hashable, Any]) -> TimedRows | None:
        if spec.ttl is None:
            return None
        if self._clock is None:
            raise InternalError(
                f"state {spec.name!r} of step {self._operator!r} has a ttl, and its backend has no clock"
            )
        ttl: Timestamp = to_millis(spec.ttl, what=f"the ttl of state {spec.name!r}")
        return TimedRows(rows, ttl, on_read=spec.ttl_on is TtlOn.READ, clock=self._clock)

    def _declared(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            raise RestoreError(
                f"the snapshot of step {self._operator!r} holds state {name!r}, which the step does not declare; "
                f"renamed or removed? declared: {self._names()}"
            )
        return table

    def _names(self) -> str:
        return ", ".join(map(repr, self._tables)) or "none"


def fits(names: Mapping[str, Entries], described: Mapping[str, bytes]) -> bool:
    """Return True if all rows of a key group have the types ``described``, as far as its snapshot describes them."""
    return all(
        described.get(name) == data
        for encoded_name, data in names.get(STATES, ())
        if names.get(name := encoded_name.decode())
    )
