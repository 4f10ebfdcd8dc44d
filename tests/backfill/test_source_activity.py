"""Event time of a stream of micro-batches follows the sources of each step that are active, as in a live job."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow import aggregates
from aflow.backfill.blocks import InputRows, SplitRows
from aflow.backfill.epoch_time import (
    ACTIVE,
    Activity,
    EpochTime,
    EpochWatermarks,
    SourceActivity,
    StreamWatermarks,
)
from aflow.backfill.fragment_planner import plan_fragments
from aflow.errors import FlowDefinitionError
from aflow.machines.watermarks.valve import WatermarkValve
from aflow.model.time import MIN_TIMESTAMP
from aflow.testing import virtual_time
from tests.backfill.items import Item, at_of, keyed, millis, no_tick
from tests.backfill.one_fragment import Results, Rows, fragments, run_one
from tests.backfill.steps import of_window, plus

BOTH = {"sum": frozenset({"left", "right"})}
#: Either source of one step can be idle.
TWO = EpochTime({"left": 1, "right": 1}, {"left": 50, "right": 50}, BOTH)
#: A step for each source, and one that reads the results of both.
BRANCHES = EpochTime(
    {"left": 1, "right": 1},
    {"left": 50},
    {
        "left sum": frozenset({"left"}),
        "right sum": frozenset({"right"}),
        "total": frozenset({"left sum", "right sum"}),
    },
)


def flow_of(*, advance_when_idle: bool = False) -> af.Flow:
    flow = af.Flow("two")
    left = flow.source([1], name="a").event_time(lambda n: n, name="left", max_delay=millis(10))
    right = flow.source([1], name="b").event_time(
        lambda n: n,
        name="right",
        idle_after=timedelta(seconds=5),
        advance_when_idle=advance_when_idle,
    )
    left.union(right).to(af.CollectSink[int](), name="out")
    return flow


def branches() -> af.Flow:
    """Two sources, windows over each and over both, and windows over the results of windows."""

    def items(name: str) -> af.Stream[Item]:
        return flow.source(list[Item](), name=name).event_time(at_of, name=f"time of {name}")

    def sums(stream: af.Stream[Item], name: str) -> af.Stream[Item]:
        windows = keyed(stream).window(af.Tumbling(millis(10)))
        return windows.fold(int, plus, name=name, of=int).map(of_window, name=f"rows of {name}")

    flow = af.Flow("branches")
    a, b, c = items("a"), items("b"), items("c")
    of_a, of_b = sums(a.filter(bool), "sums of a"), sums(b, "sums of b")
    results = {
        "out of a": of_a,
        "out of both": sums(a.union(b), "sums of both"),
        "out of sums": sums(of_a.union(of_b).union(c), "sums of sums"),
    }
    for name, stream in results.items():
        stream.to(af.CollectSink[Item](), name=name)
    return flow


def test_the_rule_of_a_flow_has_the_times_of_its_steps() -> None:
    time = EpochTime.of(plan_fragments(flow_of().graph))

    assert time.lags == {"left": 11, "right": 1}
    assert time.idle_after == {"right": 5000}


def test_the_watermark_of_a_keyed_step_has_the_channels_upstream_of_it() -> None:
    time = EpochTime.of(plan_fragments(branches().graph))

    assert time.channels == {
        "sums of a": {"time of a"},
        "sums of b": {"time of b"},
        "sums of both": {"time of a", "time of b"},
        "sums of sums": {"sums of a", "sums of b", "time of c"},
    }
    order = list(time.channels)
    assert order.index("sums of sums") == len(order) - 1


def test_channels_are_found_upstream_of_a_partial_aggregation() -> None:
    flow = af.Flow("parts")
    items = flow.source(list[Item](), name="items")
    early = items.event_time(at_of, name="early")
    late = items.event_time(at_of, name="late", max_delay=millis(100))
    for name, stream in {"one": early, "other": late}.items():
        windows = keyed(stream).window(af.Tumbling(millis(10)))
        windows.aggregate(aggregates.count(), name=name).to(af.CollectSink(), name=f"{name} out")

    time = EpochTime.of(plan_fragments(flow.graph, can_be_late=True))

    assert time.channels == {"one": {"early"}, "other": {"late"}}


def test_time_that_advances_by_a_clock_is_refused() -> None:
    plan = plan_fragments(flow_of(advance_when_idle=True).graph)

    with pytest.raises(FlowDefinitionError, match=r"step 'right' .* has advance_when_idle=True"):
        EpochTime.of(plan)


def advanced(activity: Activity = ACTIVE, *, at: int = 90, **earned: int) -> int:
    """The watermark of ``sum`` after an epoch that begins at ``at``."""
    return TWO.watermarks(at, {"sum": at}, earned, activity).steps["sum"].after


def test_an_idle_channel_does_not_count_and_the_maximum_is_flushed_if_all_are_idle() -> None:
    right, both = Activity(frozenset({"right"})), Activity(frozenset({"left", "right"}))

    assert advanced(left=300, right=100) == 100
    assert advanced(right, left=300, right=100) == 300
    assert advanced(left=300) == 90
    assert advanced(right, at=MIN_TIMESTAMP, left=300) == 300
    assert advanced(both, left=300, right=100) == 300


def test_a_channel_that_is_active_again_counts_after_it_has_reached_the_others() -> None:
    behind = Activity(unaligned=frozenset({("sum", "right")}))

    assert advanced(behind, at=300, left=400, right=200) == 400
    # It is active, so there is no flush; it does not count, so time stops.
    left_idle = Activity(frozenset({"left"}), behind.unaligned)
    assert advanced(left_idle, at=300, left=400, right=200) == 300


def test_a_step_does_not_follow_sources_that_are_not_upstream_of_it() -> None:
    steps = {"left sum": 100, "right sum": 100, "total": 100}

    marks = BRANCHES.watermarks(100, steps, {"left": 200, "right": 900})
    idle = BRANCHES.watermarks(
        100, steps, {"left": 200, "right": 900}, Activity(frozenset({"left"}))
    )

    assert {step: one.after for step, one in marks.steps.items()} == {
        "left sum": 200,
        "right sum": 900,
        "total": 200,
    }
    assert marks.stream == EpochWatermarks(100, 200)
    # A silent source makes none of its own records late.
    assert {step: one.after for step, one in idle.steps.items()} == {
        "left sum": 200,
        "right sum": 900,
        "total": 900,
    }
    assert idle.stream == EpochWatermarks(100, 900)


def test_a_stream_does_not_end_before_a_source_that_is_active_again() -> None:
    behind = Activity(unaligned=frozenset({("sum", "right")}))

    marks = TWO.watermarks(300, {"sum": 300}, {"left": 900, "right": 200}, behind)

    assert marks.steps["sum"].after == 900
    assert marks.stream.after == 300


def test_a_keyed_step_that_is_new_begins_at_its_sources() -> None:
    marks = BRANCHES.watermarks(100, {"left sum": 100}, {"left": 200, "right": 900})

    assert marks.steps["right sum"] == EpochWatermarks(900, 900)
    assert marks.steps["total"] == EpochWatermarks(100, 200)


class Driver:
    """Epochs of ``TWO``, at moments of a clock."""

    def __init__(self) -> None:
        self.activity = SourceActivity(TWO, 0)
        self.earned: dict[str, int] = {}
        self.watermark = self.stream = MIN_TIMESTAMP

    def begin(self, now: int, looked: int | None = None) -> StreamWatermarks:
        activity = self.activity.at(now, looked)
        return TWO.watermarks(self.stream, {"sum": self.watermark}, self.earned, activity)

    def end(self, marks: StreamWatermarks, newest: dict[str, int], now: int) -> None:
        self.earned = TWO.earned(self.earned, newest)
        self.watermark, self.stream = marks.steps["sum"].after, marks.stream.after
        self.activity.on_epoch(marks, self.earned, newest.keys(), now)

    def batch(self, began: int, ended: int, *steps: str) -> Collection[str]:
        """Run an epoch with records of ``steps``; return the steps that were idle."""
        marks = self.begin(began)
        self.end(marks, dict.fromkeys(steps, began), ended)
        return marks.activity.idle


def test_a_source_is_idle_if_no_record_arrived_for_longer_than_its_time() -> None:
    driver = Driver()

    assert driver.begin(50, looked=50).activity.idle == set()
    assert driver.begin(51, looked=51).activity.idle == {"left", "right"}
    assert driver.begin(60, looked=50).activity.idle == set()
    driver.batch(60, 60, "left")
    assert driver.begin(60, looked=60).activity.idle == {"right"}
    driver.batch(70, 70, "right")
    assert driver.begin(110, looked=110).activity.idle == set()
    assert driver.begin(120, looked=120).activity.idle == {"left"}


def test_time_in_epochs_does_not_count() -> None:
    driver = Driver()

    assert driver.batch(10, 1000, "left", "right") == set()
    assert driver.batch(1000, 2000, "left") == set()
    assert driver.batch(2010, 3000, "left") == set()
    # ``right`` was silent for 20 ms outside of epochs.
    assert driver.begin(3010, looked=3010).activity.idle == set()
    assert driver.begin(3041, looked=3041).activity.idle == {"right"}


def test_rows_that_wait_for_the_next_batch_make_no_source_idle() -> None:
    driver = Driver()

    assert driver.batch(0, 0, "left", "right") == set()
    # Triggers are far apart: the records of both sources are in each batch.
    assert driver.batch(1000, 1000, "left", "right") == set()
    assert driver.batch(2000, 2000, "left") == set()
    # The batch before had no records of ``right``.
    assert driver.batch(3000, 3000, "left") == {"right"}


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["left", "right", "none"]), st.integers(1, 500)),
            st.integers(0, 80),
        )
    )
)
@settings(max_examples=100, deadline=None)
def test_the_watermark_of_a_step_is_that_of_a_live_valve(
    epochs: list[tuple[dict[str, int], int]],
) -> None:
    driver, valve, now = Driver(), WatermarkValve(2), 0
    channels = {"left": 0, "right": 1}
    for newest, wait in epochs:
        now += wait
        marks = driver.begin(now, looked=now)
        for step in sorted(marks.activity.idle):
            valve.on_idle(channels[step])

        assert marks.steps["sum"] == EpochWatermarks(driver.watermark, valve.watermark)
        assert marks.stream.after >= driver.stream

        driver.end(marks, newest, now)
        arrived = newest.keys() & channels.keys()
        for step in arrived:
            valve.on_active(channels[step])
        # The slowest first, or a batch of another one could make it unaligned.
        for step in sorted(arrived, key=driver.earned.__getitem__):
            valve.on_watermark(channels[step], driver.earned[step])


# Splits of a source, such as the partitions of a topic

SPLITS = EpochTime({"times": 1}, {"times": 50}, {"sum": frozenset({"times"})}, frozenset({"times"}))


def test_the_slowest_split_of_a_source_decides() -> None:
    fast = SPLITS.earned_by_split({}, {"times": {"0": 900, "1": 500}, "of no step": {"0": 1}})
    both = SPLITS.earned_by_split(fast, {"times": {"0": 1000, "1": 400}})

    assert fast == {"times": {"0": 899, "1": 499}}
    assert both == {"times": {"0": 999, "1": 499}}
    assert SPLITS.earned({"times": 3}, {"times": 1000}) == {"times": 3}
    assert SPLITS.over_splits({}, both) == {"times": 499}
    assert SPLITS.over_splits({}, both, [("times", "1")]) == {"times": 999}
    # It never goes back: not if all are idle, and not if a split is active again.
    assert SPLITS.over_splits({"times": 700}, both) == {"times": 700}
    assert SPLITS.over_splits({"times": 700}, both, [("times", "0"), ("times", "1")]) == {
        "times": 700
    }
    marks = SPLITS.watermarks(90, {"sum": 90}, {}, splits=both)
    assert marks.steps["sum"] == EpochWatermarks(90, 499)
    assert marks.earned == {"times": 499}


def test_a_silent_split_is_idle_while_the_source_is_active() -> None:
    activity = SourceActivity(SPLITS, 0, {"times": {"0": 1, "1": 1}})

    def epoch(began: int, *splits: str) -> Activity:
        """Run an epoch with records of ``splits``; return the activity while Spark waits after it."""
        marks = SPLITS.watermarks(0, {}, {}, activity.at(began, looked=began))
        newest = {"times": dict.fromkeys(splits, 1)}
        activity.on_epoch(marks, {}, ["times"] if splits else [], began, splits=newest)
        return activity.at(began, looked=began)

    assert epoch(40, "0").idle_splits == set()
    assert epoch(60, "0").idle_splits == {("times", "1")}
    assert epoch(70, "1", "2").idle_splits == set()
    assert epoch(111, "2").idle_splits == {("times", "0")}
    assert epoch(112).idle == set()
    all_silent = activity.at(162, looked=162)
    assert all_silent.idle == {"times"}
    assert all_silent.idle_splits == {("times", "0"), ("times", "1"), ("times", "2")}


def test_the_steps_of_a_source_with_splits_are_found() -> None:
    plan = plan_fragments(branches().graph)

    assert EpochTime.of(plan).split_steps == set()
    assert EpochTime.of(plan, ["a", "c"]).split_steps == {"time of a", "time of c"}


async def asked(item: Item) -> Item:
    return item


def test_calls_that_mix_splits_are_refused() -> None:
    flow = af.Flow("calls")
    items = flow.source(list[Item](), name="items").map_async(asked, name="asked")
    items.event_time(at_of, name="times").to(af.CollectSink[Item](), name="out")
    plan = plan_fragments(flow.graph)

    assert EpochTime.of(plan).split_steps == set()
    with pytest.raises(FlowDefinitionError, match=r"step 'asked' .* mixes the splits of source"):
        EpochTime.of(plan, ["items"])


def test_a_fragment_has_the_newest_timestamp_of_each_split() -> None:
    plain, split = (fragments(lambda items: items.filter(no_tick))[0] for _ in range(2))
    rows = [Item(1, 1, 30), Item(1, 2, 70), Item(2, 3, 50), Item(2, 4, 10)]
    blocks: list[InputRows] = [SplitRows("a:0", rows[:2]), SplitRows("a:1", rows[2:])]
    blocks.append(SplitRows("a:0", [Item(1, 5, 60)]))

    one = virtual_time.run(lambda: run_one(plain, Rows([list(rows)]), Results()))
    each = virtual_time.run(lambda: run_one(split, Rows(blocks), Results(), batch=1))

    assert one.newest == each.newest == {"time": 70}
    assert one.splits == {"time": {"": 70}}
    assert each.splits == {"time": {"a:0": 70, "a:1": 50}}
    assert each.steps["time"] == (5, 5)
