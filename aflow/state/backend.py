"""The protocol of backends, which hold the keyed state of one operator in one subtask."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Protocol, TypeVar

from aflow.machines.timer_changes import Changes
from aflow.machines.timer_copy import TimerCopy
from aflow.machines.timer_queue import Timer
from aflow.machines.windows.window_timers import DueWindow
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.state.cells import ValueCell
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import Keyed, KeyedRows, KeyGroupCodec
from aflow.state.specs import StateSpec, ValueState

C = TypeVar("C")
T = TypeVar("T")


class KeyTimerQueue(Protocol):
    """The timers of one time domain by key; see ``machines.timer_queue``."""

    def __len__(self) -> int: ...
    @property
    def earliest(self) -> Timestamp | None: ...
    def register(self, time: Timestamp, key: Hashable, namespace: None) -> object: ...
    def delete(self, time: Timestamp, key: Hashable, namespace: None) -> object: ...
    def due_in_pieces(self, now: Timestamp) -> Iterator[Timer[Hashable, None] | None]: ...
    def keys(self) -> list[Hashable]: ...
    def copied(self) -> Iterable[tuple[Timestamp, Hashable, None]]: ...
    def copied_in_pieces(self) -> TimerCopy[Hashable, None]: ...
    def take_changes(self) -> Changes[Hashable, None] | None: ...


class WindowTimerQueue(Protocol):
    """The timers of one time domain by window and key; see ``machines.windows.window_timers``."""

    def __len__(self) -> int: ...
    @property
    def earliest(self) -> Timestamp | None: ...
    def set(self, time: Timestamp, window: TimeWindow, key: Hashable) -> bool: ...
    def set_for_all_keys(self, time: Timestamp, window: TimeWindow) -> None: ...
    def delete(self, time: Timestamp, window: TimeWindow, key: Hashable) -> bool: ...
    def due(self, now: Timestamp) -> Iterator[DueWindow]: ...
    def copied_in_pieces(self) -> TimerCopy[Hashable, TimeWindow]: ...
    def take_changes(self) -> Changes[Hashable, TimeWindow] | None: ...


class KeyedBackend(Protocol):
    """State of many keys; its cells read and write the state of ``key``.

    All calls are made in the subtask's coroutine. The operator sets ``key`` before it calls user code, which uses
    cells, and calls ``leave`` after it. A request for the cell of a declaration makes the declaration known.
    """

    key: Hashable
    """The current key."""

    key_codec: KeyGroupCodec

    def touch(self, keys: Sequence[Hashable]) -> None:
        """Announce access to the state of ``keys``. Required before any access.

        Afterwards cells may have no access to other keys that were touched before. Raises ``TypeError`` for a key that
        cannot be hashed or, if the backend encodes keys, is no valid key. A backend that writes state to disk raises
        ``OperatorError`` for a key or a value that cannot be encoded.
        """
        ...

    def leave(self) -> None:
        """Unset the current key: the use of a cell raises ``OperatorError`` from now on."""
        ...

    def cell(self, spec: StateSpec[C]) -> C:
        """Return the cell of a declaration. Raises ``FlowDefinitionError`` if another one has its name."""
        ...

    def stored_cell(self, spec: StateSpec[Any]) -> ValueCell[Any]:
        """Return a cell of state of any kind as one value: a list, a dict, an accumulator. Raises as ``cell`` does.

        Its value is the stored object itself, which only the caller of ``set`` may change. An empty list or dict must
        not be set: clear the cell.
        """
        ...

    def table(self, spec: ValueState[T]) -> MutableMapping[Hashable, T]:
        """Return the mapping of the values of all keys, touched or not, for operators that process whole batches.

        Raises as ``cell`` does, and for state with a ``ttl``.
        """
        ...

    def timers(self, domain: TimeDomain, kinds: KeyKinds) -> KeyTimerQueue:
        """Return an empty queue of timers by key, for a step that stores them itself; ``kinds`` observes the keys.

        Restore the backend before it: a backend on disk clears its database.
        """
        ...

    def capture(self, *, changes: bool) -> KeyedRows:
        """Capture all state, or with ``changes`` that of the keys touched since the last capture or the restore.

        Later writes are not visible in it: mutable values are encoded before it returns. The first capture is complete
        even with ``changes``, and so is one for which changes would not be shorter. Raises ``CheckpointError`` for a
        value that cannot be encoded; for an immutable one the iteration over the rows may raise it.
        """
        ...

    def snapshot(self) -> Keyed:
        """Return all state as bytes; later writes are not visible in it.

        Raises ``CheckpointError`` for a key or a value that cannot be encoded.
        """
        ...

    def restore_in_pieces(self, keyed: Keyed) -> Iterator[None]:
        """As ``restore``; yields after each millisecond or less. No other method may be called before its end, except
        ``close``.
        """
        ...

    def restore(self, keyed: Keyed) -> None:
        """Replace all state by that of ``keyed`` in the key groups of this subtask, except expired rows.

        Call it after all declarations. Raises ``RestoreError`` for state that is not declared, or declared as another
        kind, and for bytes that its type cannot read. It ignores names that begin with ``@``, which belong to the
        operator.
        """
        ...

    def get(self, name: str, key: Hashable) -> object | None:
        """Return the state ``name`` of ``key`` for readers outside of handlers; None if there is none.

        A list or map is a copy, an aggregate its result. Raises ``FlowDefinitionError`` for an unknown name.
        """
        ...

    def keys(self, name: str) -> Iterable[Hashable]:
        """Return the keys that have state ``name`` now. Raises as ``get`` does."""
        ...

    def close(self) -> None:
        """Release memory and files. Captures remain valid; no other method may be called afterwards."""
        ...
