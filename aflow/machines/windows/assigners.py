"""Which windows a record is in.

Theory. Windows of most kinds lie on a grid, which begins at ``offset`` ms after 1970-01-01T00:00Z and goes on in both
directions, in steps of ``size`` (tumbling) or ``slide`` (sliding). A window includes its start and excludes its end.
Every timestamp is in exactly one tumbling window, and in ``size / slide`` sliding ones, rounded down or up where the
slide does not divide the size. If the slide is longer than the size there are gaps between the windows, and what falls
into one is in no window at all.

*Sessions* depend on the data. To begin with each record has a session of its own, from its timestamp to a gap after it;
sessions of a key that overlap or touch become one. A record with a short gap therefore never ends a session earlier
than another record of it wants.

All lengths are ms, all timestamps epoch ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.windows.merging_window_set import Merged, merge_touching
from aflow.machines.windows.stagger import WindowStagger
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow

T_contra = TypeVar("T_contra", contravariant=True)


class WindowAssigner(Protocol[T_contra]):
    """Says which windows a record is in. Subclass it, or write a class with the same members; it keeps no state."""

    @property
    def domain(self) -> TimeDomain:
        """Whether windows are of event time or of processing time, which is then the ``timestamp`` of ``assign``."""
        return TimeDomain.EVENT

    @property
    def merging(self) -> bool:
        """True if windows of a key may become one."""
        return False

    def merge(self, windows: Sequence[TimeWindow]) -> Sequence[Merged]:
        """Which of a key's windows become one, asked where ``merging`` is true; by default those that touch."""
        return merge_touching(windows)

    def assign(self, value: T_contra, timestamp: Timestamp) -> Sequence[TimeWindow]:
        """The windows that a record of ``timestamp`` (epoch ms) is in; none: it is dropped, as late if it is."""
        ...


@dataclass(frozen=True, slots=True)
class TumblingWindows(WindowAssigner[object]):
    """Windows of ``size`` ms side by side. Raises ``FlowDefinitionError`` unless size > 0 and abs(offset) < size.

    ``stagger`` is applied by the window step: the windows of one subtask are those of ``shifted``. The methods of this
    assigner do not apply it.
    """

    size: int
    offset: int = 0
    domain: TimeDomain = TimeDomain.EVENT  # pyright: ignore[reportIncompatibleMethodOverride] - read-only, as frozen
    stagger: WindowStagger = WindowStagger.ALIGNED

    def __post_init__(self) -> None:
        _check_positive("size", self.size)
        _check_offset(self.offset, "size", self.size)

    def __str__(self) -> str:
        aligned = self.stagger is WindowStagger.ALIGNED
        stagger = "" if aligned else f", {self.stagger.value} stagger"
        return f"tumbling ({self.size} ms, offset {self.offset} ms{stagger})"

    def shifted(self, by: int) -> TumblingWindows:
        """Return these windows shifted by ``by`` ms, and without a stagger."""
        return TumblingWindows(self.size, (self.offset + by) % self.size, self.domain)

    def start_of(self, timestamp: Timestamp) -> Timestamp:
        """The start of the window that ``timestamp`` is in."""
        # Hot path: once for each batch, or for each record of a batch that lies in several windows.
        return timestamp - (timestamp - self.offset) % self.size

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """The one window that ``timestamp`` is in."""
        start = self.start_of(timestamp)
        return [TimeWindow(start, start + self.size)]


@dataclass(frozen=True, slots=True)
class SlidingWindows(WindowAssigner[object]):
    """Windows of ``size`` ms, one every ``slide`` ms.

    Raises ``FlowDefinitionError`` unless size > 0, slide > 0 and abs(offset) < slide.
    """

    size: int
    slide: int
    offset: int = 0
    domain: TimeDomain = TimeDomain.EVENT  # pyright: ignore[reportIncompatibleMethodOverride] - read-only, as frozen

    def __post_init__(self) -> None:
        _check_positive("size", self.size)
        _check_positive("slide", self.slide)
        _check_offset(self.offset, "slide", self.slide)

    def __str__(self) -> str:
        return f"sliding ({self.size} ms every {self.slide} ms, offset {self.offset} ms)"

    def start_of(self, timestamp: Timestamp) -> Timestamp:
        """The start of the latest window that begins at or before ``timestamp``; with gaps, it may end before."""
        return timestamp - (timestamp - self.offset) % self.slide

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """The windows that ``timestamp`` is in, by start; none if it falls into a gap."""
        latest = self.start_of(timestamp)
        starts = range(latest, timestamp - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in reversed(starts)]


@dataclass(frozen=True, slots=True)
class SessionWindows(WindowAssigner[object]):
    """Windows of records that are ``gap`` ms apart at most. Raises ``FlowDefinitionError`` unless gap > 0."""

    gap: int
    domain: TimeDomain = TimeDomain.EVENT  # pyright: ignore[reportIncompatibleMethodOverride] - read-only, as frozen

    def __post_init__(self) -> None:
        _check_positive("gap", self.gap)

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """The session that a record would have for itself."""
        return [TimeWindow(timestamp, timestamp + self.gap)]


@dataclass(frozen=True)
class DynamicSessionWindows(WindowAssigner[T_contra], Generic[T_contra]):
    """Sessions in which ``gap_of(value)`` says how many ms a record lets the next one wait."""

    gap_of: Callable[[T_contra], int]
    domain: TimeDomain = TimeDomain.EVENT  # pyright: ignore[reportIncompatibleMethodOverride] - read-only, as frozen

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: T_contra, timestamp: Timestamp) -> list[TimeWindow]:
        """The session that a record would have for itself. Raises ``FlowDefinitionError`` unless its gap > 0."""
        gap = self.gap_of(value)
        if type(gap) is not int:
            raise FlowDefinitionError(
                f"the gap of a session is a whole number of ms, not {shown(gap)} as behind {shown(value)}"
            )
        if gap <= 0:
            raise FlowDefinitionError(
                f"the gap of a session must be longer than 0 ms, not {gap} ms as behind {shown(value)}"
            )
        return [TimeWindow(timestamp, timestamp + gap)]


@dataclass(frozen=True, slots=True)
class GlobalWindows(WindowAssigner[object]):
    """One window for everything."""

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """The one window."""
        return [GLOBAL_WINDOW]


def _check_positive(name: str, length: int) -> None:
    if length <= 0:
        raise FlowDefinitionError(f"{name} of a window must be longer than 0 ms, not {length} ms")


def _check_offset(offset: int, name: str, length: int) -> None:
    if abs(offset) >= length:
        raise FlowDefinitionError(
            f"offset {offset} ms must be shorter than {name}, which is {length} ms, in either direction; "
            f"offset {abs(offset) % length * (1 if offset > 0 else -1)} ms gives the same windows"
        )
