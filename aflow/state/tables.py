"""The declared states of one operator, by name: what a backend holds of each, and how it is stored."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aflow.errors import CheckpointError, FlowDefinitionError, InternalError, RestoreError, shown
from aflow.model.codecs import CodecError
from aflow.model.time import Clock, Timestamp, to_millis
from aflow.state.filing import KeyRow
from aflow.state.layouts import Layout, check_description, description
from aflow.state.lifetimes import Lifetimes, encode_moment
from aflow.state.snapshot import STATES, Entry
from aflow.state.specs import RESERVED, StateSpec, TtlOn

#: In front of the name of a state with a time to live, in a snapshot: when the rows of the state were last touched. A
#: declaration without ``ttl`` leaves these rows alone, so that ``ttl`` may come and go.
TOUCHED: Final = f"{RESERVED}touched "


@dataclass(frozen=True, slots=True)
class Table:
    """The state of one name."""

    spec: StateSpec[Any]
    layout: Layout[Any]
    rows: dict[Hashable, Any]
    what: str
    """What errors call it."""
    number: int
    """Which one of its operator it is, from 0 on."""
    ttl: Lifetimes | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def lifetimes(self) -> Lifetimes:
        """For those who have seen that the state has a time to live."""
        if self.ttl is None:
            raise InternalError(f"{self.what} has no time to live")
        return self.ttl

    def held(self, key: Hashable) -> bool:
        """Whether ``key`` has something that is not out of date."""
        return key in self.rows if self.ttl is None else self.ttl.alive(key)

    def decoded(self, key: Hashable, data: bytes) -> Any:
        """Raises ``RestoreError``."""
        try:
            return self.layout.decode(data)
        except CodecError as exc:
            raise RestoreError(f"{self.what} cannot be read for key {shown(key)}: {exc}") from exc

    def captured(self, keys: Collection[Hashable] | None) -> Mapping[str, list[KeyRow]]:
        """The rows of ``keys``, or of all keys, under the names that they have in a snapshot; values are bytes.

        Raises ``CheckpointError`` for a value that cannot be encoded.
        """
        captured = list(self._encoded(keys))
        if self.ttl is None:
            return {self.name: captured}
        moment = self.ttl.moment
        touched = [(key, encode_moment(moment(key))) for key, _ in captured]
        return {self.name: captured, f"{TOUCHED}{self.name}": touched}

    def _encoded(self, keys: Collection[Hashable] | None) -> Iterator[KeyRow]:
        encode, rows = self.layout.encode, self.rows
        found: Iterable[tuple[Hashable, Any]] = rows.items()
        if keys is not None:
            found = ((key, rows[key]) for key in keys if key in rows)
        for key, stored in found:
            try:
                yield key, encode(stored)
            except CodecError as exc:
                raise CheckpointError(
                    f"{self.what} cannot be stored for key {shown(key)}: {exc}"
                ) from exc

    def forget(self, key: Hashable) -> None:
        """Remove the row of ``key`` if there is one."""
        if self.ttl is None:
            self.rows.pop(key, None)
        else:
            self.ttl.forget(key)

    def clear(self) -> None:
        self.rows.clear()
        if self.ttl is not None:
            self.ttl.clear()


class Tables:
    """The tables of one operator; iterated in the order of declaration."""

    def __init__(self, operator: str, clock: Clock | None) -> None:
        self._operator = operator
        self._clock = clock
        self._tables: dict[str, Table] = {}
        #: Those whose state has a time to live.
        self.timed: Final[list[Table]] = []

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, number: int) -> Table:
        return next(table for table in self if table.number == number)

    def of(self, spec: StateSpec[Any]) -> Table:
        """The table of a declaration. Raises ``FlowDefinitionError`` if another one has the name."""
        table = self._tables.get(spec.name)
        if table is None:
            table = self._tables[spec.name] = self._new(spec)
            if table.ttl is not None:
                self.timed.append(table)
        elif table.spec is not spec:
            raise FlowDefinitionError(
                f"step {self._operator!r} declares two states named {spec.name!r}; give each its own name"
            )
        return table

    def known(self, name: str) -> Table:
        """The table of a name. Raises ``FlowDefinitionError`` if there is none."""
        table = self._tables.get(name)
        if table is None:
            raise FlowDefinitionError(
                f"step {self._operator!r} has no state named {name!r}; it has: {self._names()}"
            )
        return table

    def stored(self, names: Mapping[str, tuple[Entry, ...]]) -> list[Table]:
        """The tables that have rows in a key group of a snapshot.

        A state may be described and have no rows any more: nobody need declare it. Raises ``RestoreError`` for state
        that is not declared, or declared as another kind.
        """
        filled = {name for name, rows in names.items() if rows and not name.startswith(RESERVED)}
        for encoded_name, data in names.get(STATES, ()):
            if (name := encoded_name.decode()) in filled:
                table = self._declared(name)
                check_description(table.layout, data, what=table.what)
        return [self._declared(name) for name in sorted(filled)]

    def as_declared(self, groups: Iterable[Mapping[str, tuple[Entry, ...]]]) -> bool:
        """Whether all rows in key groups of a snapshot are of the types that are declared now, as far as it tells."""
        described = self.described()
        return all(
            described.get(name) == data
            for names in groups
            for encoded_name, data in names.get(STATES, ())
            if names.get(name := encoded_name.decode())
        )

    def described(self) -> dict[str, bytes]:
        """What a snapshot says about the bytes of each state."""
        return {table.name: description(table.layout) for table in self}

    def sweep(self) -> list[Hashable]:
        """Forget what is out of date, and say of which keys."""
        return [key for table in self.timed for key in table.lifetimes.sweep()]

    def _new(self, spec: StateSpec[Any]) -> Table:
        rows: dict[Hashable, Any] = {}
        what = f"state {spec.name!r} of step {self._operator!r}"
        return Table(
            spec, spec.layout(), rows, what, len(self._tables), self._lifetimes(spec, rows)
        )

    def _lifetimes(self, spec: StateSpec[Any], rows: dict[Hashable, Any]) -> Lifetimes | None:
        if spec.ttl is None:
            return None
        if self._clock is None:
            raise InternalError(
                f"state {spec.name!r} of step {self._operator!r} has a ttl, and its backend was given no clock"
            )
        ttl: Timestamp = to_millis(spec.ttl, what=f"the ttl of state {spec.name!r}")
        return Lifetimes(rows, ttl, on_read=spec.ttl_on is TtlOn.READ, clock=self._clock)

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
