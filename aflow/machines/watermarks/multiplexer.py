"""One watermark out of those of several splits: what a source may say about time when it reads many at once.

Theory. As in the valve, the combined watermark is the minimum over the splits that are active, and never goes back.
Unlike there, splits come and go, and a source may say two ways what a split has seen: *immediately* (the combined
watermark is computed at once) or *deferred* (it is stored, and takes part when somebody else speaks or at the next
``on_periodic``).

- A new split holds the watermark where it is until it has said something: its first record may be an old one. Once
  it is removed (read to its end, though it may have been empty, or given to another subtask) it does not.
- A watermark makes an idle split active. What it says counts at once; if it is behind the combined watermark, that
  waits.
- All splits idle: the source is idle, and the watermark stays. (The valve flushes the maximum there; a split's
  silence is often only a pause between two fetches, and its next record must not be late.) No split at all: neither
  idle nor any news.

``on_…`` return the combined watermark (epoch ms) if it advanced, otherwise None; ``idle`` tells whether the source
is idle, as of the last time it was computed.
"""

from __future__ import annotations

from aflow.errors import InternalError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp


class SplitMultiplexer:
    """Combines the watermarks and the idleness of splits, which are named by their ids."""

    __slots__ = ("_active", "_idle", "idle", "watermark")

    def __init__(self) -> None:
        #: The last combined watermark; never goes back. ``MIN_TIMESTAMP`` before the first.
        self.watermark: Timestamp = MIN_TIMESTAMP
        #: True if there are splits and all of them are idle.
        self.idle = False
        #: The newest watermark of each active split. A split is in here or in `_idle`, never in both.
        self._active: dict[str, Timestamp] = {}
        #: The newest watermark of each idle split.
        self._idle: dict[str, Timestamp] = {}

    def add(self, split: str) -> None:
        """Wait for ``split`` from now on."""
        if split in self._active or split in self._idle:
            raise InternalError(f"split {split!r} is there already")
        self._active[split] = MIN_TIMESTAMP

    def remove(self, split: str) -> bool:
        """Wait for ``split`` no more; False if it is not there. What follows from that shows at ``on_periodic``."""
        known = self._active.pop(split, None)
        if known is None:
            known = self._idle.pop(split, None)
        return known is not None

    def on_watermark(
        self, split: str, timestamp: Timestamp, *, immediate: bool
    ) -> Timestamp | None:
        """Take the watermark of ``split``, which is active with that."""
        # Hot path: once for each batch of a source.
        active = self._active
        before = active.get(split)
        if before is None:
            before = self._wake(split)
        if timestamp > before:
            active[split] = timestamp
        return self.on_periodic() if immediate else None

    def on_idle(self, split: str, *, immediate: bool = True) -> Timestamp | None:
        """Take note that ``split`` is silent."""
        if split in self._active:
            self._idle[split] = self._active.pop(split)
        elif split not in self._idle:
            raise _unknown(split)
        return self.on_periodic() if immediate else None

    def on_active(self, split: str, *, immediate: bool = True) -> Timestamp | None:
        """Take note that ``split`` has records again, which may not have moved its watermark."""
        if split not in self._active:
            self._wake(split)
        return self.on_periodic() if immediate else None

    def on_periodic(self) -> Timestamp | None:
        """Compute the combined watermark and ``idle`` from what is known."""
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
        """What the watermark would be but for ``split``: the minimum of the other active ones, or the end of time."""
        return min(
            (known for name, known in self._active.items() if name != split), default=MAX_TIMESTAMP
        )

    def watermark_of(self, split: str) -> Timestamp:
        """The newest watermark of ``split`` itself."""
        known = self._active.get(split)
        return self._idle[split] if known is None else known

    def _wake(self, split: str) -> Timestamp:
        watermark = self._idle.pop(split, None)
        if watermark is None:
            raise _unknown(split)
        self._active[split] = watermark
        return watermark


def _unknown(split: str) -> InternalError:
    return InternalError(f"split {split!r} was never added, or is removed already")
