"""Steps that read two streams: joins, connected streams and broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.testing import At, Pause, ScriptedSource, run_flow

SECOND = timedelta(seconds=1)
Keyed = af.KeyedStream[str, tuple[str, int]]


class Streams:
    """Two streams of (key, number), a second of event time for each unit of the number."""

    def __init__(self, left: Iterable[tuple[str, int]], right: Iterable[tuple[str, int]]) -> None:
        self.flow = af.Flow("joins")
        self.left, self.right = self._keyed("left", left), self._keyed("right", right)

    def _keyed(self, name: str, records: Iterable[tuple[str, int]]) -> Keyed:
        script = ScriptedSource[tuple[str, int]](*(At(one, one[1] * 1000) for one in records))
        return self.flow.source(script, name=name).event_time().key_by(lambda one: one[0])

    def run(self, results: af.Stream[Any], parallelism: int = 1, seed: int = 0) -> list[Any]:
        sink = af.CollectSink[Any]()
        results.to(sink)
        run_flow(self.flow, parallelism=parallelism, seed=seed)
        return sorted(sink.values, key=repr)


def streams() -> Streams:
    return Streams(
        left=[("a", 1), ("b", 2), ("a", 5), ("a", 9)],
        right=[("a", 0), ("a", 4), ("b", 9), ("a", 12)],
    )


every_way = pytest.mark.parametrize(
    ("parallelism", "seed"), [(1, 0), (1, 1), (2, 2), (3, 3), (3, 4)]
)


@every_way
def test_an_interval_join_pairs_records_near_in_time(parallelism: int, seed: int) -> None:
    both = streams()
    joined = both.left.interval_join(both.right, between=(-SECOND, SECOND)).left(
        lambda left, right: (left, right), name="close"
    )

    assert both.run(joined, parallelism, seed) == [
        (("a", 1), ("a", 0)),
        (("a", 5), ("a", 4)),
        (("a", 9), None),
        (("b", 2), None),
    ]


@every_way
def test_an_as_of_join_finds_the_version_valid_at_the_time(parallelism: int, seed: int) -> None:
    both = streams()
    joined = both.left.as_of_join(both.right).left(lambda left, right: (left, right), name="as of")

    assert both.run(joined, parallelism, seed) == [
        (("a", 1), ("a", 0)),
        (("a", 5), ("a", 4)),
        (("a", 9), ("a", 4)),
        (("b", 2), None),
    ]


@every_way
def test_a_window_join_pairs_records_of_one_window(parallelism: int, seed: int) -> None:
    both = streams()
    joined = both.left.window_join(both.right, af.Tumbling(5 * SECOND)).full(
        lambda left, right: (left, right), name="same five seconds"
    )

    assert both.run(joined, parallelism, seed) == [
        (("a", 1), ("a", 0)),
        (("a", 1), ("a", 4)),
        (("a", 5), None),
        (("a", 9), None),
        (("b", 2), None),
        (None, ("a", 12)),
        (None, ("b", 9)),
    ]


@every_way
def test_a_co_group_sees_both_lists(parallelism: int, seed: int) -> None:
    both = streams()
    grouped = both.left.co_group(
        both.right,
        af.Session(3 * SECOND),
        into=lambda lefts, rights: (len(lefts), len(rights)),
        name="sessions of both",
    )

    rows = both.run(grouped, parallelism, seed)

    assert [(one.key, one.window.start // 1000, one.value) for one in rows] == [
        ("a", 0, (2, 2)),
        ("a", 9, (1, 1)),
        ("b", 2, (1, 0)),
        ("b", 9, (0, 1)),
    ]


class Balance(af.CoProcess[str, tuple[str, int], tuple[str, int], tuple[str, int]]):
    """Add left values, subtract right values, and emit the total at the end."""

    total = af.ValueState("total", of=int)

    def process_left(
        self, value: tuple[str, int], ctx: af.Context[str]
    ) -> Iterable[tuple[str, int]] | None:
        self._add(value[1], ctx)
        return None

    def process_right(
        self, value: tuple[str, int], ctx: af.Context[str]
    ) -> Iterable[tuple[str, int]] | None:
        self._add(-value[1], ctx)
        return None

    def _add(self, number: int, ctx: af.Context[str]) -> None:
        total = ctx.state(self.total)
        total.set(total.get(0) + number)
        ctx.set_event_timer(100_000)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[tuple[str, int]]:
        yield ctx.key, ctx.state(self.total).get(0)


@every_way
def test_connected_streams_share_state_and_timers(parallelism: int, seed: int) -> None:
    both = streams()
    balance = both.left.connect(both.right).process(Balance(), name="balance")

    assert both.run(balance, parallelism, seed) == [("a", -1), ("b", -7)]


def test_late_records_of_each_side_have_a_stream_of_their_own() -> None:
    flow = af.Flow("late")
    left = ScriptedSource[int](At(1, 1_000), At(9, 9_000), Pause(SECOND), At(2, 2_000))
    right = ScriptedSource[int](At(9, 9_000), Pause(3 * SECOND))
    one, two = (flow.source(each).event_time().key_by(lambda _: "all") for each in (left, right))
    joined = one.interval_join(two, between=(-SECOND, SECOND)).inner(
        lambda a, b: (a, b), name="join"
    )
    late, pairs = af.CollectSink[int](), af.CollectSink[tuple[int, int]]()
    joined.late_left.to(late)
    joined.to(pairs)

    run_flow(flow)

    assert late.values == [2]
    assert pairs.values == [(9, 9)]


# ------------------------------------------------------------------------------------------------------------ refusals


def refused(make: Callable[[Streams], object]) -> str:
    with pytest.raises(af.FlowDefinitionError) as caught:
        make(streams())
    return str(caught.value)


def test_a_join_needs_keys_on_both_sides() -> None:
    def make(both: Streams) -> None:
        both.left.connect(both.flow.source([1], name="third"))  # type: ignore[arg-type]

    assert "connect() takes a keyed stream" in refused(make)
    assert "call .key_by(…) on it" in refused(make)


def test_streams_of_two_flows_cannot_meet() -> None:
    assert "'joins' and 'joins'" in refused(lambda both: both.left.connect(streams().right))


def test_keys_of_two_declared_types_cannot_meet() -> None:
    def make(both: Streams) -> None:
        numbers = both.flow.source([1], name="third").key_by(lambda n: n, of=int)
        named = both.flow.source(["1"], name="fourth").key_by(lambda n: n, of=str)
        numbers.connect(named)  # type: ignore[arg-type]

    assert "compares keys" in refused(make)


def test_two_parallelisms_cannot_meet() -> None:
    def make(both: Streams) -> None:
        two = both.flow.source([1], name="third").key_by(lambda n: n, parallelism=2)
        three = both.flow.source([1], name="fourth").key_by(lambda n: n, parallelism=3)
        two.connect(three)

    assert "parallelism 2 and 3" in refused(make)


@pytest.mark.parametrize(
    ("between", "message"),
    [
        ((SECOND, -SECOND), "interval_join(): no timestamp lies between 1000 ms (incl"),
        (SECOND, "takes two timedeltas"),
        ((1, 2), "lower bound"),
    ],
)
def test_bounds_without_a_pair_are_refused(between: Any, message: str) -> None:
    def make(both: Streams) -> None:
        both.left.interval_join(both.right, between=between).inner(max, name="join")

    assert message in refused(make)


@pytest.mark.parametrize("apart", [0, 1])
def test_exclusive_bounds_without_a_millisecond_between_them_are_refused_at_once(
    apart: int,
) -> None:
    def make(both: Streams) -> None:
        both.left.interval_join(
            both.right,
            between=(SECOND, SECOND + timedelta(milliseconds=apart)),
            lower_inclusive=False,
            upper_inclusive=False,
        ).inner(max, name="join")

    assert "no timestamp lies between 1000 ms (exclusive)" in refused(make)


Joining = Callable[[Keyed, Keyed], object]

BY_EVENT_TIME: dict[str, Joining] = {
    "interval_join": lambda left, right: left.interval_join(right, between=(-SECOND, SECOND)).inner(
        min, name="join"
    ),
    "as_of_join": lambda left, right: left.as_of_join(right).inner(min, name="join"),
    "window_join": lambda left, right: left.window_join(right, af.Tumbling(SECOND)).inner(
        min, name="join"
    ),
    "co_group": lambda left, right: left.co_group(
        right, af.Session(SECOND), into=lambda lefts, rights: 1, name="join"
    ),
}


@pytest.mark.parametrize("what", BY_EVENT_TIME)
@pytest.mark.parametrize("lacking", ["left", "right"])
def test_a_join_by_event_time_is_refused_where_only_one_side_has_that(
    what: str, lacking: str
) -> None:
    def make(both: Streams) -> None:
        without = both.flow.source([("a", 1)], name="no time")
        keyed = without.union(without.map(lambda one: one)).key_by(lambda one: one[0])
        sides = {"left": both.left, "right": both.right, lacking: keyed}
        BY_EVENT_TIME[what](sides["left"], sides["right"])

    message = refused(make)

    assert message.startswith(f"step 'join' ({what}) uses event time")
    assert message.endswith(f"on the {lacking} one")


def test_event_time_continues_downstream_of_a_join() -> None:
    both = streams()
    one = both.left.as_of_join(both.right).inner(lambda left, right: left, name="one")
    two = (
        one.key_by(lambda each: each[0])
        .as_of_join(both.right)
        .inner(lambda left, right: (left, right), name="two")
    )

    assert both.run(two) == [(("a", 1), ("a", 0)), (("a", 5), ("a", 4)), (("a", 9), ("a", 4))]


def test_windows_without_event_time_accept_streams_with_and_without_it() -> None:
    flow, found = af.Flow("counted"), af.CollectSink[af.Windowed[str, int]]()
    timed = flow.source([("a", 1), ("a", 2)], name="timed").event_time(lambda one: one[1])
    without = flow.source([("a", 7), ("b", 8), ("b", 9)], name="no time")
    (
        timed.key_by(lambda one: one[0])
        .co_group(
            without.key_by(lambda one: one[0]),
            af.Count(3),
            into=lambda lefts, rights: len(lefts) + len(rights),
            name="threes",
        )
        .to(found)
    )

    run_flow(flow)

    assert [(one.key, one.value) for one in found.values] == [("a", 3)]


def test_an_as_of_join_keeps_no_right_record_without_a_partner() -> None:
    both = streams()

    joined = both.left.as_of_join(both.right)

    assert not hasattr(joined, "right")
    assert not hasattr(joined, "full")


def test_a_join_takes_a_plain_function() -> None:
    async def into(left: object, right: object) -> None: ...

    assert "interval_join().left() calls plain functions" in refused(
        lambda both: both.left.interval_join(both.right, between=(-SECOND, SECOND)).left(
            into, name="join"
        )
    )


JOINS_OF_STREAMS: dict[str, Callable[[Keyed, Any], object]] = {
    "interval_join": lambda left, right: left.interval_join(
        right, between=(-SECOND, SECOND), other_of=Streams
    ),
    "as_of_join": lambda left, right: left.as_of_join(right, other_of=Streams),
    "window_join": lambda left, right: left.window_join(
        right, af.Tumbling(SECOND), other_of=Streams
    ),
}


@pytest.mark.parametrize("what", JOINS_OF_STREAMS)
def test_a_type_that_snapshots_cannot_store_is_refused_before_a_kind_is_chosen(what: str) -> None:
    message = refused(lambda both: JOINS_OF_STREAMS[what](both.left, both.right))

    assert message.startswith(f"{what}(): of=")


def test_a_plan_shows_the_kind_of_a_join() -> None:
    both = streams()
    both.left.as_of_join(both.right).left(lambda one, other: one, name="as of").to(af.CollectSink())
    both.left.as_of_join(both.right, tolerance=SECOND).inner(min, name="newest").to(
        af.CollectSink()
    )
    both.left.interval_join(both.right, between=(-SECOND, SECOND)).right(
        lambda one, other: other, name="near"
    ).to(af.CollectSink())

    details = {node.name: node.detail for node in both.flow.graph}

    assert details["as of"] == "left"
    assert details["newest"] == "inner, tolerance 1s"
    assert details["near"] == "right, -1s to 1s"


def test_a_tolerance_is_not_negative() -> None:
    def make(both: Streams) -> None:
        both.left.as_of_join(both.right, tolerance=-SECOND).inner(max, name="join")

    assert "tolerance must not be negative" in refused(make)


def test_a_control_stream_has_no_keys() -> None:
    assert "takes a stream without keys" in refused(
        lambda both: both.left.connect_broadcast(both.right)  # type: ignore[arg-type]
    )
