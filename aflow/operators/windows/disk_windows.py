"""Windows of the general operator with their contents on disk.

Windows that do not merge have a number each, with a row for each key. Windows that merge have one number, with a row
for each key, which has all windows of the key. Their timers are in the same database.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

from aflow.machines.windows.merging_window_set import MergeFunction
from aflow.model.codecs import PLAIN, decode_all
from aflow.model.time import TimeDomain
from aflow.model.windows import TimeWindow
from aflow.operators.base import OperatorContext
from aflow.operators.keyed_state import key_group_codec
from aflow.operators.windows.key_window_set import KeyWindowSet
from aflow.operators.windows.lateness import WindowLifetime
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.window_contents import EMPTY, KeyWindow, WindowContents
from aflow.state.backend_choice import OnDisk, make_scratch
from aflow.state.disk.away_rows import AwayRows
from aflow.state.disk.ranged_rows import Numbered, RangedRows
from aflow.state.disk.window_timers import DiskWindowTimers
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyRow

_Parts: TypeAlias = tuple[list[int], int, dict[str, object] | None, bytes | None, int]
"""Bounds, number of firings, memory of the trigger, contents, and number of timers; stored as a list."""


class _KeyWindowCodec:
    """Encodes the contents of a key in a window: as in a snapshot, with the number of its timers."""

    def __init__(self, contents: WindowContents, lifetime: WindowLifetime) -> None:
        self._contents = contents
        self._lifetime = lifetime

    def parts(self, bounds: list[int], one: KeyWindow) -> list[object]:
        """Return what is encoded of ``one``. Raises ``CodecError``."""
        held = None if one.held is EMPTY else self._contents.encode(one.held)
        return [bounds, one.firing, one.memory, held, one.timers]

    def decoded(self, key: Hashable, parts: _Parts) -> KeyWindow:
        """Return the entry of a key. Raises ``CodecError``."""
        (start, end, *_), firing, memory, held, timers = parts
        window = TimeWindow(start, end)
        one = KeyWindow(key, window, self._lifetime.cleanup(window))
        one.firing, one.memory, one.timers = firing, memory, timers
        one.held = EMPTY if held is None else self._contents.decode(held)
        return one


class KeyWindowRows:
    """Rows of one ``KeyWindow``, for windows that do not merge."""

    def __init__(self, codec: _KeyWindowCodec) -> None:
        self._codec = codec

    def encode(self, row: KeyWindow) -> bytes:
        """Return the bytes of a row. Raises ``CodecError``."""
        return PLAIN.encode(self._codec.parts([row.window.start, row.window.end], row))

    def encode_all(self, rows: Sequence[KeyWindow]) -> list[bytes]:
        """Return the bytes of rows. Raises ``CodecError``."""
        return list(map(self.encode, rows))

    def decode_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[KeyWindow]:
        """Return the rows of ``keys``."""
        rows = cast("list[_Parts]", decode_all(PLAIN, stored))
        return list(map(self._codec.decoded, keys, rows))

    def entries(self, number: int, key: Hashable, data: bytes) -> Sequence[KeyRow]:
        """Return the entry of a row for a snapshot."""
        return (_entry(key, cast("_Parts", PLAIN.decode(data))),)

    def windows(self, row: KeyWindow) -> Iterable[KeyWindow]:
        """Return the windows of a row."""
        return (row,)


class KeyWindowSetRows:
    """Rows of one ``KeyWindowSet``, for windows that merge."""

    def __init__(self, codec: _KeyWindowCodec, merging: MergeFunction) -> None:
        self._codec = codec
        self._merging = merging

    def encode(self, row: KeyWindowSet) -> bytes:
        """Return the bytes of a row. Raises ``CodecError``."""
        parts = self._codec.parts
        return PLAIN.encode(
            [
                parts([one.window.start, one.window.end, state.start, state.end], one)
                for state, one in row.states.items()
            ]
        )

    def encode_all(self, rows: Sequence[KeyWindowSet]) -> list[bytes]:
        """Return the bytes of rows. Raises ``CodecError``."""
        return list(map(self.encode, rows))

    def decode_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[KeyWindowSet]:
        """Return the rows of ``keys``."""
        rows = cast("list[list[_Parts]]", decode_all(PLAIN, stored))
        return list(map(self._decoded, keys, rows))

    def entries(self, number: int, key: Hashable, data: bytes) -> Sequence[KeyRow]:
        """Return the entries of a row for a snapshot."""
        return [_entry(key, parts) for parts in cast("list[_Parts]", PLAIN.decode(data))]

    def windows(self, row: KeyWindowSet) -> Iterable[KeyWindow]:
        """Return the windows of a row."""
        return row.states.values()

    def _decoded(self, key: Hashable, row: list[_Parts]) -> KeyWindowSet:
        of_key = KeyWindowSet(key, self._merging)
        for parts in row:
            one = self._codec.decoded(key, parts)
            state = TimeWindow(parts[0][2], parts[0][3])
            of_key.windows.restore(one.window, state)
            of_key.states[state] = one
        return of_key


def _entry(key: Hashable, parts: _Parts) -> KeyRow:
    return key, PLAIN.encode(parts[:-1])


class DiskWindows:
    """The rows of all windows of a step, and the ``recent`` ones of ``RangedRows``."""

    def __init__(
        self,
        rows: RangedRows,
        recent: Numbered,
        codec: KeyWindowRows | KeyWindowSetRows,
        lifetime: WindowLifetime,
    ) -> None:
        self.rows: Final = rows
        self.recent: Final = recent
        self._codec = codec
        self._lifetime = lifetime
        self._next = 0

    def new_number(self) -> int:
        """Return the number of a new window."""
        number, self._next = self._next, self._next + 1
        self.recent[number] = {}
        return number

    def drop(self, number: int) -> None:
        """Remove a window without rows."""
        del self.recent[number]
        for _ in self.rows.drop(number, _unwanted):
            pass

    def timers(self, domain: TimeDomain, kinds: KeyKinds) -> DiskWindowTimers:
        """Return an empty queue of timers in the same database; ``kinds`` observes their keys.

        It counts the timers of windows that are not cleaned up: those are removed when they have none.
        """
        return self.rows.window_timers(domain, kinds, self._is_kept)

    def resident(
        self,
        keys: set[Hashable] | None,
        among: Mapping[int, Container[Hashable]] | None = None,
    ) -> Iterator[KeyWindow]:
        """Yield the windows in memory: of ``keys``, or of all keys. In a number of ``among``, of its keys only."""
        windows = self._codec.windows
        for number, key, row in self.rows.resident(keys):
            if among is None or number not in among or key in among[number]:
                yield from windows(row)

    def resident_keys(self) -> list[Hashable]:
        """Return the keys that have windows in memory."""
        return list(self.rows.resident_keys())

    def away(self, keys: set[Hashable] | None) -> AwayRows | None:
        """Return the entries for a snapshot that are not in memory, of ``keys`` or of all; None if there are none."""
        return self.rows.stored(keys, self._codec.entries)

    def _is_kept(self, window: TimeWindow) -> bool:
        return self._lifetime.cleanup(window) is None


def disk_windows(
    context: OperatorContext,
    logic: WindowLogic,
    kinds: KeyKinds,
    contents: WindowContents,
    lifetime: WindowLifetime,
) -> DiskWindows | None:
    """Return the rows of a step with ``OnDisk``; None for one in memory."""
    choice = context.backend
    if not isinstance(choice, OnDisk):
        return None
    codec = _KeyWindowCodec(contents, lifetime)
    row_codec = (
        KeyWindowSetRows(codec, logic.assigner.merge)
        if logic.assigner.merging
        else KeyWindowRows(codec)
    )
    key_codec = key_group_codec(context, logic.key_type)
    recent: Numbered = {}
    scratch = make_scratch(choice, context.name)
    rows = RangedRows(recent, row_codec, key_codec, scratch, choice.resident, kinds)
    return DiskWindows(rows, recent, row_codec, lifetime)


def _unwanted(keys: Sequence[Hashable]) -> bool:
    return False
