"""How users say which windows they want."""

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
from aflow.machines.windows.evictor import Evictor
from aflow.machines.windows.evictors import Count as CountEvictor
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
    """Windows of ``size`` that touch and do not overlap: each record is in exactly one.

    Windows start at multiples of ``size`` since 1970-01-01T00:00Z, shifted by ``offset`` (which may be negative
    and must be shorter than ``size``): ``Tumbling(timedelta(days=1), offset=timedelta(hours=5))`` gives days from
    05:00 UTC. In the domain of processing time a record is in the window of the moment at which it arrives.

    ``stagger`` shifts the windows of each subtask, so that not all of them emit their results at the same moment:
    ``WindowStagger.RANDOM`` by a random part of ``size``, ``NATURAL`` by how much of a window had passed when the
    subtask received its first record. The windows of two keys then start at different moments. A restore keeps the
    windows of each key, at any parallelism. Over history windows are aligned.

    Raises ``FlowDefinitionError`` for a size that is not above zero, an offset out of bounds, parts of a millisecond,
    or a stagger that is none.
    """

    size: timedelta
    offset: timedelta = _NONE
    domain: TimeDomain = TimeDomain.EVENT
    stagger: WindowStagger = WindowStagger.ALIGNED

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> TumblingWindows:
        """The machine that assigns timestamps to these windows."""
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
    """Windows of ``size`` of which a new one begins every ``slide``: each record is in about ``size / slide`` of them.

    Windows start at multiples of ``slide`` since 1970-01-01T00:00Z, shifted by ``offset`` (shorter than
    ``slide``). With a ``slide`` longer than ``size`` there are gaps, and records in them are in no window. Windows of
    event time share what they have in common where the function can merge (``reduce``, ``aggregate``, ``fold`` with
    ``merge=``): then a record is folded once, however many windows it is in. Raises ``FlowDefinitionError`` as
    ``Tumbling`` does.
    """

    size: timedelta
    slide: timedelta
    offset: timedelta = _NONE
    domain: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> SlidingWindows:
        """The machine that assigns timestamps to these windows."""
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
    """Windows of activity: records of a key at most ``gap`` apart are in one, which ends ``gap`` after its last record.

    A session is from the timestamp of its first record to ``gap`` after that of its last. A record exactly ``gap``
    after the last still belongs to it, unless the session has given its result already: that is when the watermark is
    1 ms behind the session's end, where a record of the session's end is not late yet. A ``max_delay`` in
    ``event_time`` that is at least 1 ms longer than records are ever late makes sure of it. Otherwise such a record may
    begin another session, or not, depending on the batch in which it comes.
    """

    gap: timedelta
    domain: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        self.assigner()

    def assigner(self) -> SessionWindows:
        """The machine that assigns timestamps to these windows."""
        return SessionWindows(positive_millis(self.gap, what="Session gap"), _domain(self.domain))

    def __str__(self) -> str:
        return f"Session({short(self.assigner().gap)}{_clock(self.domain)})"


@dataclass(frozen=True)
class DynamicSession(Generic[T_contra]):
    """Sessions to which each record says how long a pause may be behind it: ``gap(value)``, which must be above zero.

    A session ends when no record of it waits for more: a later record with a shorter gap never makes it end earlier.
    """

    gap: Callable[[T_contra], timedelta]
    domain: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        check_function(self.gap, "DynamicSession")
        _domain(self.domain)

    def assigner(self) -> DynamicSessionWindows[T_contra]:
        """The machine that assigns records to these windows."""
        gap = self.gap

        def millis(value: T_contra) -> int:
            return positive_millis(gap(value), what=f"the gap of a session behind {shown(value)}")

        return DynamicSessionWindows(millis, self.domain)

    def __str__(self) -> str:
        return f"DynamicSession({getattr(self.gap, '__name__', 'gap')}{_clock(self.domain)})"


@dataclass(frozen=True, slots=True)
class Global:
    """One window a key that holds everything and never ends: what it gives is the trigger's matter, and so is its size.

    So it needs a trigger. One that does not purge lets the contents grow for ever.
    """

    def assigner(self) -> GlobalWindows:
        """The machine that assigns everything to the one window."""
        return GlobalWindows()

    def __str__(self) -> str:
        return "Global()"


@dataclass(frozen=True, slots=True)
class Count:
    """Windows of ``size`` records of a key; with ``slide``, of its last ``size`` records every ``slide`` records.

    They know nothing of time: a window fires when it is full, never earlier, so what has not filled one at the end of
    the input comes to nothing. ``Windowed.window`` is ``GLOBAL_WINDOW``, and ``Windowed.firing`` is 1 for each full
    window; with ``slide`` it counts the results. Each of a sliding window's records is kept, whatever the function is.
    Raises ``FlowDefinitionError`` for numbers below 1.
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
        """The machine that assigns everything to the one window."""
        return GlobalWindows()

    def trigger(self) -> Trigger[Any]:
        """Fires when a window is full, and drops what no later window needs."""
        return Purging(CountTrigger(self.size)) if self.slide is None else CountTrigger(self.slide)

    def evictor(self) -> Evictor[Any] | None:
        """Keeps the last ``size`` records of a sliding window."""
        return None if self.slide is None else CountEvictor(self.size)

    def __str__(self) -> str:
        return (
            f"Count({self.size})"
            if self.slide is None
            else f"Count({self.size} every {self.slide})"
        )


Windows: TypeAlias = Tumbling | Sliding | Session | DynamicSession[T] | Global | Count

OF_AFLOW = (Tumbling, Sliding, Session, DynamicSession, Global, Count)
"""The same, for ``isinstance``."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which windows a step has, when they fire and what they drop."""

    assigner: WindowAssigner[Any]
    trigger: Trigger[Any]
    evictor: Evictor[Any] | None
    lateness: int
    detail: str
    """For plans, as a person writes it."""


def choose(
    windows: Windows[Any] | WindowAssigner[Any],
    trigger: Trigger[Any] | None,
    evictor: Evictor[Any] | None,
    lateness: timedelta,
) -> Chosen:
    """Check the arguments of ``window()`` and add what was left out. Raises ``FlowDefinitionError``."""
    if isinstance(windows, type) or not (
        isinstance(windows, OF_AFLOW) or callable(getattr(windows, "assign", None))
    ):
        raise FlowDefinitionError(
            f"window() takes windows such as aflow.Tumbling(…), or an aflow.WindowAssigner of your own, "
            f"not {shown(windows)}"
        )
    _check_extras(windows, trigger, evictor)
    if isinstance(windows, Global) and trigger is None:
        raise FlowDefinitionError(
            "a Global window has no end to fire at, so it needs a trigger: window(Global(), trigger=…) with one of "
            "aflow.triggers"
        )
    assigner = windows.assigner() if isinstance(windows, OF_AFLOW) else windows
    if isinstance(_inner(trigger), EventTime) and assigner.domain is TimeDomain.PROCESSING:
        raise FlowDefinitionError(
            "triggers.EventTime waits for the watermark, and these windows end by the clock; leave trigger out, or use "
            "triggers.ProcessingTime()"
        )
    check_assigner(assigner)
    allowed = _allowed(assigner, lateness)
    said = [str(windows) if isinstance(windows, OF_AFLOW) else type(windows).__name__]
    said += [] if trigger is None else [f"trigger {_described(trigger)}"]
    said += [] if evictor is None else [f"evictor {_described(evictor)}"]
    said += [f"lateness {short(allowed)}"] if allowed else []
    if isinstance(windows, Count):
        trigger, evictor = windows.trigger(), windows.evictor()
    if trigger is None:
        trigger = _default(assigner)
    return Chosen(assigner, trigger, evictor, allowed, ", ".join(said))


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
                f"{word}= takes an aflow.{kind.__name__}, not {shown(extra)}{hint}"
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
            "nothing is late for windows of processing time: leave lateness out"
        )
    if allowed and isinstance(assigner, GlobalWindows):
        raise FlowDefinitionError(
            "nothing is late for a window that never ends: leave lateness out"
        )
    return allowed


def _inner(trigger: Trigger[Any] | None) -> Trigger[Any] | None:
    """Return the trigger that says when to fire."""
    while isinstance(trigger, Purging):
        trigger = trigger.trigger
    return trigger


def _default(assigner: WindowAssigner[Any]) -> Trigger[Any]:
    return EventTime() if assigner.domain is TimeDomain.EVENT else ProcessingTime()


def _described(part: object) -> str:
    """With its parameters, if it says them."""
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
            f"stagger= takes aflow.WindowStagger.ALIGNED, .RANDOM or .NATURAL, not {shown(stagger)}"
        )
    return stagger


def _shift(offset: int) -> str:
    return f", offset {short(offset)}" if offset else ""


def _clock(domain: TimeDomain) -> str:
    return f", {domain.value}" if domain is TimeDomain.PROCESSING else ""
