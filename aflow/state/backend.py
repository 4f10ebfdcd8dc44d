"""What keeps the keyed state of one operator in one subtask."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, MutableMapping, Sequence
from typing import Any, Protocol, TypeVar

from aflow.state.cells import ValueCell
from aflow.state.keyed_entries import Keyed, KeyedRows, KeyGroupCodec
from aflow.state.specs import Cells, StateSpec, ValueState

C = TypeVar("C")
T = TypeVar("T")


class KeyedBackend(Cells, Protocol):
    """Keeps state for many keys; its cells read and write that of ``key``.

    All of it runs in the subtask's coroutine. The operator sets ``key`` before it calls user code and calls
    ``leave`` after it; in between, cells are used. Declarations are made known by asking for their cell.
    """

    key: Hashable
    """The current key."""

    key_codec: KeyGroupCodec

    def touch(self, keys: Sequence[Hashable]) -> None:
        """Say that the state of ``keys`` is about to be read and written; before any access to it.

        All at once: the state of other keys, touched before, may be out of reach for cells from here on. Raises
        ``TypeError`` for a key that cannot be hashed or, where the backend has to know, cannot be a key at all; a
        backend that writes state out raises ``OperatorError`` for a key or a value that cannot be encoded.
        """
        ...

    def leave(self) -> None:
        """There is no current key now: what still uses a cell raises ``OperatorError``."""
        ...

    def cell(self, spec: StateSpec[C]) -> C:
        """The cell of a declaration. Raises ``FlowDefinitionError`` if the name is taken by another one."""
        ...

    def stored_cell(self, spec: StateSpec[Any]) -> ValueCell[Any]:
        """The state of a declaration of any kind as one value: a list, a dict, an accumulator. Raises as ``cell`` does.

        It hands out what is stored itself, so nothing in it may be changed but by who sets it. An empty list or dict
        must not be set: clear the cell.
        """
        ...

    def table(self, spec: ValueState[T]) -> MutableMapping[Hashable, T]:
        """The values of all keys, for operators that handle whole batches.

        Its items are there for all keys, touched or not. Raises as ``cell`` does, and for state with a ``ttl``.
        """
        ...

    def capture(self, *, changes: bool) -> KeyedRows:
        """All state, or with ``changes`` that of the keys touched since the last capture, or since the restore.

        Values are encoded before it returns, so what is written later does not show in it. It is complete although
        ``changes`` were asked for if this is the first capture, or if so much has changed that changes are no shorter.
        Raises ``CheckpointError`` for a value that cannot be encoded.
        """
        ...

    def snapshot(self) -> Keyed:
        """All state as bytes; what is written later does not show in it.

        Raises ``CheckpointError`` for a key or a value that cannot be encoded.
        """
        ...

    def restore(self, keyed: Keyed) -> None:
        """Hold what ``keyed`` says about the key groups of this subtask, and nothing else. What is out of date goes.

        Comes after all declarations. Raises ``RestoreError`` for state that is not declared, or declared as another
        kind, and for bytes its type cannot read. Names that begin with ``@`` are left to their owner, the operator.
        """
        ...

    def get(self, name: str, key: Hashable) -> object | None:
        """What ``key`` has under ``name``, for reading from outside; None if it has nothing.

        A list or map is a copy, an aggregate its result. Raises ``FlowDefinitionError`` for an unknown name.
        """
        ...

    def keys(self, name: str) -> Iterable[Hashable]:
        """The keys that have something under ``name``, at this moment. Raises as ``get`` does."""
        ...

    def close(self) -> None:
        """Give back memory and files. What was captured stays as it is; nothing else can be done with the backend."""
        ...
