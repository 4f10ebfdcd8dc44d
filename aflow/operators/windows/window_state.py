"""State that a window function has for each key and window: declared like that of keys, gone with the window."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, cast

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import OperatorContext
from aflow.state.filing import Keyed, KeyedFiling
from aflow.state.memory import MemoryBackend
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
        self._backend = MemoryBackend(
            _KeyAndWindowFiling(
                operator=context.name,
                key_type=key_type,
                key_groups=context.key_groups,
                key_group_count=context.key_group_count,
            )
        )
        self.cells: Final = {spec: self._backend.cell(spec) for spec in specs}

    def enter(self, key: Hashable, window: TimeWindow) -> None:
        """The cells are about ``key`` and ``window`` from here on."""
        self._backend.key = (key, window)

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
            group: {f"{PREFIX}{name}": rows for name, rows in names.items()}
            for group, names in self._backend.snapshot().items()
        }

    def restore(self, keyed: Keyed) -> None:
        """Raises ``RestoreError`` as a backend does."""
        self._backend.restore(
            {
                group: {
                    name.removeprefix(PREFIX): rows
                    for name, rows in names.items()
                    if name.startswith(PREFIX)
                }
                for group, names in keyed.items()
            }
        )


def entries(backend: MemoryBackend, specs: Iterable[StateSpec[Any]]) -> int:
    """How many keys have something, counted for each of ``specs``."""
    return sum(len(backend.keys(spec.name)) for spec in specs)


class _KeyAndWindowFiling(KeyedFiling):
    """Files what belongs to ``(key, window)`` under the key group of the key."""

    def place(self, key: Hashable) -> tuple[int, bytes]:
        of_key, window = cast("tuple[Hashable, TimeWindow]", key)  # as `enter` sets it
        group, data = super().place(of_key)
        return group, PLAIN.encode([data, window.start, window.end])

    def _key(self, data: bytes) -> Hashable:
        try:
            key, start, end = cast("tuple[bytes, Timestamp, Timestamp]", PLAIN.decode(data))
        except CodecError as exc:
            raise RestoreError(
                f"step {self.operator!r} cannot read the key and window of a state: {exc}"
            ) from exc
        return super()._key(key), TimeWindow(start, end)
