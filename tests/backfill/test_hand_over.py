"""The live half of a hand-over: open state at T continues as if one job had run all the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.testing import Crash, Pause, ScriptedSource
from tests.backfill.hand_over_case import (
    MARKER,
    Build,
    Ends,
    HandOver,
    Reading,
    seen,
    some_readings,
    stamped,
)

T = 1_000


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def both(ends: Ends, name: str) -> tuple[af.Flow, af.KeyedStream[str, Reading]]:
    """A flow in which readings of both sources are mixed, by key."""
    flow = af.Flow(name)
    left, right = stamped(flow, ends[0], "left"), stamped(flow, ends[1], "right")
    return flow, left.union(right).key_by(lambda reading: reading.key)


def pair(
    ends: Ends, name: str
) -> tuple[af.Flow, af.KeyedStream[str, Reading], af.KeyedStream[str, Reading]]:
    """A flow in which readings of both sources stay apart, by key."""
    flow = af.Flow(name)
    left, right = (
        stamped(flow, end, side).key_by(lambda reading: reading.key)
        for end, side in zip(ends, ("left", "right"), strict=True)
    )
    return flow, left, right


def two_thousand() -> tuple[list[Reading], list[Reading]]:
    """A left and a right stream of 2 s."""
    left = some_readings(1, times=range(0, 2_000, 14))
    return left, some_readings(2, times=range(3, 2_000, 10))


def numbers(known: list[int], reading: Reading) -> list[int]:
    return sorted([*known, reading.number])


def merged(one: list[int], other: list[int]) -> list[int]:
    return sorted([*one, *other])


def tumbling(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    flow, readings = both(ends, "tumbling")
    windows = readings.window(af.Tumbling(ms(70)))
    windows.fold(list[int], numbers, name="numbers").map(repr).to(sink, name="out")
    return flow


def sliding(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    flow, readings = both(ends, "sliding")
    windows = readings.window(af.Sliding(ms(150), ms(40)))
    windows.fold(list[int], numbers, merge=merged, name="numbers").map(repr).to(sink, name="out")
    return flow


def sessions(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    flow, readings = both(ends, "sessions")
    windows = readings.window(af.Session(ms(21)))
    windows.fold(list[int], numbers, merge=merged, name="numbers").map(repr).to(sink, name="out")
    return flow


def windows_after_windows(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    flow, readings = both(ends, "two windows")
    small = readings.window(af.Tumbling(ms(30))).fold(list[int], numbers, name="small")
    large = small.key_by(lambda window: len(window.value) % 2).window(af.Tumbling(ms(200)))
    large.fold(list[int], lambda known, one: sorted([*known, *one.value]), name="large").map(
        repr
    ).to(sink, name="out")
    return flow


class Silent(af.KeyedProcess[str, Reading, tuple[str, int, int]]):
    """Reports a key without readings for 20 ms, with the number of its earlier readings, in any order."""

    times = af.ListState("times", of=int)

    def process(self, value: Reading, ctx: af.Context[str]) -> None:
        ctx.state(self.times).add(value.at)
        ctx.set_event_timer(value.at + 20)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[tuple[str, int, int]]:
        before = [time for time in ctx.state(self.times).get() if time <= at]
        if max(before) + 20 == at:
            yield ctx.key, at, len(before)


def timers(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    flow, readings = both(ends, "timers")
    readings.process(Silent(), name="silent").map(repr).to(sink, name="out")
    return flow


def together(one: Reading | None, other: Reading | None) -> tuple[Reading | None, Reading | None]:
    return one, other


def interval_join(*, outer: bool) -> Build:
    def build(ends: Ends, sink: af.Sink[str]) -> af.Flow:
        flow, left, right = pair(ends, "interval join")
        both = left.interval_join(right, between=(ms(-30), ms(45)), of=Reading, other_of=Reading)
        joined = both.full(together, name="join") if outer else both.inner(together, name="join")
        joined.map(repr).to(sink, name="out")
        return flow

    return build


def as_of_join(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    flow, left, right = pair(ends, "as-of join")
    joined = left.as_of_join(right, of=Reading, other_of=Reading).left(together, name="join")
    joined.map(repr).to(sink, name="out")
    return flow


class Balance(af.CoProcess[str, Reading, Reading, tuple[str, int, int]]):
    """Every 90 ms of event time, the sum of left readings minus that of right ones."""

    pending = af.MapState("pending", key=int, of=int)
    balance = af.ValueState("balance", of=int)

    def process_left(self, value: Reading, ctx: af.Context[str]) -> None:
        self.note(value.at, value.number, ctx)

    def process_right(self, value: Reading, ctx: af.Context[str]) -> None:
        self.note(value.at, -value.number, ctx)

    def note(self, at: int, change: int, ctx: af.Context[str]) -> None:
        moment = at // 90 * 90 + 89
        pending = ctx.state(self.pending)
        pending.put(moment, (pending.get(moment) or 0) + change)
        ctx.set_event_timer(moment)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[tuple[str, int, int]]:
        balance = (ctx.state(self.balance).get() or 0) + (ctx.state(self.pending).get(at) or 0)
        ctx.state(self.balance).set(balance)
        ctx.state(self.pending).remove(at)
        yield ctx.key, at, balance


def co_process(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    flow, left, right = pair(ends, "balance")
    left.connect(right).process(Balance(), name="balance").map(repr).to(sink, name="out")
    return flow


BUILDS: dict[str, Build] = {
    "tumbling windows": tumbling,
    "sliding windows": sliding,
    "sessions": sessions,
    "windows of windows": windows_after_windows,
    "timers": timers,
    "interval join": interval_join(outer=False),
    "outer interval join": interval_join(outer=True),
    "as-of join": as_of_join,
    "co-process": co_process,
}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_open_state_at_t_continues_as_in_one_job(
    build: Build, parallelism: int, tmp_path: Path
) -> None:
    both = HandOver(build, two_thousand(), T, tmp_path)

    both.compute_past()
    both.go_live(parallelism)

    assert both.past.values
    assert both.live.values
    assert both.together == both.uninterrupted()


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_a_window_that_ends_exactly_at_t_continues_as_in_one_job(
    build: Build, tmp_path: Path
) -> None:
    left = [Reading("a", T - 42), Reading("a", T - 21), Reading("b", T - 1), Reading("a", T)]
    right = [
        Reading("b", T - 45),
        Reading("a", T - 30, 1),
        Reading("c", T, 2),
        Reading("a", T + 45),
    ]
    both = HandOver(build, (left, right), T, tmp_path, before=2)

    both.compute_past()
    both.go_live()

    assert both.together == both.uninterrupted()


def test_a_session_that_ends_exactly_at_t_is_extended_by_a_record_at_t(tmp_path: Path) -> None:
    both = HandOver(sessions, ([Reading("a", T - 21)], [Reading("a", T)]), T, tmp_path)

    both.compute_past()
    both.go_live()

    windows = [one.partition("window=")[2].partition(", value")[0] for one in both.together]
    assert windows == ["TimeWindow(start=979, end=1021)"]
    assert both.together == both.uninterrupted()


def one_by_one(readings: list[Reading]) -> af.Source[Reading]:
    """Splits that are read one after the other, as files are; the first ones end before T."""
    size = -(-len(readings) // 5)
    pieces = {f"piece {n}": readings[n * size : (n + 1) * size] for n in range(5)}
    source = ScriptedSource.of_splits(pieces)
    source.concurrency = 1  # type: ignore[assignment]  # None in the class, and an int or None in that of all sources
    return source


def side_by_side(readings: list[Reading]) -> af.Source[Reading]:
    """Three splits that are read at the same time; the last one has nothing before T."""
    late = [one for one in readings if one.at > T + 300 and one.key == "a"]
    others = [one for one in readings if one not in late]
    return ScriptedSource.of_splits({"even": others[::2], "odd": others[1::2], "late": late})


@pytest.mark.parametrize("source", [one_by_one, side_by_side])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_several_splits_continue_as_in_one_job(
    source: Callable[[list[Reading]], af.Source[Reading]], parallelism: int, tmp_path: Path
) -> None:
    both = HandOver(sessions, two_thousand(), T, tmp_path, source=source)

    both.compute_past()
    both.go_live(parallelism)

    assert both.together == both.uninterrupted()


def mixed_windows(ends: Ends, sink: af.Sink[str]) -> af.Flow:
    """Event time is assigned after an exchange, which mixes records from anywhere in the streams."""
    flow = af.Flow("mixed")
    left, right = (
        flow.source(end, name=name).rebalance() for end, name in zip(ends, "lr", strict=True)
    )
    readings = left.union(right).event_time(
        lambda reading: reading.at, max_delay=ms(3_000), name="times"
    )
    keyed = readings.filter(lambda reading: reading.key != MARKER).key_by(lambda one: one.key)
    windows = keyed.window(af.Tumbling(ms(70)))
    windows.fold(list[int], numbers, name="numbers").map(repr).to(sink, name="out")
    return flow


@pytest.mark.parametrize("parallelism", [1, 3])
def test_event_time_assigned_after_an_exchange_continues_as_in_one_job(
    parallelism: int, tmp_path: Path
) -> None:
    both = HandOver(mixed_windows, two_thousand(), T, tmp_path, delay=3_000)

    both.compute_past()
    both.go_live(parallelism)

    assert both.together == both.uninterrupted()


def test_the_live_job_may_stop_and_continue_with_any_parallelism(tmp_path: Path) -> None:
    both = HandOver(sessions, two_thousand(), T, tmp_path, source=with_pauses)
    both.compute_past()

    both.go_live_until_a_pause(1)  # has seen nothing but what is before T
    both.go_live_until_a_pause(3)
    both.go_live_until_a_pause(2)
    both.go_live()

    assert both.together == both.uninterrupted()


def with_pauses(readings: list[Reading]) -> af.Source[Reading]:
    """A day after 30 readings, and after 80 and 100: all of the first 30 are before T."""
    day = Pause(timedelta(days=1))
    return ScriptedSource(
        *readings[:30], day, *readings[30:80], day, *readings[80:100], day, *readings[100:]
    )


def test_after_a_crash_the_live_job_skips_records_before_t_again(tmp_path: Path) -> None:
    def crashing(readings: list[Reading]) -> af.Source[Reading]:
        second = Pause(timedelta(seconds=2))
        return ScriptedSource(
            *readings[:20], Crash(), *readings[20:90], second, Crash(), *readings[90:]
        )

    both = HandOver(sessions, two_thousand(), T, tmp_path, source=crashing)
    both.compute_past()
    both.go_live(
        2, every=timedelta(seconds=1), restart=af.restart.FixedDelay(10, timedelta(seconds=1))
    )

    assert both.together == both.uninterrupted()


def test_records_late_after_t_are_late_for_the_live_job_too(tmp_path: Path) -> None:
    def counting(ends: Ends, sink: af.Sink[str]) -> af.Flow:
        flow = af.Flow("late")
        readings = stamped(flow, ends[0], "left").key_by(lambda reading: reading.key)
        counted = readings.window(af.Tumbling(ms(70))).fold(list[int], numbers, name="numbers")
        counted.map(repr).union(counted.late.map(repr)).to(sink, name="out")
        return flow

    on_time = [Reading("a", at, at) for at in range(900, 1_500, 10)]
    late = [Reading("a", 1_005, 1), Reading("a", 1_211, 2), Reading("a", 1_395, 3)]
    both = HandOver(counting, ([*on_time, *late, Reading("a", 1_600)], []), T, tmp_path)

    both.compute_past()
    both.go_live()

    assert sum("number=1)" in one or "number=2)" in one for one in seen(both.live)) == 2
    assert both.together == both.uninterrupted()


def test_records_late_before_t_are_kept_by_the_past(tmp_path: Path) -> None:
    both = HandOver(
        tumbling,
        ([Reading("a", 800, 1), Reading("a", 900, 2), Reading("a", 801, 3)], []),
        T,
        tmp_path,
    )

    both.compute_past()
    both.go_live()

    assert any("[1, 3]" in one for one in both.together)


def test_the_live_job_counts_skipped_records(tmp_path: Path) -> None:
    both = HandOver(tumbling, two_thousand(), T, tmp_path)

    both.compute_past()
    steps = both.go_live().metrics.steps

    skipped = {name: steps[f"{name} times"].sides["skipped"] for name in ("left", "right")}
    assert skipped == {"left": 72, "right": 100}
