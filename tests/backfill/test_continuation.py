"""Results up to a moment T over history and live from there equal those of one uninterrupted live job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import aflow as af
from aflow.testing import virtual_time
from tests.backfill.comparison import Case, Results, from_on, together
from tests.backfill.items import Item, Items, at_of, drawn, keyed, millis
from tests.backfill.keyed_steps import reduced, sessions, tumbling
from tests.backfill.locally import backfill_locally
from tests.backfill.pair_steps import Both, pairs_or_left
from tests.backfill.steps import of_window, plus, timed_again
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of


def moments(case: Case) -> list[int]:
    """Before the first record, at one, between two of them, at the end of a window, after the last."""
    items = case.sources["items"]
    middle = items[len(items) // 2].at
    taken = {item.at for some in case.sources.values() for item in some}
    between = next(at for at in range(middle, 1000) if at not in taken)
    return [0, middle, between, 300, 330, items[-1].at + 1, 5000]


@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_a_live_job_continues_from_the_state_of_a_backfill(name: str, tmp_path: Path) -> None:
    case, expected = case_of(name)
    random = Random(name)

    until = random.choice(moments(case))
    savepoint = tmp_path / "savepoint"

    past = case.over_history(until=until, savepoint=savepoint, parallelism=random.randint(1, 3))
    rest = dict(case.sources)
    if random.random() < 0.5:
        rest = {source: from_on(items, until) for source, items in rest.items()}
    live = case.live(rest, savepoint=savepoint, parallelism=random.randint(1, 3))

    assert together(past, live) == expected, f"until {until}"


def _both_ways(case: Case, until: int, folder: Path) -> Results:
    """Results over history up to ``until``, and live from there."""
    past = case.over_history(until=until, savepoint=folder / "savepoint", parallelism=2)
    return together(past, case.live(savepoint=folder / "savepoint", parallelism=3))


def test_unpaired_records_after_the_end_are_in_time_for_downstream_windows(
    tmp_path: Path,
) -> None:
    def build(streams: Mapping[str, Items]) -> Mapping[str, Items]:
        joined = pairs_or_left(streams["items"], streams["others"], "join")
        return {"out": tumbling(joined, "windows")}

    items, others = [Item(1, n, n) for n in range(0, 400, 5)], [Item(1, 1, 102), Item(1, 2, 333)]
    case = Case(build, {"items": items, "others": others}, max_delay=1000)

    # One window ends at 130, and up to 105 it is not known what is alone.
    assert _both_ways(case, 130, tmp_path) == case.live()


def test_a_session_that_ends_with_history_is_in_time_for_downstream_windows(tmp_path: Path) -> None:
    def build(streams: Mapping[str, Items]) -> Mapping[str, Items]:
        return {"out": tumbling(sessions(streams["items"], "sessions"), "windows")}

    items = [Item(1, 1, 100), Item(1, 2, 118), Item(2, 3, 118), Item(1, 4, 130), Item(1, 5, 500)]
    case = Case(build, {"items": items}, max_delay=1000)

    assert _both_ways(case, 130, tmp_path) == case.live()


@pytest.mark.parametrize("behind_keys", [False, True])
def test_after_a_second_event_time_everything_waits_for_the_live_job(
    behind_keys: bool, tmp_path: Path
) -> None:
    def build(streams: Mapping[str, Items]) -> Mapping[str, Items]:
        items = reduced(streams["items"], "reduced") if behind_keys else streams["items"]
        return {"out": tumbling(timed_again(items, "again"), "windows")}

    case = Case(build, {"items": drawn(Random(3), 60, together=False)}, max_delay=1000)

    assert case.over_history() == case.live()
    assert _both_ways(case, 250, tmp_path) == case.live()


def test_one_keyed_stream_may_be_read_by_many_also_twice_by_one(tmp_path: Path) -> None:
    def build(streams: Mapping[str, Items]) -> Mapping[str, Items]:
        one = keyed(streams["items"])
        between = (millis(-3), millis(10))
        return {
            "out of pairs": one.interval_join(one, between=between, of=Item, other_of=Item).inner(
                _later, name="pairs"
            ),
            "out of both": one.connect(one).process(Both(), name="both"),
            "out of sums": one.window(af.Tumbling(millis(50)))
            .fold(int, plus, name="sums")
            .map(of_window),
        }

    case = Case(build, {"items": drawn(Random(1), 100)}, max_delay=100)

    assert case.over_history(parallelism=3) == case.live()
    assert _both_ways(case, 300, tmp_path) == case.live()


def _later(one: Item, other: Item) -> Item:
    return Item(one.key, one.n * 31 + other.n, max(one.at, other.at))


def test_pipelines_of_one_source_with_different_event_times_are_each_cut_by_their_own(
    tmp_path: Path,
) -> None:
    def flow(items: Sequence[Item], sinks: Sequence[af.CollectSink[Any]]) -> af.Flow:
        made = af.Flow("two times")
        source = made.source(items, name="items")
        thirds = source.map(lambda item: Item(item.key, item.n, item.at // 3))
        for stream, name, sink in zip((source, thirds), ("one", "third"), sinks, strict=True):
            timed = stream.event_time(at_of, max_delay=millis(100), name=f"time of {name}")
            tumbling(timed, f"windows of {name}").to(sink, name=name)
        return made

    items = drawn(Random(1), 200)
    whole, rest = ([af.CollectSink[Any](), af.CollectSink[Any]()] for _ in range(2))

    async def main() -> Mapping[str, list[Item]]:
        await flow(items, whole).run()
        savepoint = tmp_path / "savepoint"
        done = await backfill_locally(
            flow([], rest), {"items": items}, until=150, savepoint=savepoint
        )
        checkpoints = af.Checkpointing(storage=tmp_path / "checkpoints")
        await flow(items, rest).run(restore=savepoint, checkpointing=checkpoints)
        return done.results

    past = virtual_time.run(main)

    for name, expected, live in zip(("one", "third"), whole, rest, strict=True):
        assert Counter([*past[name], *live.values]) == Counter(expected.values)
        assert past[name]
        assert live.values
