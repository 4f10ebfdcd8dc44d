"""State of a window function by key and window: declared like keyed state, and cleared with the window."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from aflow.errors import RestoreError
from aflow.model.batch import Batch
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.keyed_state import keyed_backend, touch
from aflow.operators.windows.window_contents import KeyWindow
from aflow.state.backend_choice import make_backend
from aflow.state.keyed_entries import Keyed, KeyedRows, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import STATES, Entry
from aflow.state.specs import StateSpec
from aflow.state.stored_entries import Entries

#: Prefix of the state's names in snapshots, since keyed state may have the same names.
PREFIX: Final = "@window state "


class WindowState:
    """A backend whose keys are pairs of key and window, with the cells of ``specs``."""

    def __init__(
        self,
        context: OperatorContext,
        key_type: type[Hashable] | None,
        specs: Iterable[StateSpec[Any]],
    ) -> None:
        #: Places the rows of keys and those of keys and windows.
        self.key_codec: Final = _KeyAndWindowCodec(
            operator=context.name,
            key_type=key_type,
            key_groups=context.key_groups,
            key_group_count=context.key_group_count,
        )
        self._backend = make_backend(context.backend, self.key_codec, context.clock)
        self.cells: Final = {spec: self._backend.cell(spec) for spec in specs}

    def enter(self, key: Hashable, window: TimeWindow) -> None:
        """Set the key and window of the cells."""
        at = KeyAndWindow(key, window.start, window.end)
        self._backend.touch((at,))
        self._backend.key = at

    def touch(self, some: Iterable[KeyWindow]) -> None:
        """Announce access to the states of some windows, which are read at once."""
        self._backend.touch(
            [KeyAndWindow(one.key, one.window.start, one.window.end) for one in some]
        )

    def leave(self) -> None:
        """Unset the key and window; using a cell then raises ``OperatorError``."""
        self._backend.leave()

    def clear(self, key: Hashable, window: TimeWindow) -> None:
        """Clear all state of ``key`` and ``window``."""
        if self.cells:
            self.enter(key, window)
            for cell in self.cells.values():
                cell.clear()
            self.leave()

    @property
    def entries(self) -> int:
        """Count the cells that are not empty, by key and window."""
        return entries(self._backend, self.cells)

    def capture(self, *, changes: bool) -> KeyedRows:
        """Return the rows as a backend does, by key and window. Raises ``CheckpointError`` for values that cannot be
        encoded.
        """
        captured = self._backend.capture(changes=changes)
        return KeyedRows(
            {f"{PREFIX}{name}": rows for name, rows in captured.rows.items()},
            captured.keys,
            {f"{PREFIX}{name}": described for name, described in captured.described.items()},
            captured.gather,
        )

    def restore_in_pieces(self, keyed: Keyed) -> Iterator[None]:
        """Restore the rows of windows. Raises ``RestoreError`` as a backend does."""
        return self._backend.restore_in_pieces(
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

    def close(self) -> None:
        """Release memory and files."""
        self._backend.close()


class FunctionStates:
    """The state of a window function by key, and by key and window if windows do not merge."""

    def __init__(
        self,
        context: OperatorContext,
        key_type: type[Hashable] | None,
        specs: Sequence[StateSpec[Any]],
        *,
        merging: bool,
    ) -> None:
        #: False for a function without state: then nothing is announced.
        self._declared: Final = bool(specs)
        self.backend: Final = keyed_backend(context, key_type)
        #: None if windows merge.
        self.of_windows: Final = None if merging else WindowState(context, key_type, specs)

    @property
    def key_codec(self) -> KeyGroupCodec:
        """Places the rows of keys, and those of keys and windows."""
        return self.backend.key_codec if self.of_windows is None else self.of_windows.key_codec

    def touch_batch(self, operator: Operator, batch: Batch[Any]) -> None:
        """Announce access to the states of the keys of ``batch``. Raises ``OperatorError``."""
        if self._declared:
            touch(operator, self.backend, batch)

    def touch(self, some: Sequence[KeyWindow]) -> None:
        """Announce access to the states of some windows and of their keys."""
        if self._declared:
            self.backend.touch([one.key for one in some])
            if self.of_windows is not None:
                self.of_windows.touch(some)

    def capture(self, *, changes: bool) -> list[KeyedRows]:
        """Return the rows of keys, and those of keys and windows. Raises as a backend does."""
        if not self._declared:
            return []
        states = [self.backend.capture(changes=changes)]
        if self.of_windows is not None:
            states.append(self.of_windows.capture(changes=changes))
        return states

    def restore_in_pieces(self, keyed: Keyed) -> Iterator[None]:
        """Restore all rows. Raises ``RestoreError`` as a backend does."""
        yield from self.backend.restore_in_pieces(_without_window_states(keyed))
        if self.of_windows is not None:
            yield from self.of_windows.restore_in_pieces(keyed)

    def close(self) -> None:
        """Release memory and files."""
        self.backend.close()
        if self.of_windows is not None:
            self.of_windows.close()


def _without_window_states(keyed: Keyed) -> Keyed:
    """Return the rows that belong to keys and not to windows."""
    return {
        group: {
            **{name: rows for name, rows in names.items() if not name.startswith(PREFIX)},
            STATES: _states(names, of_windows=False),
        }
        for group, names in keyed.items()
    }


def entries(backend: MemoryBackend, specs: Iterable[StateSpec[Any]]) -> int:
    """Count the keys that have state, for each of ``specs``."""
    return sum(len(backend.keys(spec.name)) for spec in specs)


class KeyAndWindow(NamedTuple):
    """Key of a state of a window."""

    key: Hashable
    start: Timestamp
    end: Timestamp


def _states(names: Mapping[str, Entries], *, of_windows: bool) -> tuple[Entry, ...]:
    """Return the descriptions of the states of windows without their prefix, or those of the states of keys."""
    prefix = PREFIX.encode()
    return tuple(
        (name.removeprefix(prefix), described)
        for name, described in names.get(STATES, ())
        if name.startswith(prefix) == of_windows
    )


class _KeyAndWindowCodec(KeyGroupCodec):
    """Places the state of a key and window, like that of a key, in the key group of the key."""

    def group_of(self, key: Hashable) -> int:
        return super().group_of(key.key if isinstance(key, KeyAndWindow) else key)

    def _encoder(self, key_type: type[Hashable] | None) -> Callable[[Hashable], bytes]:
        of_key = super()._encoder(key_type)

        def encoded(key: Hashable) -> bytes:
            if not isinstance(key, KeyAndWindow):
                return of_key(key)
            return PLAIN.encode([of_key(key.key), key.start, key.end])

        return encoded

    def keys(self, stored: Sequence[bytes]) -> list[Hashable]:
        return list(map(self.key, stored))

    def key(self, data: bytes) -> Hashable:
        try:
            key, start, end = cast("tuple[bytes, Timestamp, Timestamp]", PLAIN.decode(data))
        except CodecError as exc:
            raise RestoreError(
                f"step {self.operator!r} cannot read the key and window of a state: {exc}"
            ) from exc
        return KeyAndWindow(super().key(key), start, end)
