"""Cells of a transaction: what is committed, and over it what the transaction has written.

Theory. A cell looks at what is committed as one value, the *row*: the value itself, a list, a dict, an accumulator. It
never changes a row, and what it hands out of one is a copy of the user's own (see ``own_copies``); so whatever a
handler does with what it got, the row is as it was if the transaction is dropped. What it writes is kept beside the
row, and put into it by ``commit``, which calls no code of the user's and so cannot fail half-way on account of it.

Nobody else writes the row of the transaction's key, so it is looked up once. If it has a time to live, it is looked up
for each read, and a row that is out of date is not there; from the first write that needed the row on, it is the row
that was there then, even if its time comes before the transaction is committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, overload

from aflow.errors import OperatorError
from aflow.state.aggregate import Aggregate
from aflow.state.cells import ValueCell
from aflow.state.own_copies import own_copy

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
R = TypeVar("R")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class Nothing(Enum):
    """What stands for a row where there is none: None can be one."""

    HERE = "nothing"


_NOTHING: Final = Nothing.HERE

_Row: TypeAlias = R | Literal[Nothing.HERE]


class Transacting(Protocol):
    """What a cell needs of its transaction."""

    over: bool

    def read(self, stored: ValueCell[Any], default: object) -> Any:
        """What ``stored`` has for the key of the transaction."""
        ...

    def was_over(self) -> OperatorError:
        """What to raise when a cell is used after the end."""
        ...


class TransactionCell(ABC, Generic[R]):
    """One state of one key, for the time of one transaction; ``R`` is its row."""

    __slots__ = ("_known", "_of", "_row", "_stored", "_timed", "written")

    def __init__(self, of: Transacting, stored: ValueCell[R], *, timed: bool) -> None:
        self._of = of
        self._stored = stored
        self._timed = timed
        #: Whether `_row` is to be looked up no more.
        self._known = False
        self._row: _Row[R] = _NOTHING
        self.written = False

    def _look(self) -> _Row[R]:
        """The row. Raises ``OperatorError`` after the end."""
        of = self._of
        if of.over:
            raise of.was_over()
        if not self._known:
            self._row = of.read(self._stored, _NOTHING)
            self._known = not self._timed
        return self._row

    def _write(self) -> None:
        """The row is going to be changed, so it counts from here on. Raises ``OperatorError`` after the end."""
        if self._of.over:
            raise self._of.was_over()
        self._known = self.written = True

    def _replace(self) -> None:
        """Whatever the row is, it counts no more. Raises ``OperatorError`` after the end."""
        self._write()
        self._row = _NOTHING

    def commit(self) -> None:
        """Store what was written; the transaction has made its key the current one, and is over."""
        row = self._changed()
        if row is _NOTHING:
            self._stored.clear()
        else:
            self._stored.set(row)

    @abstractmethod
    def _changed(self) -> _Row[R]:
        """The row with all that was written."""

    @abstractmethod
    def clear(self) -> None:
        """Forget the row, and what was written."""


class _WholeCell(TransactionCell[R]):
    """A row that is replaced as a whole: after the first read or write it is a copy of the transaction's own."""

    __slots__ = ("_owned",)

    def __init__(self, of: Transacting, stored: ValueCell[R], *, timed: bool) -> None:
        super().__init__(of, stored, timed=timed)
        #: Whether `_row` belongs to the transaction.
        self._owned = False

    def _own(self) -> _Row[R]:
        # Hot path: the first read of most transactions.
        row = self._look()
        if not (self._owned and self._known):
            row = self._row = own_copy(row)
            self._owned = True
        return row

    def _put(self, row: R) -> None:
        of = self._of
        if of.over:
            raise of.was_over()
        self._row = row
        self._owned = self._known = self.written = True

    def _changed(self) -> _Row[R]:
        return self._row

    def clear(self) -> None:
        self._replace()


class TransactionValueCell(_WholeCell[T]):
    __slots__ = ()

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T | D) -> T | D: ...
    def get(self, default: T | D | None = None) -> T | D | None:
        row = self._own()
        return default if row is _NOTHING else row

    def set(self, value: T) -> None:
        self._put(value)


class TransactionReducingCell(_WholeCell[T]):
    __slots__ = ("_fn",)

    def __init__(
        self, of: Transacting, stored: ValueCell[T], fn: Callable[[T, T], T], *, timed: bool
    ) -> None:
        super().__init__(of, stored, timed=timed)
        self._fn = fn

    def add(self, value: T) -> None:
        row = self._own()
        self._put(value if row is _NOTHING else self._fn(row, value))

    def get(self) -> T | None:
        row = self._own()
        return None if row is _NOTHING else row


class TransactionAggregatingCell(_WholeCell[ACC], Generic[IN, ACC, OUT]):
    __slots__ = ("_aggregate",)

    def __init__(
        self,
        of: Transacting,
        stored: ValueCell[ACC],
        aggregate: Aggregate[IN, ACC, OUT],
        *,
        timed: bool,
    ) -> None:
        super().__init__(of, stored, timed=timed)
        self._aggregate = aggregate

    def add(self, value: IN) -> None:
        row, aggregate = self._own(), self._aggregate
        self._put(aggregate.add(aggregate.create() if row is _NOTHING else row, value))

    def get(self) -> OUT | None:
        # Of the copy: a result may be a part of its accumulator.
        row = self._own()
        return None if row is _NOTHING else self._aggregate.result(row)


class TransactionListCell(TransactionCell[list[T]]):
    __slots__ = ("_added",)

    def __init__(self, of: Transacting, stored: ValueCell[list[T]], *, timed: bool) -> None:
        super().__init__(of, stored, timed=timed)
        #: What comes behind the row.
        self._added: list[T] = []

    def get(self) -> list[T]:
        row = self._look()
        return [*self._added] if row is _NOTHING else [*map(own_copy, row), *self._added]

    def add(self, value: T) -> None:
        self._look()
        self._write()
        self._added.append(value)

    def extend(self, values: Iterable[T]) -> None:
        more = list(values)
        self._look()
        self._write()
        self._added += more

    def set(self, values: Iterable[T]) -> None:
        kept = list(values)
        self._replace()
        self._added = kept

    def clear(self) -> None:
        self._replace()
        self._added = []

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __len__(self) -> int:
        row = self._look()
        return len(self._added) if row is _NOTHING else len(row) + len(self._added)

    def _changed(self) -> _Row[list[T]]:
        row, added = self._row, self._added
        if row is _NOTHING:
            return added or _NOTHING
        row += added  # in place: it would take long to copy a long list
        return row


class TransactionMapCell(TransactionCell[dict[K, V]]):
    __slots__ = ("_gone", "_put")

    def __init__(self, of: Transacting, stored: ValueCell[dict[K, V]], *, timed: bool) -> None:
        super().__init__(of, stored, timed=timed)
        #: Keys of the row that were removed. One that was put afterwards is here too: its entry is a new, last one.
        self._gone: set[K] = set()
        #: What was put, in order.
        self._put: dict[K, V] = {}

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        row = self._look()
        if key in self._put:
            return self._put[key]
        if row is _NOTHING or key not in row or key in self._gone:
            return default
        return own_copy(row[key])

    def put(self, key: K, value: V) -> None:
        self._look()
        self._put[key] = value
        self._write()

    def remove(self, key: K) -> bool:
        if key not in self:
            return False
        self._write()
        self._put.pop(key, None)
        if self._row is not _NOTHING and key in self._row:
            self._gone.add(key)
        return True

    def items(self) -> list[tuple[K, V]]:
        put = self._put
        return [
            (key, put[key] if key in put else own_copy(value)) for key, value in self._entries()
        ]

    def keys(self) -> list[K]:
        return [key for key, _ in self._entries()]

    def values(self) -> list[V]:
        return [value for _, value in self.items()]

    def clear(self) -> None:
        self._replace()
        self._put = {}  # and what is gone of the row is of no interest without it

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        row = self._look()
        return key in self._put or (row is not _NOTHING and key in row and key not in self._gone)

    def __len__(self) -> int:
        row, put = self._look(), self._put
        if row is _NOTHING:
            return len(put)
        return len(row) - len(self._gone) + sum(key not in row or key in self._gone for key in put)

    def _entries(self) -> Iterator[tuple[K, V]]:
        """In order; for a key of the row whose value was put anew the value is the former one."""
        row, gone, put = self._look(), self._gone, self._put
        if row is _NOTHING:
            return iter(put.items())
        return chain(
            ((key, value) for key, value in row.items() if key not in gone),
            ((key, value) for key, value in put.items() if key not in row or key in gone),
        )

    def _changed(self) -> _Row[dict[K, V]]:
        row = self._row
        if row is _NOTHING:
            return self._put or _NOTHING
        for key in self._gone:  # in place, as lists are
            del row[key]
        row.update(self._put)
        return row or _NOTHING
