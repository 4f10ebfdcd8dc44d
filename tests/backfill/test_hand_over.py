"""The live half of a hand-over: what stands open at T goes on as if there had been one job all the time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from tests.backfill.handing_over import Build, Ends, HandOver, Reading, some_readings, stamped

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


def numbers(known: list[int], reading: Reading) -> list[int]:
    return sorted([*known, reading.number])


def merged(one: list[int], other: list[int]) -> list[int]:
    return sorted([*one, *other])


def tumbling(ends: Ends, sink: af.Sink[object]) -> af.Flow:
    flow, readings = both(ends, "tumbling")
    windows = readings.window(af.Tumbling(ms(70)))
    windows.fold(list[int], numbers, name="numbers").to(sink, name="out")
    return flow


def sliding(ends: Ends, sink: af.Sink[object]) -> af.Flow:
    flow, readings = both(ends, "sliding")
    windows = readings.window(af.Sliding(ms(150), ms(40)))
    windows.fold(list[int], numbers, merge=merged, name="numbers").to(sink, name="out")
    return flow


def sessions(ends: Ends, sink: af.Sink[object]) -> af.Flow:
    flow, readings = both(ends, "sessions")
    windows = readings.window(af.Session(ms(21)))
    windows.fold(list[int], numbers, merge=merged, name="numbers").to(sink, name="out")
    return flow


def windows_after_windows(ends: Ends, sink: af.Sink[object]) -> af.Flow:
    flow, readings = both(ends, "two windows")
    small = readings.window(af.Tumbling(ms(30))).fold(list[int], numbers, name="small")
    large = small.key_by(lambda window: len(window.value) % 2).window(af.Tumbling(ms(200)))
    large.fold(list[int], lambda known, one: sorted([*known, *one.value]), name="large").to(
        sink, name="out"
    )
    return flow


class Silent(af.KeyedProcess[str, Reading, tuple[str, int, int]]):
    """Reports a key that was silent for 20 ms, with how many readings it had before, whatever their order."""

    times = af.ListState("times", of=int)

    def process(self, value: Reading, ctx: af.Context[str]) -> None:
        ctx.state(self.times).add(value.at)
        ctx.set_event_timer(value.at + 20)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[tuple[str, int, int]]:
        before = [time for time in ctx.state(self.times).get() if time <= at]
        if max(before) + 20 == at:
            yield ctx.key, at, len(before)


def timers(ends: Ends, sink: af.Sink[object]) -> af.Flow:
    flow, readings = both(ends, "timers")
    readings.process(Silent(), name="silent").to(sink, name="out")
    return flow


def interval_join(kind: af.Join) -> Build:
    def build(ends: Ends, sink: af.Sink[object]) -> af.Flow:
        flow, left, right = pair(ends, "interval join")
        joined = left.interval_join(
            right,
            between=(ms(-30), ms(45)),
            into=lambda one, other: (one, other),
            name="join",
            of=Reading,
            other_of=Reading,
            kind=kind,  # type: ignore[call-overload]
        )
        joined.to(sink, name="out")
        return flow

    return build


def as_of_join(ends: Ends, sink: af.Sink[object]) -> af.Flow:
    flow, left, right = pair(ends, "as-of join")
    joined = left.as_of_join(
        right,
        into=lambda one, other: (one, other),
        name="join",
        kind=af.Join.LEFT,
        of=Reading,
        other_of=Reading,
    )
    joined.to(sink, name="out")
    return flow


class Balance(af.CoProcess[str, Reading, Reading, tuple[str, int, int]]):
    """Every 90 ms, the sum of left readings less that of right ones, as far as event time has come."""

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


def co_process(ends: Ends, sink: af.Sink[object]) -> af.Flow:
    flow, left, right = pair(ends, "balance")
    left.connect(right).process(Balance(), name="balance").to(sink, name="out")
    return flow


BUILDS: dict[str, Build] = {
    "tumbling windows": tumbling,
    "sliding windows": sliding,
    "sessions": sessions,
    "windows of windows": windows_after_windows,
    "timers": timers,
    "interval join": interval_join(af.Join.INNER),
    "outer interval join": interval_join(af.Join.FULL),
    "as-of join": as_of_join,
    "co-process": co_process,
}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_what_is_open_at_t_goes_on_as_in_one_job(
    build: Build, parallelism: int, tmp_path: Path
) -> None:
    left = some_readings(1, times=range(0, 2_000, 14))
    right = some_readings(2, times=range(3, 2_000, 10))
    both = HandOver(build, (left, right), T, tmp_path)

    both.compute_past()
    both.go_live(parallelism)

    assert both.past.values
    assert both.live.values
    assert both.together == both.uninterrupted()


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_what_ends_exactly_at_t_goes_on_as_in_one_job(build: Build, tmp_path: Path) -> None:
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


def test_a_session_that_the_past_has_closed_at_t_is_not_extended_by_a_record_at_t(
    tmp_path: Path,
) -> None:
    both = HandOver(sessions, ([Reading("a", T - 21)], [Reading("a", T)]), T, tmp_path)

    both.compute_past()
    both.go_live()

    sizes = [
        (one.window.start, one.window.end)
        for one in (*both.past.values, *both.live.values)
        if isinstance(one, af.Windowed) and isinstance(one.window, af.TimeWindow)
    ]
    assert sizes == [(T - 21, T), (T, T + 21)]


def test_the_live_job_counts_what_it_has_skipped(tmp_path: Path) -> None:
    left = some_readings(1, times=range(0, 2_000, 14))
    right = some_readings(2, times=range(3, 2_000, 10))
    both = HandOver(tumbling, (left, right), T, tmp_path)

    both.compute_past()
    steps = both.go_live().metrics.steps

    skipped = {name: steps[f"{name} times"].sides["skipped"] for name in ("left", "right")}
    assert skipped == {"left": 72, "right": 100}
