"""State of a live job continues over history or in micro-batches, and live from there, as in one live job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import aflow as af
from aflow.backfill.contents import newest_manifest
from aflow.backfill.continuation import read_continuation
from aflow.backfill.epoch_time import EpochTime
from aflow.backfill.explanation import explain
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.live_savepoint import LiveSavepoint, StoredPosition, live_state
from aflow.backfill.savepoint_steps import read_steps
from aflow.backfill.stream_recovery import StreamFolders
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import Pause, ScriptedSource, VirtualClock, advance, virtual_time
from tests.backfill.comparison import Case, Results, together
from tests.backfill.fuzzed_flows import RandomCase
from tests.backfill.hand_over_case import contents
from tests.backfill.items import Item, Items, keyed
from tests.backfill.keyed_steps import tumbling
from tests.backfill.live_legs import live_leg, newest_of, unread
from tests.backfill.local_stream import stream_locally
from tests.backfill.test_each_step import case_of
from tests.backfill.test_fuzzed_flows import shape

#: One of each kind of state.
STEPS = [
    "sliding folded",
    "sessions folded",
    "counted sliding",
    "running",
    "best",
    "once in a while",
    "silent",
    "handled",
    "map_async",
    "dead letters",
    "map_batch_async by key",
    "full interval join",
    "as of join",
    "co-group",
]

SEEDS = range(3)


def first_leg(case: Case, random: Random, folder: Path) -> tuple[Results, dict[str, int]]:
    """Results of a live job over some records of each source, and the numbers of these."""
    first = {name: random.randint(0, len(items)) for name, items in case.sources.items()}
    results = live_leg(
        case,
        folder,
        first,
        waited=random.choice([0, 1, 2, 5, 40]),
        parallelism=random.randint(1, 3),
    )
    return results, first


def can_stream(case: Case) -> bool:
    """True unless a second event_time makes all watermarks unknown."""
    graph = case.flow({name: [] for name in case.sources}, case.new_sinks()).graph
    try:
        EpochTime.of(plan_fragments(graph, can_be_late=True))
    except FlowDefinitionError:
        return False
    return True


def three_legs(case: Case, random: Random, folder: Path) -> tuple[Results, str]:
    """Results live, on from there without live sources, and live again, each on other partitions."""
    live, first = first_leg(case, random, folder / "live")
    rest = unread(case, folder / "live")
    newest = newest_of(case, rest)
    until = random.choice([newest + 1, newest + 20, newest + 150, 10_000])
    restore, savepoint = LiveSavepoint(folder / "live"), folder / "middle"
    if can_stream(case) and random.random() < 0.5:
        ends = sorted(random.choices(range(150), k=2))
        batches = [
            {name: items[begin:end] for name, items in rest.items()}
            for begin, end in zip([0, *ends], [*ends, None], strict=True)
        ]
        folders = StreamFolders(folder / "state", restore, savepoint, until, False)
        middle, way = stream_locally(case, batches, folders, random), "stream"
    else:
        middle = case.over_history(
            rest, until=until, savepoint=savepoint, restore=restore, **shape(random)
        )
        way = "backfill"
    last = case.live(savepoint=savepoint, parallelism=random.randint(1, 3))
    return together(together(live, middle), last), f"{first}, {way} until {until}"


@pytest.mark.parametrize("name", STEPS)
def test_state_of_a_live_job_continues_without_it_and_live_again(name: str, tmp_path: Path) -> None:
    case, expected = case_of(name)

    results, story = three_legs(case, Random(f"{name} from a live job"), tmp_path)

    assert results == expected, story


@pytest.mark.parametrize("seed", SEEDS)
def test_any_flow_continues_without_its_live_job_and_live_again(seed: int, tmp_path: Path) -> None:
    random = Random(f"{seed} from a live job")
    drawn = RandomCase.of(random)
    expected = drawn.case.live()

    results, story = three_legs(drawn.case, random, tmp_path)

    assert results == expected, f"seed {seed}, {story}:\n{drawn.flow}"


def test_records_before_an_earlier_backfill_are_skipped_in_each_leg(tmp_path: Path) -> None:
    case, expected = case_of("tumbling")
    begins = case.sources["items"][40].at
    history = case.over_history(until=begins, savepoint=tmp_path / "history")
    live = live_leg(case, tmp_path / "live", {"items": 90}, waited=1, restore=tmp_path / "history")
    rest = unread(case, tmp_path / "live")
    restore, until = LiveSavepoint(tmp_path / "live"), newest_of(case, rest) + 1
    middle = case.over_history(
        {"items": [*case.sources["items"][:40], *rest["items"]]},
        until=until,
        restore=restore,
        savepoint=tmp_path / "middle",
    )

    some = together(together(history, live), middle)
    assert together(some, case.live(savepoint=tmp_path / "middle")) == expected


# Calls


async def waits(item: Item) -> Item:
    await asyncio.sleep(3600)
    return item


async def answers(item: Item) -> Item:
    return item


class Asked:
    """A flow with calls in each place: upstream of its times, of its keys, and downstream of them."""

    def __init__(self, function: Any, place: str) -> None:
        self.function, self.place = function, place

    def __call__(self, streams: Mapping[str, Items]) -> Mapping[str, Items]:
        items = self.ask(streams["items"], "before keys")
        items = items.union(self.ask(streams["items"].filter(lambda one: one.n % 2 == 0), "others"))
        items = self.ask(items, "after union")
        running = keyed(items).reduce(lambda one, other: other, of=Item, name="running")
        return {"out": tumbling(self.ask(running, "after keys"), "windows")}

    def ask(self, items: Items, name: str) -> Items:
        function = self.function if name == self.place else answers
        return items.map_async(function, name=name, ordered=False, capacity=500, of=Item)


@pytest.mark.parametrize(
    ("place", "way"),
    [
        ("before keys", "stream"),
        ("others", "backfill"),
        ("after union", "stream"),
        ("after keys", "backfill"),
        ("after keys", "stream"),
    ],
)
def test_each_call_under_way_ends_once(place: str, way: str, tmp_path: Path) -> None:
    items = [Item(n % 7, n, n * 5) for n in range(100)]
    down = Case(Asked(waits, place), {"items": items})
    case = Case(Asked(answers, place), {"items": items})
    live = live_leg(down, tmp_path / "live", {"items": 60}, waited=5, parallelism=2)
    rest, until = unread(case, tmp_path / "live"), 450
    restore, middle = LiveSavepoint(tmp_path / "live"), tmp_path / "middle"
    under_way = contents(tmp_path / "live").states[place].operator["@calls"]

    if way == "backfill":
        found = case.over_history(
            rest, until=until, savepoint=middle, restore=restore, parallelism=3
        )
    else:
        folders = StreamFolders(tmp_path / "state", restore, middle, until, False)
        found = stream_locally(case, [rest], folders, Random(place))

    assert together(together(live, found), case.live(savepoint=middle)) == case.live()
    assert under_way


# Refusals, and the plan


def build(items: Any, step: str = "timers") -> af.Flow:
    flow = af.Flow("shop")
    timed = flow.source(items, name="items").event_time(lambda one: one.at, name="times")
    if step == "timers":
        out: Any = keyed(timed).process(Reminded(), name="reminded")
    elif step == "windows":
        minutes = af.Tumbling(timedelta(minutes=1), domain=af.TimeDomain.PROCESSING)
        out = keyed(timed).window(minutes).reduce(lambda one, other: other, of=Item, name="minutes")
    else:
        out = keyed(timed.map_async(waits, of=Item, name="asked")).reduce(
            lambda one, other: other, of=Item, name="last"
        )
    out.to(af.CollectSink[Any](), name="out")
    return flow


class Reminded(af.KeyedProcess[int, Item, Item]):
    def process(self, value: Item, ctx: af.Context[int]) -> Iterable[Item]:
        ctx.set_processing_timer(ctx.processing_time + 3_600_000)
        return [value]


def left_by(step: str, folder: Path, **settings: Any) -> Path:
    """The savepoint, or the folder of the checkpoint, of a live job."""
    items = [Item(n % 3, n, n * 10) for n in range(30)]

    async def main() -> None:
        async with build(ScriptedSource(*items, Pause(timedelta(days=1))), step).start(
            options=af.Options(clock=VirtualClock()),
            checkpointing=af.Checkpointing(every=None, storage=folder / "jobs", **settings),
        ) as job:
            await advance(timedelta(seconds=1))
            await job.savepoint(folder / "savepoint")
            await job.cancel()

    virtual_time.run(main)
    return folder / "savepoint"


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ("timers", "step 'reminded' has timers of processing time in .*: take a savepoint when"),
        ("windows", "step 'minutes' has windows of processing time in .*: take a savepoint when"),
    ],
)
def test_state_that_follows_the_clock_is_refused_by_name(
    step: str, complaint: str, tmp_path: Path
) -> None:
    savepoint = left_by(step, tmp_path)
    graph = build([], step).graph
    plan = plan_fragments(graph, event_time_for_processing_time=True)

    with pytest.raises(RestoreError, match=complaint):
        read_continuation(LiveSavepoint(savepoint), graph, plan)


@pytest.mark.parametrize(
    ("state", "where"), [("@in flight", "step 'last'"), ("@waiting", "sink 'out'")]
)
def test_records_in_flight_are_refused_by_name(state: str, where: str, tmp_path: Path) -> None:
    """State of an unaligned checkpoint is added: which records it overtakes depends on the load."""
    savepoint = left_by("calls", tmp_path)
    graph = build([], "calls").graph
    plan = plan_fragments(graph)
    steps = {one.step.name: one for one in read_steps(*newest_manifest(savepoint))}
    name = where.split("'")[1]
    step = steps.get(name) or replace(steps["last"], of_operator=OperatorSnapshot())
    operator = {**step.of_operator.operator, state: (b"records",)}
    steps[name] = replace(step, of_operator=OperatorSnapshot(operator=operator))

    with pytest.raises(RestoreError, match=rf"records in flight to {where}.*take a savepoint"):
        live_state(savepoint, graph, plan, steps)


def test_a_savepoint_without_its_newest_record_is_refused(
    tmp_path: Path,
) -> None:
    savepoint = left_by("calls", tmp_path)
    graph = build([], "calls").graph
    plan = plan_fragments(graph)
    steps = {one.step.name: one for one in read_steps(*newest_manifest(savepoint))}
    operator = dict(steps["times"].of_operator.operator)
    assert live_state(savepoint, graph, plan, steps).newest == 290

    operator["newest"] = ()
    steps["times"] = replace(steps["times"], of_operator=OperatorSnapshot(operator=operator))
    with pytest.raises(RestoreError, match=r"'times' has not stored its newest.*older version"):
        live_state(savepoint, graph, plan, steps)


def test_the_plan_names_the_calls_and_an_end_before_the_newest_record_is_refused(
    tmp_path: Path,
) -> None:
    savepoint = left_by("calls", tmp_path)
    graph = build([], "calls").graph
    plan = plan_fragments(graph)

    start = read_continuation(LiveSavepoint(savepoint), graph, plan)

    assert start.live is not None
    text = explain(plan, until=400, live=start.live)
    assert "the records that the live job has not read, as rows given for source 'items'" in text
    assert "first ends the calls that were under way in asked" in text
    assert "restored: state of a live job, of records up to 1970-01-01T00:00:00.290+00:00" in text
    start.check_until(291)
    with pytest.raises(FlowDefinitionError, match=r"processed records up to .*00\.290.*later"):
        start.check_until(290)
    (split,) = LiveSavepoint(savepoint).positions()["items"].values()
    assert split == StoredPosition(30, 0, ended=False)


def test_a_savepoint_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    case = Case(
        lambda streams: {"out": tumbling(streams["items"], "w")}, {"items": [Item(1, 1, 1)]}
    )
    case.over_history(until=10, savepoint=tmp_path / "history")
    graph = case.flow({"items": []}, case.new_sinks()).graph

    with pytest.raises(RestoreError, match=r"is of one moment of event time.*pass the path itself"):
        read_continuation(LiveSavepoint(tmp_path / "history"), graph, plan_fragments(graph))
