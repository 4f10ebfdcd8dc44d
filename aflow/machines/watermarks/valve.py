"""One watermark out of many: what a task may believe about time when it reads several channels.

Theory. The combined watermark is the minimum over the channels that *count*. A channel counts while it is active and
*aligned*:

- A channel that becomes **idle** stops counting. What it says about time while idle is ignored.
- One that becomes **active** again counts only after it has reached the last output: it was not waited for, so it is
  behind, and would stop time for everybody until it has caught up. Until then it is unaligned.
- One that has **ended** at the end of time never counts again. One that ends before it was *stopped*, and goes on
  counting with what it last said: what it would have said next is not known, so nothing beyond may happen.

The output never goes back. If the last active channel becomes idle, nobody is left whom time would have to wait
for: the maximum of all channels is flushed, and then the output is idle too. An unaligned channel is active, so as
long as there is one there is no flush: with nobody who counts, time stands still.

Two rules about the end:

- If the only active channel **ends** while others are idle, it is as if it had become idle: ``Idle``.
- ``MAX_TIMESTAMP`` on a channel is *its* end of time, and none of the others'. It is output once **all** channels
  that have not ended have reached it; a channel that has stops counting. A source that has run dry beside an idle
  live one therefore does not make late whatever that one still sends. (Flink's valve does, since to it idle
  channels do not exist.) It is accepted on an idle channel too: a source may end in silence, and the windows behind
  it must still fire.

Channels are numbered from 0. Timestamps are epoch ms.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from aflow.errors import InternalError
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

#: Stands in `_counted` for a channel that does not count: above all timestamps, so that `min` passes over it.
_ABSENT: Final = MAX_TIMESTAMP + 1


class ChannelState(Enum):
    """What is known of a channel beside its watermark."""

    ACTIVE = "active"
    """Counts if it is aligned, unless its time is over."""
    IDLE = "idle"
    """Was silent when last heard of."""
    ENDED = "ended"
    """Will never say anything again."""


class WatermarkValve:
    """Combines the watermarks and the idleness of a fixed number of channels."""

    __slots__ = ("_channels", "_counted", "_watermarks", "idle", "watermark")

    def __init__(self, channels: int) -> None:
        if channels < 1:
            raise InternalError(f"a valve needs a channel at least, not {channels}")
        #: The last output; never goes back.
        self.watermark: Timestamp = MIN_TIMESTAMP
        #: True if the last status that was output is idle.
        self.idle = False
        self._channels = [ChannelState.ACTIVE] * channels
        #: The newest watermark of each channel, for what it said while it was listened to.
        self._watermarks: list[Timestamp] = [MIN_TIMESTAMP] * channels
        #: The same for channels that count, which are active, aligned (at or above `watermark`) and not at the end
        #: of time; `_ABSENT` for all others.
        self._counted: list[int] = [MIN_TIMESTAMP] * channels

    def on_watermark(self, channel: int, timestamp: Timestamp) -> Timestamp | None:
        """Take a watermark of ``channel``; the new combined one if it advanced, otherwise None."""
        # Hot path: once for each batch of a busy channel.
        if timestamp <= self._watermarks[channel]:
            return None
        if timestamp >= MAX_TIMESTAMP:
            return self._time_is_over(channel)
        if self._channels[channel] is not ChannelState.ACTIVE:
            return None
        self._watermarks[channel] = timestamp
        if timestamp < self.watermark:
            return None  # unaligned, and still behind
        self._counted[channel] = timestamp
        return self._advance(min(self._counted))

    def on_idle(self, channel: int) -> list[Watermark | Idle]:
        """Take note that ``channel`` is silent; what follows from that, in the order in which it is to be sent."""
        if self._channels[channel] is not ChannelState.ACTIVE:
            return []
        return self._leaves(channel, ChannelState.IDLE)

    def on_active(self, channel: int) -> list[Active]:
        """Take note that ``channel`` speaks again; ``Active`` if all were idle."""
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
        """Take note that ``channel`` is over; what follows from that, in the order in which it is to be sent."""
        if (
            self._channels[channel] is ChannelState.ENDED
            or self._watermarks[channel] < MAX_TIMESTAMP
        ):
            return []
        return self._leaves(channel, ChannelState.ENDED)

    def watermark_of(self, channel: int) -> Timestamp:
        """The newest watermark of ``channel`` that was not ignored."""
        return self._watermarks[channel]

    def _time_is_over(self, channel: int) -> Timestamp | None:
        if self._channels[channel] is ChannelState.ENDED:
            return None
        self._watermarks[channel] = MAX_TIMESTAMP
        self._counted[channel] = _ABSENT
        return self._advance(self._combined())

    def _leaves(self, channel: int, become: ChannelState) -> list[Watermark | Idle]:
        self._channels[channel] = become
        self._counted[channel] = _ABSENT
        advanced = self._advance(self._combined())
        said: list[Watermark | Idle] = [] if advanced is None else [Watermark(advanced)]
        if not self.idle and self._all_silent():
            self.idle = True
            said.append(IDLE)
        return said

    def _combined(self) -> int:
        """What the output should be; ``_ABSENT`` if the channels say nothing about it."""
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

    def _all_silent(self) -> bool:
        """True if some channel is idle, and none active whose time is not over."""
        return ChannelState.IDLE in self._channels and not any(
            state is ChannelState.ACTIVE and watermark < MAX_TIMESTAMP
            for state, watermark in zip(self._channels, self._watermarks, strict=True)
        )
