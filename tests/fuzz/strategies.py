"""Strategies of Hypothesis for the cases. They exclude cases whose results no guide defines, and say why."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

import aflow as af
from tests.fuzz.cases import Branch, Case, PairCase
from tests.fuzz.joins import AsOfJoin, IntervalJoin, Join, Kind, UnionWindows, WindowJoin
from tests.fuzz.keyed import (
    Best,
    Deduplicated,
    EveryNth,
    FixedWindows,
    Folded,
    Function,
    KeyedStep,
    Reminded,
    Sessions,
    Twice,
)
from tests.fuzz.oracles import Rec
from tests.fuzz.running import Checkpoints, Disk, Input, Interruption, Next, Running
from tests.fuzz.steps import (
    Call,
    Filter,
    FlatMap,
    Map,
    Order,
    Policy,
    Rebalance,
    Stateless,
    Unreliable,
)


@st.composite
def splits(draw: DrawFn, delay: int, *, late: bool, most: int) -> tuple[tuple[Rec, int], ...]:
    """Records of a split, out of order by less than ``delay``, or, if ``late``, by up to thrice as much and more."""
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(0, 40),
                st.integers(0, 3),
                st.sampled_from([0, 0, 1, 3, 10, 25, 60]),
                st.integers(0, 3 * delay + 30) if late else st.integers(0, max(delay - 1, 0)),
            ),
            max_size=most,
        )
    )
    now = draw(st.integers(-30, 60))
    records: list[tuple[Rec, int]] = []
    for n, key, advance, back in steps:
        now += advance
        records.append((Rec(n, key), now - back))
    return tuple(records)


@st.composite
def inputs(draw: DrawFn, *, late: bool, most_splits: int = 3) -> Input:
    """A source; with ``late`` it has one split."""
    # Without max_delay, records at the very end of a session are a matter of chance: see the guide of windows.
    delay = draw(st.integers(1, 40))
    count = 1 if late else draw(st.integers(1, most_splits))
    records = tuple(draw(splits(delay, late=late, most=40 // count)) for _ in range(count))
    crashes = draw(st.lists(st.integers(0, 30), max_size=count))
    return Input(
        records,
        delay,
        crashes=tuple(crashes),
        every=draw(st.sampled_from([1, 2, 3, 8])),
        pause=draw(st.sampled_from([1, 4, 9])),
    )


policies = st.sampled_from(Policy)
functions = st.sampled_from(Function)

keeping: SearchStrategy[Stateless] = st.one_of(
    st.builds(Map, st.integers(1, 3), st.integers(0, 4)),
    st.builds(Filter, st.integers(2, 4)),
    st.builds(FlatMap, st.integers(2, 4)),
    st.builds(Unreliable, st.integers(2, 6), policies, st.booleans()),
    st.builds(
        Call,
        st.just(Order.ORDERED),
        st.sampled_from([1, 3, 100]),
        st.integers(3, 7),
        policies,
        st.booleans(),
    ),
)
mixing: SearchStrategy[Stateless] = st.builds(
    Call,
    st.just(Order.UNORDERED),
    st.sampled_from([1, 3, 100]),
    st.integers(3, 7),
    policies,
    st.booleans(),
)
exchanging: SearchStrategy[Stateless] = st.one_of(
    st.just(Rebalance()),
    st.builds(
        Call,
        st.just(Order.BY_KEY),
        st.sampled_from([1, 3, 100]),
        st.integers(3, 7),
        policies,
        st.booleans(),
    ),
)


@st.composite
def fixed_windows(draw: DrawFn, *, lateness: bool = True, early: bool = True) -> FixedWindows:
    size = draw(st.integers(1, 60))
    slide = draw(st.one_of(st.just(size), st.integers(max(size // 5, 1), size + 10)))
    function = draw(functions)
    late = draw(st.sampled_from([0, 0, 5, 40])) if lateness else 0
    often = draw(st.sampled_from([None, None, 1, 2, 3])) if early else None
    offset = draw(st.integers(-slide + 1, slide - 1)) if draw(st.booleans()) else 0
    return FixedWindows(size, slide, offset, late, function, often)


@st.composite
def sessions(draw: DrawFn, *, lateness: bool = True) -> Sessions:
    gap = draw(st.integers(1, 40))
    late = draw(st.sampled_from([0, 0, 5, 40])) if lateness else 0
    # A fold into sessions needs merge.
    function = draw(functions.filter(lambda one: one is not Function.FOLD))
    return Sessions(gap, draw(st.sampled_from([0, 0, 7, 20])), late, function)


counted = st.builds(
    EveryNth,
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([None, None, 1, 2, 3]),
    st.booleans(),
)
twice = st.builds(
    Twice,
    st.one_of(fixed_windows(lateness=False, early=False), sessions(lateness=False)),
    st.one_of(fixed_windows(lateness=False, early=False), sessions(lateness=False)),
)
windowed: SearchStrategy[KeyedStep] = st.one_of(fixed_windows(), sessions(), counted, twice)
keyed_steps: SearchStrategy[KeyedStep] = st.one_of(
    windowed,
    st.builds(Folded, st.sampled_from([None, 3, 5])),
    # Records of a key are often exactly 3, 10 or 25 ms apart.
    st.builds(Deduplicated, st.integers(1, 5), st.sampled_from([None, 1, 3, 10, 25, 60])),
    st.builds(Best, st.integers(1, 3)),
    st.builds(Reminded, st.integers(1, 50), st.integers(0, 2), st.booleans()),
)


disks = st.one_of(
    st.none(),
    st.builds(Disk, st.sampled_from(af.backends.DiskEngine), st.sampled_from([1, 4])),
)


@st.composite
def runnings(draw: DrawFn, *, batches: tuple[int, ...] = (1, 2, 7, 1024)) -> Running:
    checkpoints = draw(st.sampled_from(Checkpoints))
    following = None
    if checkpoints is not Checkpoints.NONE:
        following = draw(
            st.one_of(
                st.none(),
                st.builds(
                    Next, st.integers(1, 60), st.integers(1, 3), st.sampled_from(Interruption)
                ),
            )
        )
    return Running(
        parallelism=draw(st.integers(1, 3)),
        batch=draw(st.sampled_from(batches)),
        channel=draw(st.sampled_from([1024, 1, 4])),
        chaining=draw(st.booleans()),
        disk=draw(disks),
        gradual=draw(st.booleans()),
        checkpoints=checkpoints,
        incremental=draw(st.booleans()),
        next=following,
        sink_delay=draw(st.sampled_from([0, 0, 2, 11])),
        seed=draw(st.integers(0, 1000)),
    )


@st.composite
def branches(draw: DrawFn, *, late: bool, one_split: bool, running: Running) -> Branch:
    some: list[SearchStrategy[Stateless]] = [keeping, mixing]
    if not late:
        some.append(exchanging)
    strategy = st.one_of(some)
    if late and running.rescales:
        # Unfinished calls are distributed again, without the watermarks between them.
        strategy = strategy.filter(lambda step: not isinstance(step, Call))
    steps = tuple(draw(st.lists(strategy, max_size=3)))
    ordered = one_split and all(step.keeps_order for step in steps)
    # They may also get behind later records of their key.
    if running.rescales and any(isinstance(step, Call) for step in steps):
        ordered = False

    def is_defined(step: KeyedStep) -> bool:
        return (
            (ordered or not step.needs_order)
            and (not late or not step.needs_punctuality)
            and (not step.needs_source_order or _is_exact(steps))
            and not (step.needs_subtasks and running.rescales)
        )

    return Branch(steps, draw(keyed_steps.filter(is_defined)))


def _is_exact(steps: tuple[Stateless, ...]) -> bool:
    """Return True if the order of the records between which event timers fire is that of the source."""
    return not any(isinstance(step, Call | Rebalance) for step in steps)


def most_splits(running: Running) -> int:
    """Return the largest number of splits. A task of its own cannot tell splits apart, so some would be read ahead."""
    return 3 if running.chaining else 1


@st.composite
def cases(draw: DrawFn) -> Case:
    running = draw(runnings())
    late = draw(st.booleans()) and not running.moves_records_in_flight
    source = draw(inputs(late=late, most_splits=most_splits(running)))
    one_split = len(source.splits) == 1
    number = draw(st.integers(1, 2))
    some = [draw(branches(late=late, one_split=one_split, running=running)) for _ in range(number)]
    return Case(source, tuple(some), running)


kinds = st.sampled_from(Kind)
joins: SearchStrategy[Join] = st.one_of(
    st.builds(
        IntervalJoin, st.integers(-40, 40), st.integers(2, 50), st.booleans(), st.booleans(), kinds
    ),
    st.builds(AsOfJoin, st.sampled_from([None, 1, 30]), st.booleans()),
    st.integers(1, 50).flatmap(
        lambda size: st.builds(
            WindowJoin,
            st.just(size),
            st.sampled_from([0, size, max(size // 2, 1)]),
            kinds,
            st.booleans(),
        )
    ),
    st.builds(UnionWindows, st.integers(1, 50)),
)


@st.composite
def pair_cases(draw: DrawFn) -> PairCase:
    running = draw(runnings())
    join = draw(joins)
    most = 1 if join.needs_order else most_splits(running)
    left, right = (
        draw(inputs(late=False, most_splits=most)),
        draw(inputs(late=False, most_splits=most)),
    )
    steps = st.lists(
        keeping if join.needs_order else st.one_of(keeping, exchanging, mixing), max_size=2
    )
    if join.needs_order and running.rescales:
        steps = steps.filter(lambda some: not any(isinstance(step, Call) for step in some))
    return PairCase(left, right, tuple(draw(steps)), tuple(draw(steps)), join, running)
