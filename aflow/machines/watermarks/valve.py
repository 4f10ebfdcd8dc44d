"""The watermark of a task, combined from those of its channels.

Theory. The combined watermark is the minimum over the channels that *count*. A channel counts while it is active and
*aligned*:

- A channel that becomes **idle** stops counting. Its watermarks while idle are ignored.
- One that becomes **active** again counts only after it has reached the last output: the others did not wait for it, so
  it is late, and would stop time for all until it has caught up. Until then it is unaligned.
- One that has **ended** at the end of time never counts again. One that ends before it was *stopped*, and counts with
  its last watermark for ever: its next ones are unknown, so time must not advance beyond.

The output never goes back. If the last active channel becomes idle, time waits for no channel: the maximum of all
channels is flushed, and then the output is idle too. An unaligned channel is active, so while there is one there is no
flush: if no channel counts, time stops.

Two rules about the end:

- If the only active channel **ends** while others are idle, the effect is that of becoming idle: ``Idle``.
- ``MAX_TIMESTAMP`` on a channel is *its* end of time, and not that of the others. It is output once **all** channels
  that have not ended have reached it; a channel that has reached it stops counting. So a source that has ended beside
  an idle live one does not make the records of that one late. (Flink's valve does, since it ignores idle channels.) It
  is accepted on an idle channel too: a source may end while idle, and the windows downstream must still fire.

Channels are numbered from 0. Timestamps are epoch ms.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from aflow.errors import InternalError
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

#: Value in `_counted` of a channel that does not count: above all timestamps, so that `min` ignores it.
_ABSENT: Final = MAX_TIMESTAMP + 1


class ChannelState(Enum):
    """State of a channel."""

    ACTIVE = "active"
    """Counts if it is aligned, unless it is at the end of time."""
    IDLE = "idle"
    """Its last status was idle."""
    ENDED = "ended"
    """Sends nothing any more."""


class WatermarkValve:
    """Combines the watermarks and the idleness of a fixed number of channels."""

    __slots__ = ("_channels", "_counted", "_watermarks", "idle", "watermark")

    def __init__(self, channels: int) -> None:
        if channels < 1:
            raise InternalError(f"a valve needs at least one channel, not {channels}")
        #: The last output; never goes back.
        self.watermark: Timestamp = MIN_TIMESTAMP
        #: True if the last status that was output is idle.
        self.idle = False
        self._channels = [ChannelState.ACTIVE] * channels
        #: The newest watermark of each channel that was not ignored.
        self._watermarks: list[Timestamp] = [MIN_TIMESTAMP] * channels
        #: The same for channels that count, which are active, aligned (at or above `watermark`) and not at the end
        #: of time; `_ABSENT` for all others.
        self._counted: list[int] = [MIN_TIMESTAMP] * channels

    def on_watermark(self, channel: int, timestamp: Timestamp) -> Timestamp | None:
        """Record a watermark of ``channel``. Return the combined one if it advanced, otherwise None."""
        # Hot path: once for each batch of a busy channel.
        if timestamp <= self._watermarks[channel]:
            return None
        if timestamp >= MAX_TIMESTAMP:
            return self._end_of_time(channel)
        if self._channels[channel] is not ChannelState.ACTIVE:
            return None
        self._watermarks[channel] = timestamp
        if timestamp < self.watermark:
            return None  # unaligned, and still below the output
        self._counted[channel] = timestamp
        return self._advance(min(self._counted))

    def on_idle(self, channel: int) -> list[Watermark | Idle]:
        """Record that ``channel`` is idle. Return the elements to emit, in order."""
        if self._channels[channel] is not ChannelState.ACTIVE:
            return []
        return self._stop_counting(channel, ChannelState.IDLE)

    def on_active(self, channel: int) -> list[Active]:
        """Record that ``channel`` is active again. Return ``Active`` if the output was idle."""
        if self._channels[channel] is not ChannelState.IDLE:
            return []
        self._channels[channel] = ChannelState.ACTIVE
        if self.watermark <= self._watermarks[channel] < MAX_TIMESTAMP:
            self._counted[channel] = self._watermarks[channel]
        if not self.idle:
            return []
        self.idle = False
        return [ACTIVE]

    def on_end(self, channel: int) -> list[Watermark | Idle]:
        """Record that ``channel`` has ended. Return the elements to emit, in order."""
        if (
            self._channels[channel] is ChannelState.ENDED
            or self._watermarks[channel] < MAX_TIMESTAMP
        ):
            return []
        return self._stop_counting(channel, ChannelState.ENDED)

    def bound(self, channel: int) -> Timestamp | None:
        """Return the watermark up to which those of ``channel`` advance the output now; None if they are ignored.

        That of the other channels that count, or the end of time without any.
        """
        if self._channels[channel] is not ChannelState.ACTIVE:
            return None
        counted = self._counted
        others = min((at for index, at in enumerate(counted) if index != channel), default=_ABSENT)
        return min(others, MAX_TIMESTAMP)

    def watermark_of(self, channel: int) -> Timestamp:
        """Return the newest watermark of ``channel`` that was not ignored."""
        return self._watermarks[channel]

    def _end_of_time(self, channel: int) -> Timestamp | None:
        if self._channels[channel] is ChannelState.ENDED:
            return None
        self._watermarks[channel] = MAX_TIMESTAMP
        self._counted[channel] = _ABSENT
        return self._advance(self._combined())

    def _stop_counting(self, channel: int, become: ChannelState) -> list[Watermark | Idle]:
        self._channels[channel] = become
        self._counted[channel] = _ABSENT
        advanced = self._advance(self._combined())
        said: list[Watermark | Idle] = [] if advanced is None else [Watermark(advanced)]
        if not self.idle and self._no_channel_active():
            self.idle = True
            said.append(IDLE)
        return said

    def _combined(self) -> int:
        """Return the watermark that the channels justify; ``_ABSENT`` if they justify none."""
        least = min(self._counted)
        if least < _ABSENT:
            return least
        waiting = False
        for state, watermark in zip(self._channels, self._watermarks, strict=True):
            if watermark < MAX_TIMESTAMP and state is not ChannelState.ENDED:
                if state is ChannelState.ACTIVE:
                    return _ABSENT  # unaligned
                waiting = True
        if waiting:
            return max((w for w in self._watermarks if w < MAX_TIMESTAMP), default=_ABSENT)
        return max(self._watermarks)

    def _advance(self, combined: int) -> Timestamp | None:
        if self.watermark < combined < _ABSENT:
            self.watermark = combined
            return combined
        return None

    def _no_channel_active(self) -> bool:
        """Return True if some channel is idle, and none is active before its end of time."""
        return ChannelState.IDLE in self._channels and not any(
            state is ChannelState.ACTIVE and watermark < MAX_TIMESTAMP
            for state, watermark in zip(self._channels, self._watermarks, strict=True)
        )
