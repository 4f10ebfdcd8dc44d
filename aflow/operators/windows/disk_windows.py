"""Windows that do not merge, with their contents on disk: the rows of one window are those of one number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias, cast

from aflow.model.codecs import PLAIN, decode_all
from aflow.model.windows import TimeWindow
from aflow.operators.base import OperatorContext
from aflow.operators.keyed_state import key_group_codec
from aflow.operators.windows.lateness import WindowLifetime
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.window_contents import EMPTY, KeyWindow, WindowContents
from aflow.state.backend_choice import OnDisk, make_scratch
from aflow.state.disk.ranged_rows import Numbered, RangedRows
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyRow

_Parts: TypeAlias = tuple[list[int], int, dict[str, object] | None, bytes | None, int]
"""Bounds, number of firings, memory of the trigger, contents, and number of timers."""


class KeyWindowRows:
    """Encodes the contents of a key in a window: as in a snapshot, with the number of its timers."""

    def __init__(self, contents: WindowContents, lifetime: WindowLifetime) -> None:
        self._contents = contents
        self._lifetime = lifetime

    def encode(self, row: KeyWindow) -> bytes:
        """Return the bytes of a row. Raises ``CodecError``."""
        held = None if row.held is EMPTY else self._contents.encode(row.held)
        bounds = [row.window.start, row.window.end]
        return PLAIN.encode([bounds, row.firing, row.memory, held, row.timers])

    def encode_all(self, rows: Sequence[KeyWindow]) -> list[bytes]:
        """Return the bytes of rows. Raises ``CodecError``."""
        return list(map(self.encode, rows))

    def decode_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[KeyWindow]:
        """Return the rows of ``keys``."""
        rows = cast("list[_Parts]", decode_all(PLAIN, stored))
        return [self._decoded(key, parts) for key, parts in zip(keys, rows, strict=True)]

    def _decoded(self, key: Hashable, parts: _Parts) -> KeyWindow:
        (start, end), firing, memory, held, timers = parts
        window = TimeWindow(start, end)
        one = KeyWindow(key, window, self._lifetime.cleanup(window))
        one.firing, one.memory, one.timers = firing, memory, timers
        one.held = EMPTY if held is None else self._contents.decode(held)
        return one


def entries_of(number: int, key: Hashable, data: bytes) -> tuple[KeyRow]:
    """Return the entry of a row for a snapshot."""
    parts = cast("list[object]", PLAIN.decode(data))
    return ((key, PLAIN.encode(parts[:-1])),)


class DiskWindows:
    """The rows of all windows of a step, and the ``recent`` ones of ``RangedRows``."""

    def __init__(self, rows: RangedRows, recent: Numbered) -> None:
        self.rows: Final = rows
        self.recent: Final = recent
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


def disk_windows(
    context: OperatorContext,
    logic: WindowLogic,
    kinds: KeyKinds,
    contents: WindowContents,
    lifetime: WindowLifetime,
) -> DiskWindows | None:
    """Return the rows of a step with ``OnDisk``; None for one in memory, as one with merging windows always is."""
    choice = context.backend
    if logic.assigner.merging or not isinstance(choice, OnDisk):
        return None
    key_codec = key_group_codec(context, logic.key_type)
    recent: Numbered = {}
    codec = KeyWindowRows(contents, lifetime)
    scratch = make_scratch(choice, context.name)
    rows = RangedRows(recent, codec, key_codec, scratch, choice.resident, kinds)
    return DiskWindows(rows, recent)


def _unwanted(keys: Sequence[Hashable]) -> bool:
    return False
