"""Joins of the fuzzed flows, each with its oracle. No record is late: timing decides that with two inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import aflow as af
from aflow.api.joins import JoinedStreams
from tests.fuzz import functions, oracles
from tests.fuzz.keyed import Records, Rows, by_key, millis
from tests.fuzz.oracles import Rec, Row, Sides, Timed


class Kind(Enum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def sides(self) -> Sides:
        return Sides(left=self in {Kind.LEFT, Kind.FULL}, right=self in {Kind.RIGHT, Kind.FULL})

    def on(self, joined: JoinedStreams[Rec, Rec], name: str) -> Rows:
        match self:
            case Kind.INNER:
                return joined.inner(row_of, name=name)
            case Kind.LEFT:
                return joined.left(row_of, name=name)
            case Kind.RIGHT:
                return joined.right(row_of, name=name)
            case Kind.FULL:
                return joined.full(row_of, name=name)


class Join(ABC):
    """A join of two streams. ``expected`` is its oracle."""

    @property
    def needs_order(self) -> bool:
        """True if the results depend on the order of the records of a key."""
        return False

    @abstractmethod
    def on(self, left: Records, right: Records, name: str) -> Rows: ...

    @abstractmethod
    def expected(self, left: Sequence[Timed], right: Sequence[Timed]) -> Sequence[Timed]: ...


@dataclass(frozen=True)
class IntervalJoin(Join):
    lower: int
    width: int
    lower_inclusive: bool
    upper_inclusive: bool
    kind: Kind

    def on(self, left: Records, right: Records, name: str) -> Rows:
        joined = by_key(left).interval_join(
            by_key(right),
            between=(millis(self.lower), millis(self.lower + self.width)),
            lower_inclusive=self.lower_inclusive,
            upper_inclusive=self.upper_inclusive,
            of=Rec,
            other_of=Rec,
        )
        return self.kind.on(joined, name)

    def expected(self, left: Sequence[Timed], right: Sequence[Timed]) -> Sequence[Timed]:
        return oracles.pairs_within(left, right, self._near, self.kind.sides)

    def _near(self, distance: float) -> bool:
        upper = self.lower + self.width
        above = distance >= self.lower if self.lower_inclusive else distance > self.lower
        return above and (distance <= upper if self.upper_inclusive else distance < upper)


@dataclass(frozen=True)
class AsOfJoin(Join):
    tolerance: int | None
    outer: bool

    @property
    def needs_order(self) -> bool:
        return True

    def on(self, left: Records, right: Records, name: str) -> Rows:
        tolerance = None if self.tolerance is None else millis(self.tolerance)
        joined = by_key(left).as_of_join(by_key(right), tolerance=tolerance, of=Rec, other_of=Rec)
        return joined.left(row_of, name=name) if self.outer else joined.inner(row_of, name=name)

    def expected(self, left: Sequence[Timed], right: Sequence[Timed]) -> Sequence[Timed]:
        return oracles.versions(left, right, tolerance=self.tolerance, outer=self.outer)


@dataclass(frozen=True)
class WindowJoin(Join):
    """A join in sessions with a gap of ``size`` if ``slide`` is 0, else in tumbling or sliding windows."""

    size: int
    slide: int
    kind: Kind
    grouped: bool

    def on(self, left: Records, right: Records, name: str) -> Rows:
        if self.grouped:
            groups = by_key(left).co_group(
                by_key(right), self._windows(), into=_numbers, name=name, of=Rec, other_of=Rec
            )
            return groups.map(functions.row_of_window)
        joined = by_key(left).window_join(by_key(right), self._windows(), of=Rec, other_of=Rec)
        return self.kind.on(joined, name)

    def expected(self, left: Sequence[Timed], right: Sequence[Timed]) -> Sequence[Timed]:
        windows = (
            oracles.in_fixed_windows(left, right, size=self.size, slide=self.slide)
            if self.slide
            else oracles.in_sessions(left, right, gap=self.size)
        )
        return (
            oracles.grouped(windows) if self.grouped else oracles.pairs_in(windows, self.kind.sides)
        )

    def _windows(self) -> af.Tumbling | af.Sliding | af.Session:
        if self.slide == 0:
            return af.Session(millis(self.size))
        if self.slide == self.size:
            return af.Tumbling(millis(self.size))
        return af.Sliding(millis(self.size), millis(self.slide))


@dataclass(frozen=True)
class UnionWindows(Join):
    """Tumbling windows of both streams in one."""

    size: int

    def on(self, left: Records, right: Records, name: str) -> Rows:
        windows = by_key(left.union(right)).window(af.Tumbling(millis(self.size)))
        applied = windows.apply(functions.sorted_numbers, name=name, of=Rec)
        return applied.map(functions.row_of_window)

    def expected(self, left: Sequence[Timed], right: Sequence[Timed]) -> Sequence[Timed]:
        windows = oracles.in_fixed_windows(left, right, size=self.size, slide=self.size)
        return [
            Timed(
                (key, both.start, both.end, 1, oracles.numbers([*both.left, *both.right])),
                both.end - 1,
            )
            for key, both in windows
        ]


def row_of(left: Rec | None, right: Rec | None) -> Row:
    some = left or right
    assert some is not None
    return some.key, None if left is None else left.n, None if right is None else right.n


def _numbers(left: list[Rec], right: list[Rec]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return functions.sorted_numbers(left), functions.sorted_numbers(right)
