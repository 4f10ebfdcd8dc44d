"""Snapshots of the windows and timers of a window step, by key group, for a restore with any parallelism."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, cast

from aflow.errors import RestoreError, UnstorableState, shown
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.changed_keys import too_many
from aflow.operators.key_timers import TIMER_NAMES, DomainTimers
from aflow.operators.windows.contexts import window_text
from aflow.operators.windows.disk_windows import DiskWindows
from aflow.operators.windows.lateness import WindowLifetime
from aflow.operators.windows.merging_windows import MergingWindows
from aflow.operators.windows.separate_windows import SeparateWindows
from aflow.operators.windows.window_contents import EMPTY, KeyWindow, WindowContents
from aflow.operators.windows.window_state import PREFIX
from aflow.state.backend import WindowTimerQueue
from aflow.state.disk.away_rows import AwayRows
from aflow.state.gradual_capture import GradualCaptures, WaitingRows, are_many
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import (
    CombinedRows,
    Keyed,
    KeyedRows,
    KeyGroupCodec,
    KeyRow,
    RowColumns,
)
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import RESERVED
from aflow.state.tables import TOUCHED

#: Keyed state: window, firings, trigger memory and contents of each key.
WINDOW_ROWS: Final = "@key windows"

#: Lookups of a gradual capture in one piece: less than a millisecond.
_LOOKUPS: Final = 2048

Find: TypeAlias = Callable[[set[Hashable]], Iterable[KeyWindow]]
"""Returns the windows of some keys that are in memory."""

#: Operator state: the kinds of windows and contents.
_KIND: Final = "@kind of windows"

#: Reserved names that ``restore`` accepts: windows, timers, and the states of the backend.
_RESTORED: Final = frozenset({WINDOW_ROWS, *TIMER_NAMES.values(), "@states"})


def timer_row(timer: tuple[Timestamp, Hashable, TimeWindow]) -> KeyRow:
    """Return a timer as it is stored."""
    at, key, window = timer
    return key, PLAIN.encode([at, window.start, window.end])


class WindowSnapshots:
    """Encodes and restores windows and timers. Clean-up timers are not stored: they follow from the windows."""

    def __init__(
        self,
        key_codec: KeyGroupCodec,
        contents: WindowContents,
        windows: SeparateWindows | MergingWindows,
        lifetime: WindowLifetime,
        timers: DomainTimers[WindowTimerQueue],
        gradual: GradualCaptures,
        kinds: KeyKinds,
        disk: DiskWindows | None,
    ) -> None:
        self._key_codec = key_codec
        self._contents = contents
        self._windows = windows
        self._lifetime = lifetime
        self._timers = timers
        #: The captures that are collected in pieces, and the kinds of their keys.
        self._gradual = gradual
        self._kinds = kinds
        #: The windows on disk, if they are there.
        self._disk = disk
        if disk is not None:
            disk.rows.before_eviction = gradual.save
        self._kind = f"{windows.kind}, each with {contents.kind}"

    def kind(self) -> Mapping[str, tuple[bytes, ...]]:
        """Return the operator state by which ``restore`` checks that it can read a snapshot."""
        return {_KIND: (PLAIN.encode(self._kind),)}

    def capture(self, keys: set[Hashable] | None) -> KeyedRows:
        """Return the rows of the windows of ``keys``, or of all keys if there are as many changes.

        Raises ``CheckpointError`` for values that cannot be encoded.
        """
        count = len(self._windows)
        many = are_many(count)
        if keys is not None and many and len(keys) * 2 > count:
            keys = None
        if many if keys is None else are_many(len(keys)):
            return self._captured_gradually(keys)
        found = list(self._windows.of(keys))
        if keys is not None and too_many(keys, len(found), count):
            return self.capture(None)
        rows = RowColumns.of(self._entries(found))
        away = self._away(keys)
        return KeyedRows({WINDOW_ROWS: rows if away is None else CombinedRows(rows, away)}, keys)

    def _away(self, keys: set[Hashable] | None) -> AwayRows | None:
        return None if self._disk is None else self._disk.away(keys)

    def _captured_gradually(self, keys: set[Hashable] | None) -> KeyedRows:
        """Capture the rows of ``keys``, or of all keys; they are collected in pieces."""
        disk, away = self._disk, self._away(keys)
        find: Find = self._windows.of
        if disk is not None and away is not None:
            find = partial(disk.resident, among=away.resident)
        if keys is not None:
            most = max(1, _LOOKUPS // max(1, self._windows.dict_count))
            parts = [WaitingRows(list(keys), partial(self._rows, find), most)]
        elif disk is not None:
            parts = [WaitingRows(disk.resident_keys(), partial(self._rows, find))]
        else:
            parts = [
                WaitingRows(some, partial(self._rows, find_some))
                for some, find_some in self._windows.key_lists()
            ]
        capture = self._gradual.begin(
            parts or [WaitingRows([], partial(self._rows, find))], self._kinds, keys
        )
        rows: Iterable[KeyRow] = capture.rows[WINDOW_ROWS]
        if away is not None:
            rows = CombinedRows(rows, away)
        return KeyedRows({WINDOW_ROWS: rows}, keys, gather=capture.gather)

    def _rows(self, find: Find, keys: list[Hashable]) -> Mapping[str, RowColumns]:
        """Return rows under the ``keys``, which are observed, and not under equal ones of other types."""
        name_of = dict(zip(keys, keys, strict=True))
        rows = self._entries(find(set(keys)))
        return {WINDOW_ROWS: RowColumns.of((name_of[key], data) for key, data in rows)}

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[Sequence[Hashable]]:
        """Restore windows and timers; yields keys that were restored.

        Raises ``RestoreError`` for rows of another kind of step, and for invalid bytes.
        """
        keyed = snapshot.keyed
        self._check_names(keyed)
        self._check_kind(snapshot.operator.get(_KIND, ()))
        for keys, rows in self._key_codec.read_in_pieces(keyed, WINDOW_ROWS):
            self._windows.load(keys)
            for key, data in zip(keys, rows, strict=True):
                self._restore_one(key, data)
            yield keys
        for domain, timers in self._timers.queues.items():
            for some in self._timers.stored(domain, self._key_codec, keyed):
                for key, stored in some:
                    at, start, end = cast("tuple[int, int, int]", stored)  # written by timer_row
                    window = TimeWindow(start, end)
                    # Windows with a clean-up time do not need the number of their timers.
                    if timers.set(at, window, key) and self._lifetime.cleanup(window) is None:
                        for one in self._windows.find(window, [key]):
                            one.timers += 1
                yield ()  # after which windows may be evicted
        self._timers.on_restored()

    def _entries(self, found: Iterable[KeyWindow]) -> Iterator[KeyRow]:
        for one in found:
            try:
                held = None if one.held is EMPTY else self._contents.encode(one.held)
                entry = [self._windows.encode(one), one.firing, one.memory, held]
                yield one.key, PLAIN.encode(entry)
            except CodecError as exc:
                raise UnstorableState(
                    f"step {self._key_codec.operator!r} cannot store the contents of key {shown(one.key)} in the "
                    f"{window_text(one.window)}: {exc}"
                ) from exc

    def _restore_one(self, key: Hashable, data: bytes) -> None:
        try:
            bounds, firing, memory, held = cast(
                "tuple[list[int], int, dict[str, object] | None, bytes | None]", PLAIN.decode(data)
            )
            one: KeyWindow = self._windows.restore(key, bounds)
            one.firing = firing
            one.memory = memory
            one.held = EMPTY if held is None else self._contents.decode(held)
        except CodecError as exc:
            raise RestoreError(
                f"step {self._key_codec.operator!r} cannot read the contents of key {shown(key)} in a window: {exc}"
            ) from exc

    def _check_kind(self, stored: Iterable[bytes]) -> None:
        for kind in {str(PLAIN.decode(data)) for data in stored} - {self._kind}:
            raise RestoreError(
                f"step {self._key_codec.operator!r} has {self._kind}, and the snapshot holds {kind}; "
                f"give the changed step a new name"
            )

    def _check_names(self, keyed: Keyed) -> None:
        names = {name for names in self._key_codec.own(keyed) for name in names}
        for name in sorted(names - _RESTORED):
            if name.startswith(RESERVED) and not name.startswith((PREFIX, TOUCHED)):
                raise RestoreError(
                    f"the snapshot of step {self._key_codec.operator!r} holds {name!r}, which this kind of window step "
                    f"cannot restore; if its windows, trigger or function have changed, give the step a new name"
                )
