"""The watermarks of splits, or of a mixed stream, in the state of an ``event_time`` step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from aflow.errors import RestoreError, shown
from aflow.model.codecs import PLAIN
from aflow.model.time import Timestamp
from aflow.state.snapshot import OperatorSnapshot

#: Id of the only split of a stream downstream of an exchange.
MIXED: Final = ""

#: Name of the operator state: the watermark of each split.
STATE: Final = "watermarks"

#: Marks a split of which its source has said that it is idle.
_IDLE: Final = "idle"


def stored_watermarks(
    known: Mapping[str, Timestamp], silent: Collection[str], here: tuple[int, int]
) -> tuple[bytes, ...]:
    """Return the parts of the state ``STATE``: the ``known`` watermarks by split.

    ``silent`` are the splits of which the source has said that they are idle. ``here`` is the subtask and its
    parallelism, which are stored for a mixed stream.
    """
    parts: list[tuple[object, ...]] = []
    for split, at in known.items():
        if split == MIXED:
            parts.append((split, at, *here))
        else:
            parts.append((split, at, _IDLE) if split in silent else (split, at))
    return tuple(PLAIN.encode(part) for part in parts)


class RestoredWatermarks:
    """Restored watermarks of splits that have not begun again yet."""

    __slots__ = ("_silent", "splits")

    def __init__(self) -> None:
        self.splits: dict[str, Timestamp] = {}
        #: Splits of which the source had said that they are idle.
        self._silent: set[str] = set()

    def pop(self, split: str) -> tuple[Timestamp | None, bool]:
        """Remove ``split``. Return its watermark, None if it is unknown, and True if its source has called it idle."""
        silent = split in self._silent
        self._silent.discard(split)
        return self.splits.pop(split, None), silent

    def read(self, snapshot: OperatorSnapshot, step: str, here: tuple[int, int]) -> None:
        """Read the parts of a snapshot. Raises ``RestoreError`` for an invalid state.

        Of several watermarks of one split the latest counts: the others are older copies, in subtasks that read no
        split, and without idleness. A mixed stream continues at its watermark; with another parallelism, at that of the
        slowest subtask, since its records are mixed anew.
        """
        mixed: dict[tuple[int, int], Timestamp] = {}
        for part in snapshot.operator.get(STATE, ()):
            match PLAIN.decode(part):
                case (str(split), int(watermark)):
                    self._add(split, watermark)
                case (str(split), int(watermark), str(mark)) if mark == _IDLE:
                    self._add(split, watermark)
                    if self.splits[split] == watermark:
                        self._silent.add(split)
                case (str(), int(watermark), int(subtask), int(parallelism)):
                    mixed[subtask, parallelism] = watermark
                case other:
                    raise RestoreError(
                        f"step {step!r}: {shown(other)} is not a split and its watermark"
                    )
        if mixed:
            self.splits[MIXED] = mixed.get(here, min(mixed.values()))

    def _add(self, split: str, watermark: Timestamp) -> None:
        before = self.splits.get(split, watermark)
        self.splits[split] = max(before, watermark)
        if watermark > before:
            self._silent.discard(split)
