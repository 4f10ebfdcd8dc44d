"""Windows as users declare them, and their assigners, triggers and evictors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from aflow.api.checks import check_function
from aflow.errors import FlowDefinitionError, shown
from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.evictors import Count as CountEvictor
from aflow.machines.windows.evictors import Evictor
from aflow.machines.windows.stagger import WindowStagger
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import Count as CountTrigger
from aflow.machines.windows.triggers import EventTime, ProcessingTime, Purging
from aflow.model.time import TimeDomain, positive_millis, short, to_millis
from aflow.operators.windows.factory import check_assigner

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Consecutive windows of ``size`` that do not overlap: each record is in exactly one.

    Windows start at multiples of ``size`` since 1970-01-01T00:00Z, shifted by ``offset`` (which may be negative
    and must be shorter than ``size``): ``Tumbling(timedelta(days=1), offset=timedelta(hours=5))`` gives days from
    05:00 UTC. In processing time a record is in the window of its time of arrival.

    ``stagger`` shifts the windows of each subtask, so that their results are not all emitted at the same time:
    ``WindowStagger.RANDOM`` by a random part of ``size``, ``NATURAL`` by the elapsed part of the window in which the
    subtask received its first record. The windows of two keys then start at different times. A restore keeps the
    windows of each key, at any parallelism. Over history windows are aligned.

    Raises ``FlowDefinitionError`` for a size that is not above zero, an offset out of bounds, fractions of a
    millisecond, or an invalid stagger.
    """

    size: timedelta
    offset: timedelta = _NONE
    domain: TimeDomain = TimeDomain.EVENT
    stagger: WindowStagger = WindowStagger.ALIGNED

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> TumblingWindows:
        """Return the machine that assigns timestamps to these windows."""
        size = positive_millis(self.size, what="Tumbling size")
        offset = to_millis(self.offset, what="Tumbling offset")
        return TumblingWindows(size, offset, _domain(self.domain), _stagger(self.stagger))

    def __str__(self) -> str:
        made = self.assigner()
        shifted = f"{_shift(made.offset)}{_clock(self.domain)}"
        aligned = self.stagger is WindowStagger.ALIGNED
        stagger = "" if aligned else f", {self.stagger.value} stagger"
        return f"Tumbling({short(made.size)}{shifted}{stagger})"


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of ``size`` that start every ``slide``: each record is in about ``size / slide`` of them.

    Windows start at multiples of ``slide`` since 1970-01-01T00:00Z, shifted by ``offset`` (shorter than
    ``slide``). With a ``slide`` longer than ``size`` there are gaps, and records in them are in no window. Windows in
    event time share panes if the function can merge (``reduce``, ``aggregate``, ``fold`` with ``merge=``): then a
    record is folded once, however many windows it is in. Raises ``FlowDefinitionError`` as ``Tumbling`` does.
    """

    size: timedelta
    slide: timedelta
    offset: timedelta = _NONE
    domain: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> SlidingWindows:
        """Return the machine that assigns timestamps to these windows."""
        size = positive_millis(self.size, what="Sliding size")
        slide = positive_millis(self.slide, what="Sliding slide")
        offset = to_millis(self.offset, what="Sliding offset")
        return SlidingWindows(size, slide, offset, _domain(self.domain))

    def __str__(self) -> str:
        made = self.assigner()
        shifted = f"{_shift(made.offset)}{_clock(self.domain)}"
        return f"Sliding({short(made.size)} every {short(made.slide)}{shifted})"


@dataclass(frozen=True, slots=True)
class Session:
    """Sessions: windows of records of a key that are at most ``gap`` apart.

    A session starts at the timestamp of its first record and ends ``gap`` after that of its last record. A record
    exactly ``gap`` after the last one belongs to the session, unless it is late. So a session fires when the watermark
    reaches its end: the watermark of a step with sessions is 1 ms behind that of its input.
    """

    gap: timedelta
    domain: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> SessionWindows:
        """Return the machine that assigns timestamps to these windows."""
        return SessionWindows(positive_millis(self.gap, what="Session gap"), _domain(self.domain))

    def __str__(self) -> str:
        return f"Session({short(self.assigner().gap)}{_clock(self.domain)})"


@dataclass(frozen=True)
class DynamicSession(Generic[T_contra]):
    """Sessions with a gap after each record that depends on it: ``gap(value)``, which must be above zero.

    A session ends after the longest of these gaps: a later record with a shorter gap never makes it end earlier.
    """

    gap: Callable[[T_contra], timedelta]
    domain: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        check_function(self.gap, "DynamicSession")
        _domain(self.domain)

    def assigner(self) -> DynamicSessionWindows[T_contra]:
        """Return the machine that assigns records to these windows."""
        gap = self.gap

        def millis(value: T_contra) -> int:
            return positive_millis(gap(value), what=f"the gap of a session after {shown(value)}")

        return DynamicSessionWindows(millis, self.domain)

    def __str__(self) -> str:
        return f"DynamicSession({getattr(self.gap, '__name__', 'gap')}{_clock(self.domain)})"


@dataclass(frozen=True, slots=True)
class Global:
    """Assign all records of a key to one window that never ends; the trigger decides when it fires.

    A trigger is required. If it does not purge, the contents grow for ever.
    """

    def assigner(self) -> GlobalWindows:
        """Return the machine that assigns all records to the one window."""
        return GlobalWindows()

    def __str__(self) -> str:
        return "Global()"


@dataclass(frozen=True, slots=True)
class Count:
    """Windows of ``size`` records of a key; with ``slide``, of its last ``size`` records every ``slide`` records.

    They do not depend on time: a window fires when it is full, never earlier, so the records of a window that is not
    full at the end of the input are dropped. ``Windowed.window`` is ``GLOBAL_WINDOW``, and ``Windowed.firing`` is 1 for
    each full window; with ``slide`` it counts the results. All records of a sliding window are kept, whatever the
    function is. Raises ``FlowDefinitionError`` for numbers below 1.
    """

    size: int
    slide: int | None = None

    def __post_init__(self) -> None:
        for name, number in (("size", self.size), ("slide", self.slide)):
            if number is not None and (type(number) is not int or number < 1):
                raise FlowDefinitionError(
                    f"{name} of Count windows is a number of records from 1 on, not {shown(number)}"
                )

    def assigner(self) -> GlobalWindows:
        """Return the machine that assigns all records to the one window."""
        return GlobalWindows()

    def trigger(self) -> Trigger[Any]:
        """Return a trigger that fires when a window is full, and purges records that no later window needs."""
        return Purging(CountTrigger(self.size)) if self.slide is None else CountTrigger(self.slide)

    def evictor(self) -> Evictor[Any] | None:
        """Return an evictor that keeps the last ``size`` records of a sliding window, else None."""
        return None if self.slide is None else CountEvictor(self.size)

    def __str__(self) -> str:
        return (
            f"Count({self.size})"
            if self.slide is None
            else f"Count({self.size} every {self.slide})"
        )


Windows: TypeAlias = Tumbling | Sliding | Session | DynamicSession[T] | Global | Count

BUILT_IN = (Tumbling, Sliding, Session, DynamicSession, Global, Count)
"""The members of ``Windows``, for ``isinstance``."""


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """The checked arguments of ``window()``."""

    assigner: WindowAssigner[Any]
    trigger: Trigger[Any]
    evictor: Evictor[Any] | None
    lateness: int
    detail: str
    """The windows as plans show them."""


def choose_windows(
    windows: Windows[Any] | WindowAssigner[Any],
    trigger: Trigger[Any] | None,
    evictor: Evictor[Any] | None,
    lateness: timedelta,
) -> WindowChoice:
    """Check the arguments of ``window()`` and add defaults. Raises ``FlowDefinitionError``."""
    if isinstance(windows, type) or not (
        isinstance(windows, BUILT_IN) or callable(getattr(windows, "assign", None))
    ):
        raise FlowDefinitionError(
            f"window() takes windows such as aflow.Tumbling(…), or an aflow.windows.WindowAssigner of your own, "
            f"not {shown(windows)}"
        )
    _check_extras(windows, trigger, evictor)
    if isinstance(windows, Global) and trigger is None:
        raise FlowDefinitionError(
            "a Global window has no end to fire at, so it needs a trigger: window(Global(), trigger=…) with one of "
            "aflow.triggers"
        )
    assigner = windows.assigner() if isinstance(windows, BUILT_IN) else windows
    if isinstance(_inner(trigger), EventTime) and assigner.domain is TimeDomain.PROCESSING:
        raise FlowDefinitionError(
            "triggers.EventTime waits for the watermark, and these windows are in processing time; leave trigger out, "
            "or use triggers.ProcessingTime()"
        )
    check_assigner(assigner)
    allowed = _allowed(assigner, lateness)
    shown_parts = [str(windows) if isinstance(windows, BUILT_IN) else type(windows).__name__]
    shown_parts += [] if trigger is None else [f"trigger {_described(trigger)}"]
    shown_parts += [] if evictor is None else [f"evictor {_described(evictor)}"]
    shown_parts += [f"lateness {short(allowed)}"] if allowed else []
    if isinstance(windows, Count):
        trigger, evictor = windows.trigger(), windows.evictor()
    if trigger is None:
        trigger = _default(assigner)
    return WindowChoice(assigner, trigger, evictor, allowed, ", ".join(shown_parts))


def _check_extras(
    windows: object, trigger: Trigger[Any] | None, evictor: Evictor[Any] | None
) -> None:
    for extra, kind in ((trigger, Trigger), (evictor, Evictor)):
        word = kind.__name__.lower()
        if extra is None:
            continue
        if not isinstance(extra, kind):
            hint = f"; write {extra.__name__}(…)" if isinstance(extra, type) else ""
            raise FlowDefinitionError(
                f"{word}= takes an aflow.{word}s.{kind.__name__}, not {shown(extra)}{hint}"
            )
        if isinstance(windows, Count):
            raise FlowDefinitionError(
                f"{windows} has a {word} of its own; with another one, write aflow.Global() in place of Count"
            )


def _allowed(assigner: WindowAssigner[Any], lateness: timedelta) -> int:
    allowed = to_millis(lateness, what="lateness")
    if allowed < 0:
        raise FlowDefinitionError(f"lateness must not be negative, and it is {lateness!r}")
    if allowed and assigner.domain is TimeDomain.PROCESSING:
        raise FlowDefinitionError(
            "no record is late for windows in processing time: leave lateness out"
        )
    if allowed and isinstance(assigner, GlobalWindows):
        raise FlowDefinitionError(
            "no record is late for a window that never ends: leave lateness out"
        )
    return allowed


def _inner(trigger: Trigger[Any] | None) -> Trigger[Any] | None:
    """Return the trigger inside of ``Purging``."""
    while isinstance(trigger, Purging):
        trigger = trigger.trigger
    return trigger


def _default(assigner: WindowAssigner[Any]) -> Trigger[Any]:
    return EventTime() if assigner.domain is TimeDomain.EVENT else ProcessingTime()


def _described(part: object) -> str:
    """Return the name of a part, with its parameters if it is a dataclass."""
    return repr(part) if is_dataclass(part) else type(part).__name__


def _domain(domain: TimeDomain) -> TimeDomain:
    if not isinstance(domain, TimeDomain):
        raise FlowDefinitionError(
            f"domain= takes aflow.TimeDomain.EVENT or .PROCESSING, not {shown(domain)}"
        )
    return domain


def _stagger(stagger: WindowStagger) -> WindowStagger:
    if not isinstance(stagger, WindowStagger):
        raise FlowDefinitionError(
            f"stagger= takes aflow.windows.WindowStagger.ALIGNED, .RANDOM or .NATURAL, not {shown(stagger)}"
        )
    return stagger


def _shift(offset: int) -> str:
    return f", offset {short(offset)}" if offset else ""


def _clock(domain: TimeDomain) -> str:
    return f", {domain.value}" if domain is TimeDomain.PROCESSING else ""
