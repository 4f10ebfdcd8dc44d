"""State that a window function has for each key and window: declared like that of keys, gone with the window."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import OperatorContext
from aflow.state.keyed_entries import Keyed, KeyedRows, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import STATES, Entry
from aflow.state.specs import StateSpec

#: The names of its states in a snapshot begin so, since the state of keys may have the same names.
PREFIX: Final = "@window state "


class WindowState:
    """A backend whose keys are a key and a window, with the cells of ``specs``."""

    def __init__(
        self,
        context: OperatorContext,
        key_type: type[Hashable] | None,
        specs: Iterable[StateSpec[Any]],
    ) -> None:
        #: Files what belongs to keys alone too.
        self.key_codec: Final = _KeyAndWindowCodec(
            operator=context.name,
            key_type=key_type,
            key_groups=context.key_groups,
            key_group_count=context.key_group_count,
        )
        self._backend = MemoryBackend(self.key_codec, context.clock)
        self.cells: Final = {spec: self._backend.cell(spec) for spec in specs}

    def enter(self, key: Hashable, window: TimeWindow) -> None:
        """The cells are about ``key`` and ``window`` from here on."""
        at = KeyAndWindow(key, window)
        self._backend.touch((at,))
        self._backend.key = at

    def leave(self) -> None:
        """The cells are about nothing; who uses one raises ``OperatorError``."""
        self._backend.leave()

    def clear(self, key: Hashable, window: TimeWindow) -> None:
        """Forget all about ``key`` and ``window``."""
        if self.cells:
            self.enter(key, window)
            for cell in self.cells.values():
                cell.clear()
            self.leave()

    @property
    def entries(self) -> int:
        """How many cells hold something, counted by key and window."""
        return entries(self._backend, self.cells)

    def snapshot(self) -> Keyed:
        """Raises ``CheckpointError`` for what cannot be encoded."""
        return {
            group: {
                name if name == STATES else f"{PREFIX}{name}": (
                    _renamed(rows) if name == STATES else rows
                )
                for name, rows in names.items()
            }
            for group, names in self._backend.snapshot().items()
        }

    def capture(self, *, changes: bool) -> KeyedRows:
        """As a backend does, with keys and windows as keys. Raises ``CheckpointError`` for what cannot be encoded."""
        captured = self._backend.capture(changes=changes)
        return KeyedRows(
            {f"{PREFIX}{name}": rows for name, rows in captured.rows.items()},
            captured.keys,
            {f"{PREFIX}{name}": described for name, described in captured.described.items()},
        )

    def restore(self, keyed: Keyed) -> None:
        """Raises ``RestoreError`` as a backend does."""
        self._backend.restore(
            {
                group: {
                    STATES: _states(names, of_windows=True),
                    **{
                        name.removeprefix(PREFIX): rows
                        for name, rows in names.items()
                        if name.startswith(PREFIX)
                    },
                }
                for group, names in keyed.items()
            }
        )


def of_keys(keyed: Keyed) -> Keyed:
    """Of all state, that which belongs to keys and not to windows."""
    return {
        group: {
            **{name: rows for name, rows in names.items() if not name.startswith(PREFIX)},
            STATES: _states(names, of_windows=False),
        }
        for group, names in keyed.items()
    }


def entries(backend: MemoryBackend, specs: Iterable[StateSpec[Any]]) -> int:
    """How many keys have something, counted for each of ``specs``."""
    return sum(len(backend.keys(spec.name)) for spec in specs)


class KeyAndWindow(NamedTuple):
    """To what a state of a window belongs."""

    key: Hashable
    window: TimeWindow


def _renamed(states: Iterable[Entry]) -> tuple[Entry, ...]:
    """Descriptions of states of windows, apart from those of keys."""
    return tuple((PREFIX.encode() + name, described) for name, described in states)


def _states(names: Mapping[str, tuple[Entry, ...]], *, of_windows: bool) -> tuple[Entry, ...]:
    """The descriptions of the states of windows under their own names, or those of the states of keys."""
    prefix = PREFIX.encode()
    return tuple(
        (name.removeprefix(prefix), described)
        for name, described in names.get(STATES, ())
        if name.startswith(prefix) == of_windows
    )


class _KeyAndWindowCodec(KeyGroupCodec):
    """Files what belongs to a key and a window under the key group of the key, and so what belongs to the key alone."""

    def place(self, key: Hashable) -> tuple[int, bytes]:
        if not isinstance(key, KeyAndWindow):
            return super().place(key)
        group, data = super().place(key.key)
        return group, PLAIN.encode([data, key.window.start, key.window.end])

    def key(self, data: bytes) -> Hashable:
        try:
            key, start, end = cast("tuple[bytes, Timestamp, Timestamp]", PLAIN.decode(data))
        except CodecError as exc:
            raise RestoreError(
                f"step {self.operator!r} cannot read the key and window of a state: {exc}"
            ) from exc
        return KeyAndWindow(super().key(key), TimeWindow(start, end))
