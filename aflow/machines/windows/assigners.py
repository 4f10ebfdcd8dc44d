"""Window assigners: the windows of a record.

Theory. Windows of most kinds lie on a grid, which begins at ``offset`` ms after 1970-01-01T00:00Z and extends in both
directions, in steps of ``size`` (tumbling) or ``slide`` (sliding). A window includes its start and excludes its end.
Every timestamp is in exactly one tumbling window, and in ``size / slide`` sliding ones, rounded down or up if the slide
does not divide the size. If the slide is longer than the size there are gaps between the windows, and a record in a gap
is in no window.

*Sessions* depend on the data. Each record has a session of its own at first, from its timestamp to a gap after it;
sessions of a key that overlap or touch merge. A record with a short gap therefore never shortens a session.

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
    """Assigns windows to records. Subclass it, or write a class with the same members; it keeps no state."""

    @property
    def domain(self) -> TimeDomain:
        """Return the time domain of the windows; the clock provides the ``timestamp`` of ``assign``
        in processing time.
        """
        return TimeDomain.EVENT

    @property
    def merging(self) -> bool:
        """Return True if windows of a key may merge."""
        return False

    def merge(self, windows: Sequence[TimeWindow]) -> Sequence[Merged]:
        """Return the windows of a key that merge, called if ``merging`` is true; by default those that touch."""
        return merge_touching(windows)

    def assign(self, value: T_contra, timestamp: Timestamp) -> Sequence[TimeWindow]:
        """Return the windows of a record of ``timestamp`` (epoch ms); without any the record is dropped, as late if it
        is.
        """
        ...


@dataclass(frozen=True, slots=True)
class TumblingWindows(WindowAssigner[object]):
    """Adjacent windows of ``size`` ms. Raises ``FlowDefinitionError`` unless size > 0 and abs(offset) < size.

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
        """Return the start of the window that contains ``timestamp``."""
        # Hot path: once for each batch, or for each record of a batch that lies in several windows.
        return timestamp - (timestamp - self.offset) % self.size

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """Return the one window that contains ``timestamp``."""
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
        """Return the start of the latest window that begins at or before ``timestamp``; with gaps,
        it may end before.
        """
        return timestamp - (timestamp - self.offset) % self.slide

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """Return the windows that contain ``timestamp``, by start; none if it is in a gap."""
        latest = self.start_of(timestamp)
        starts = range(latest, timestamp - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in reversed(starts)]


@dataclass(frozen=True, slots=True)
class SessionWindows(WindowAssigner[object]):
    """Windows of records that are at most ``gap`` ms apart. Raises ``FlowDefinitionError`` unless gap > 0."""

    gap: int
    domain: TimeDomain = TimeDomain.EVENT  # pyright: ignore[reportIncompatibleMethodOverride] - read-only, as frozen

    def __post_init__(self) -> None:
        _check_positive("gap", self.gap)

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """Return the session of a record alone."""
        return [TimeWindow(timestamp, timestamp + self.gap)]


@dataclass(frozen=True)
class DynamicSessionWindows(WindowAssigner[T_contra], Generic[T_contra]):
    """Sessions whose gap (ms) after a record is ``gap_of(value)``."""

    gap_of: Callable[[T_contra], int]
    domain: TimeDomain = TimeDomain.EVENT  # pyright: ignore[reportIncompatibleMethodOverride] - read-only, as frozen

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: T_contra, timestamp: Timestamp) -> list[TimeWindow]:
        """Return the session of a record alone. Raises ``FlowDefinitionError`` unless its gap > 0."""
        gap = self.gap_of(value)
        if type(gap) is not int:
            raise FlowDefinitionError(
                f"the gap of a session is a whole number of ms, not {shown(gap)} as after {shown(value)}"
            )
        if gap <= 0:
            raise FlowDefinitionError(
                f"the gap of a session must be longer than 0 ms, not {gap} ms as after {shown(value)}"
            )
        return [TimeWindow(timestamp, timestamp + gap)]


@dataclass(frozen=True, slots=True)
class GlobalWindows(WindowAssigner[object]):
    """One window for all records of a key."""

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        """Return the one window."""
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
