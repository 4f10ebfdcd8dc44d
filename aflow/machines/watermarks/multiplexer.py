"""The watermark of a source, combined from those of its splits.

Theory. As in the valve, the combined watermark is the minimum over the active splits, and never goes back. Unlike
there, splits are added and removed, and a source reports a split in one of two ways: *immediately* (the combined
watermark is computed at once) or *deferred* (it is stored, and counts at the next computation, at the latest in the
next ``on_periodic``).

- A new split holds the watermark until it has one: its first record may be an old one. Once it is removed (read to its
  end, even if it was empty, or assigned to another subtask) it does not.
- A watermark makes an idle split active. The split counts at once; while it is below the combined watermark, that does
  not advance.
- If all splits are idle, the source is idle, and the watermark is unchanged. (The valve flushes the maximum there. An
  idle split often only pauses between two fetches, and its next record must not be late.) A source without splits is
  not idle and has no watermark to emit.

``on_…`` return the combined watermark (epoch ms) if it advanced, otherwise None; ``idle`` is True if the source was
idle at the last computation.
"""

from __future__ import annotations

from aflow.errors import InternalError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp


class SplitMultiplexer:
    """Combines the watermarks and the idleness of splits, by their ids."""

    __slots__ = ("_active", "_idle", "idle", "watermark")

    def __init__(self) -> None:
        #: The last combined watermark; never goes back. ``MIN_TIMESTAMP`` before the first.
        self.watermark: Timestamp = MIN_TIMESTAMP
        #: True if there are splits and all of them are idle.
        self.idle = False
        #: The newest watermark of each active split. A split is in this dict or in `_idle`, never in both.
        self._active: dict[str, Timestamp] = {}
        #: The newest watermark of each idle split.
        self._idle: dict[str, Timestamp] = {}

    def add(self, split: str) -> None:
        """Add ``split``, which holds the watermark from now on."""
        if split in self._active or split in self._idle:
            raise InternalError(f"split {split!r} was added already")
        self._active[split] = MIN_TIMESTAMP

    def remove(self, split: str) -> bool:
        """Remove ``split``; False if it is unknown. The effect on the watermark is returned by ``on_periodic``."""
        known = self._active.pop(split, None)
        if known is None:
            known = self._idle.pop(split, None)
        return known is not None

    def on_watermark(
        self, split: str, timestamp: Timestamp, *, immediate: bool
    ) -> Timestamp | None:
        """Record the watermark of ``split``, which makes it active."""
        # Hot path: once for each batch of a source.
        active = self._active
        before = active.get(split)
        if before is None:
            before = self._wake(split)
        if timestamp > before:
            active[split] = timestamp
        return self.on_periodic() if immediate else None

    def on_idle(self, split: str, *, immediate: bool = True) -> Timestamp | None:
        """Record that ``split`` is idle."""
        if split in self._active:
            self._idle[split] = self._active.pop(split)
        elif split not in self._idle:
            raise _unknown(split)
        return self.on_periodic() if immediate else None

    def on_active(self, split: str, *, immediate: bool = True) -> Timestamp | None:
        """Record that ``split`` has records again, which may not have advanced its watermark."""
        if split not in self._active:
            self._wake(split)
        return self.on_periodic() if immediate else None

    def on_periodic(self) -> Timestamp | None:
        """Compute the combined watermark and ``idle``."""
        if not self._active:
            self.idle = bool(self._idle)
            return None
        self.idle = False
        combined = min(self._active.values())
        if combined <= self.watermark:
            return None
        self.watermark = combined
        return combined

    def others(self, split: str) -> Timestamp:
        """Return the minimum of the active splits other than ``split``, or the end of time without any."""
        return min(
            (known for name, known in self._active.items() if name != split), default=MAX_TIMESTAMP
        )

    def watermark_of(self, split: str) -> Timestamp:
        """Return the newest watermark of ``split``."""
        known = self._active.get(split)
        return self._idle[split] if known is None else known

    def _wake(self, split: str) -> Timestamp:
        watermark = self._idle.pop(split, None)
        if watermark is None:
            raise _unknown(split)
        self._active[split] = watermark
        return watermark


def _unknown(split: str) -> InternalError:
    return InternalError(f"split {split!r} was never added, or was removed")
