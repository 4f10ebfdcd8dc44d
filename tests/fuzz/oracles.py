"""Oracles: the outputs of steps, computed by plain functions over lists, record by record.

They are written from the guides and know nothing of batches, subtasks, checkpoints, panes or timers, and import nothing
of aflow. Where a guide and the engine disagree, one of the two is wrong.

A stream is a list of records and watermarks. A watermark of time W follows the record that advances event time; a
record at or before W is late. The last watermark is ``END``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

#: The watermark at the end of the input, and the time of a window without end.
END: Final = math.inf

Row: TypeAlias = tuple[object, ...]
"""A result; its first field is the key."""


@dataclass(frozen=True, slots=True)
class Rec:
    """A record: a number, and the key of the keyed steps."""

    n: int
    key: int


@dataclass(frozen=True, slots=True)
class Timed:
    """A record or a result with its timestamp."""

    value: object
    at: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark."""

    at: float


Elements: TypeAlias = Sequence["Timed | Mark"]


@dataclass(frozen=True, slots=True)
class Output:
    """The outputs of a step: its results with the watermarks, and its late records."""

    elements: Elements
    late: Sequence[Timed] = ()

    @property
    def results(self) -> list[Timed]:
        return [one for one in self.elements if isinstance(one, Timed)]


def rec(one: Timed) -> Rec:
    """Return the record of an element."""
    assert isinstance(one.value, Rec)
    return one.value


def row(one: Timed) -> Row:
    """Return the row of an element."""
    assert isinstance(one.value, tuple)
    return cast("Row", one.value)


def timed(records: Iterable[tuple[Rec, int]], delay: int) -> Elements:
    """Follow each record that is newer than all before it by its watermark: its time, less ``delay``, less one."""
    elements: list[Timed | Mark] = []
    newest = -END
    for value, at in records:
        elements.append(Timed(value, at))
        if at > newest:
            newest = at
            elements.append(Mark(newest - delay - 1))
    return [*elements, Mark(END)]


def all_in_time(records: Iterable[tuple[Rec, int]]) -> Elements:
    """Return records of which none is late, whatever the order in which they are read."""
    return [*(Timed(value, at) for value, at in records), Mark(END)]


def replaced(elements: Elements, results: Callable[[Rec], Iterable[object]]) -> Elements:
    """Replace each record by the results of a stateless step; watermarks stay where they are."""
    out: list[Timed | Mark] = []
    for one in elements:
        if isinstance(one, Mark):
            out.append(one)
        else:
            out.extend(Timed(result, one.at) for result in results(rec(one)))
    return out


# ------------------------------------------------------------------------------------------------------------- windows


@dataclass(slots=True)
class Pane:
    """The contents of a window of a key."""

    start: int
    end: int
    values: list[Timed] = field(default_factory=list["Timed"])
    firing: int = 0
    #: True if the watermark has passed its end.
    fired: bool = False

    @property
    def last(self) -> int:
        return self.end - 1


def tumbling(at: int, size: int, slide: int, offset: int) -> Iterator[tuple[int, int]]:
    """Yield the windows of ``size`` that contain ``at``; their starts are multiples of ``slide``, plus ``offset``."""
    start = (at - offset) // slide * slide + offset
    while start + size > at:
        yield start, start + size
        start -= slide


Value: TypeAlias = Callable[[Sequence[Timed]], object]
"""The function of a window, of its records in the order of their arrival."""


def windows(
    elements: Elements,
    *,
    size: int,
    slide: int,
    offset: int,
    lateness: int,
    value: Value,
    early: int | None = None,
) -> Output:
    """Fire each window when the watermark reaches its last millisecond, and again for each late record.

    A window accepts records for ``lateness`` more. A record that no window accepts is late if it is at or before the
    watermark by more than ``lateness``. With ``early`` a window also fires at each so many records before its end.
    """
    out: list[Timed | Mark] = []
    late: list[Timed] = []
    panes: dict[tuple[int, int], Pane] = {}
    now = -END

    def fire(key: int, pane: Pane) -> None:
        pane.firing += 1
        row = (key, pane.start, pane.end, pane.firing, value(pane.values))
        out.append(Timed(row, pane.last))

    for one in elements:
        if isinstance(one, Mark):
            now = one.at
            for (key, _), pane in sorted(panes.items(), key=lambda each: each[1].end):
                if pane.last <= now and not pane.fired:
                    pane.fired = True
                    fire(key, pane)
            for place in [p for p, pane in panes.items() if pane.last + lateness <= now]:
                del panes[place]
            out.append(one)
            continue
        key, accepted = rec(one).key, False
        for start, end in tumbling(int(one.at), size, slide, offset):
            if end - 1 + lateness <= now:
                continue
            accepted = True
            pane = panes.setdefault((key, start), Pane(start, end))
            pane.values.append(one)
            if pane.last <= now:
                pane.fired = True
                fire(key, pane)
            elif early is not None and len(pane.values) % early == 0:
                fire(key, pane)
        if not accepted and one.at + lateness <= now:
            late.append(one)
    return Output(out, late)


def sessions(
    elements: Elements, *, gap: Callable[[Rec], int], lateness: int, value: Value
) -> Output:
    """Merge records of a key that are at most a gap apart, and fire a session when the watermark passes its end.

    A record is late if the session that it would be in, after merging, is. The watermark of a step with sessions is
    1 ms behind that of its input.
    """
    out: list[Timed | Mark] = []
    late: list[Timed] = []
    found: dict[int, list[Pane]] = defaultdict(list)
    now = -END

    def fire(key: int, pane: Pane) -> None:
        pane.firing += 1
        pane.fired = True
        row = (key, pane.start, pane.end, pane.firing, value(pane.values))
        out.append(Timed(row, pane.last))

    for one in elements:
        if isinstance(one, Mark):
            now = one.at - 1
            due = [(key, pane) for key, some in found.items() for pane in some]
            for key, pane in sorted(due, key=lambda each: each[1].end):
                if pane.last <= now and not pane.fired:
                    fire(key, pane)
            for key, some in found.items():
                found[key] = [pane for pane in some if pane.last + lateness > now]
            out.append(one)
            continue
        key, at = rec(one).key, int(one.at)
        new = Pane(at, at + gap(rec(one)), [one])
        touching = [pane for pane in found[key] if pane.start <= new.end and new.start <= pane.end]
        end = max(new.end, *(pane.end for pane in touching), new.end)
        if end - 1 + lateness <= now:
            late.append(one)
            continue
        start = min(new.start, *(pane.start for pane in touching), new.start)
        together = [*(each for pane in touching for each in pane.values), one]
        count = max((pane.firing for pane in touching), default=0)
        merged = Pane(start, end, together, count)
        found[key] = [pane for pane in found[key] if pane not in touching] + [merged]
        if merged.last <= now:
            fire(key, merged)
    return Output(out, late)


def every_nth(
    elements: Elements, *, count: int, purging: bool, evict: int | None, value: Value
) -> Output:
    """Fire the one window of a key at each ``count``-th record; ``purging`` clears it, and ``evict`` keeps the last."""
    out: list[Timed | Mark] = []
    kept: dict[int, list[Timed]] = defaultdict(list)
    arrived: dict[int, int] = defaultdict(int)
    firings: dict[int, int] = defaultdict(int)
    for one in elements:
        if isinstance(one, Mark):
            out.append(one)
            continue
        key = rec(one).key
        kept[key].append(one)
        arrived[key] += 1
        if arrived[key] % count:
            continue
        if evict is not None:
            kept[key] = kept[key][-evict:]
        firings[key] += 1
        out.append(Timed((key, 1 if purging else firings[key], value(kept[key])), END))
        if purging:
            kept[key] = []
    return Output(out)


# --------------------------------------------------------------------------------------------------------- keyed steps


def folded(elements: Elements, step: Callable[[int, int], int], *, bad: int | None) -> Output:
    """Emit the accumulator of a key after each record; a number that ``bad`` divides fails, and is left out."""
    state: dict[int, int] = defaultdict(int)
    out: list[Timed | Mark] = []
    for one in elements:
        if isinstance(one, Mark):
            out.append(one)
            continue
        value = rec(one)
        if bad is not None and value.n % bad == 0:
            continue
        state[value.key] = step(state[value.key], value.n)
        out.append(Timed((value.key, state[value.key]), one.at))
    return Output(out)


def first_of_each(
    elements: Elements, *, key: Callable[[Rec], tuple[int, int]], within: int | None
) -> Output:
    """Emit records that differ from each emitted one of their key by ``within`` or more; no record may be late."""
    emitted: dict[tuple[int, int], list[float]] = defaultdict(list)
    out: list[Timed | Mark] = []
    for one in elements:
        if isinstance(one, Mark):
            out.append(one)
            continue
        value = rec(one)
        known = emitted[key(value)]
        if not known or (within is not None and all(abs(one.at - at) >= within for at in known)):
            known.append(one.at)
            out.append(Timed((key(value), value.n), one.at))
    return Output(out)


def best(elements: Elements, *, count: int) -> Output:
    """Emit the largest numbers of a key so far when they change; of equal ones the earlier is better."""
    kept: dict[int, list[int]] = defaultdict(list)
    out: list[Timed | Mark] = []
    for one in elements:
        if isinstance(one, Mark):
            out.append(one)
            continue
        value = rec(one)
        place = sum(1 for n in kept[value.key] if n >= value.n)
        if place < count:
            kept[value.key] = [*kept[value.key][:place], value.n, *kept[value.key][place:]][:count]
            out.append(Timed((value.key, tuple(kept[value.key])), one.at))
    return Output(out)


def reminders(elements: Elements, *, after: int, again: int) -> Output:
    """A process function with timers: see ``tests.fuzz.functions.Reminders``.

    A record precedes the timers that it makes fire. Timers fire in the order of their times when the watermark has
    reached them; one that a timer registers at or before the watermark fires, too.
    """
    sums: dict[int, int] = defaultdict(int)
    timers: set[tuple[float, int]] = set()
    left: dict[int, int] = defaultdict(int)
    out: list[Timed | Mark] = []
    for one in elements:
        if isinstance(one, Timed):
            value = rec(one)
            sums[value.key] += value.n
            due = one.at + after
            if value.n % 5 == 0:
                timers.discard((due - 1, value.key))
            timers.add((due, value.key))
            left[value.key] = again
            out.append(Timed((value.key, "record", sums[value.key]), one.at))
            continue
        while timers and min(timers)[0] <= one.at:
            at, key = min(timers)
            timers.remove((at, key))
            out.append(Timed((key, "timer", at, sums[key]), at))
            if left[key]:
                left[key] -= 1
                timers.add((at + after, key))
        out.append(one)
    return Output(out)


# --------------------------------------------------------------------------------------------------------------- joins


@dataclass(frozen=True, slots=True)
class Sides:
    """The sides whose records without a partner are emitted."""

    left: bool = False
    right: bool = False


def pairs_within(
    left: Sequence[Timed], right: Sequence[Timed], near: Callable[[float], bool], sides: Sides
) -> list[Timed]:
    """Join records of equal keys whose times differ as ``near`` says; a pair has the larger of its two times."""
    out: list[Timed] = []
    matched: set[int] = set()
    for one in left:
        partners = [
            (place, other)
            for place, other in enumerate(right)
            if rec(one).key == rec(other).key and near(other.at - one.at)
        ]
        matched |= {place for place, _ in partners}
        out += [Timed(pair(one, other), max(one.at, other.at)) for _, other in partners]
        if not partners and sides.left:
            out.append(Timed(pair(one, None), one.at))
    if sides.right:
        alone = [other for place, other in enumerate(right) if place not in matched]
        out += [Timed(pair(None, other), other.at) for other in alone]
    return out


def pair(one: Timed | None, other: Timed | None) -> Row:
    """Return the row of a pair, of which one may be missing."""
    some = one or other
    assert some is not None
    numbers = [None if each is None else rec(each).n for each in (one, other)]
    return (rec(some).key, *numbers)


def versions(
    left: Sequence[Timed], right: Sequence[Timed], *, tolerance: int | None, outer: bool
) -> list[Timed]:
    """Join each left record to the newest right one of its key that is not newer, and not older than ``tolerance``.

    Of right records of one time, the last to arrive counts.
    """
    out: list[Timed] = []
    for one in left:
        valid = [other for other in right if rec(other).key == rec(one).key and other.at <= one.at]
        newest = max((other.at for other in valid), default=-END)
        found = next((other for other in reversed(valid) if other.at == newest), None)
        if found is not None and tolerance is not None and one.at - found.at > tolerance:
            found = None
        if found is not None or outer:
            out.append(Timed(pair(one, found), one.at))
    return out


@dataclass(slots=True)
class Both:
    """The records of both streams in a window of a key."""

    start: int
    end: int
    left: list[Timed] = field(default_factory=list["Timed"])
    right: list[Timed] = field(default_factory=list["Timed"])


def in_fixed_windows(
    left: Sequence[Timed], right: Sequence[Timed], *, size: int, slide: int
) -> list[tuple[int, Both]]:
    """Return the records of both streams by key and window; none is late."""
    found: dict[tuple[int, int], Both] = {}
    for one in (*left, *right):
        for start, end in tumbling(int(one.at), size, slide, 0):
            found.setdefault((rec(one).key, start), Both(start, end))
    for (key, _), both in found.items():
        both.left = [o for o in left if rec(o).key == key and both.start <= o.at < both.end]
        both.right = [o for o in right if rec(o).key == key and both.start <= o.at < both.end]
    return [(key, both) for (key, _), both in found.items()]


def in_sessions(
    left: Sequence[Timed], right: Sequence[Timed], *, gap: int
) -> list[tuple[int, Both]]:
    """Return the records of both streams by key and session; sessions are those of both streams together."""
    found: dict[int, list[Both]] = defaultdict(list)
    for is_left, one in sorted(
        [(True, o) for o in left] + [(False, o) for o in right], key=lambda each: each[1].at
    ):
        some, at = found[rec(one).key], int(one.at)
        if not some or some[-1].end < at:
            some.append(Both(at, at + gap))
        some[-1].end = at + gap
        (some[-1].left if is_left else some[-1].right).append(one)
    return [(key, both) for key, some in found.items() for both in some]


def pairs_in(windows: Iterable[tuple[int, Both]], sides: Sides) -> list[Timed]:
    """Pair each left record of a window with each right one in it; a pair has the last time of its window."""
    out: list[Timed] = []
    for _, both in windows:
        rows = [pair(one, other) for one in both.left for other in both.right]
        if sides.left and not both.right:
            rows += [pair(one, None) for one in both.left]
        if sides.right and not both.left:
            rows += [pair(None, other) for other in both.right]
        out += [Timed(row, both.end - 1) for row in rows]
    return out


def grouped(windows: Iterable[tuple[int, Both]]) -> list[Timed]:
    """Return the sorted numbers of both sides for each window."""
    return [
        Timed(
            (key, both.start, both.end, 1, (numbers(both.left), numbers(both.right))), both.end - 1
        )
        for key, both in windows
    ]


# ----------------------------------------------------------------------------------------------------------- functions


def numbers(records: Iterable[Timed]) -> tuple[int, ...]:
    """Return the numbers of records, sorted: the order of arrival does not matter."""
    return tuple(sorted(rec(one).n for one in records))


def in_order(records: Iterable[Timed]) -> tuple[int, ...]:
    """Return the numbers of records in the order of their arrival."""
    return tuple(rec(one).n for one in records)


def figures(records: Iterable[Timed]) -> tuple[object, ...]:
    """Return count, minimum, maximum, mean, number of different numbers, and the two largest of them."""
    some = sorted(rec(one).n for one in records)
    mean = sum(some) / len(some)
    return len(some), some[0], some[-1], mean, len(set(some)), tuple(reversed(some[-2:]))


def total(records: Iterable[Timed]) -> int:
    """Return the sum of the numbers of records."""
    return sum(rec(one).n for one in records)
