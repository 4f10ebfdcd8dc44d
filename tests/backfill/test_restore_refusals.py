"""A savepoint from which history cannot be continued is refused before anything runs, with the reason and the cure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import aflow as af
from aflow.backfill.continuation import Continuation, read_continuation
from aflow.backfill.explanation import explain
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.savepoint import StatePart, encoded_part, write_savepoint
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.model.key_groups import KeyGroupRange
from aflow.testing import VirtualClock, virtual_time
from tests.backfill.items import Item, at_of, key_of
from tests.backfill.locally import backfill_locally

T = 500
ITEMS = [Item(n % 7, n, n * 10) for n in range(100)]


class Last(af.KeyedProcess[int, Item, Item]):
    last = af.ValueState("last", of=int)

    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        ctx.state(self.last).set(value.n)
        return [value]


class OfText(af.KeyedProcess[int, Item, Item]):
    last = af.ValueState("last", of=str)

    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        return [value]


def flow(
    name: str = "shop",
    *,
    step: str = "last",
    time: str = "times",
    function: Callable[[], af.KeyedProcess[int, Item, Item]] = Last,
    other_step: bool = False,
    sink: str = "out",
) -> af.Flow:
    made = af.Flow(name)
    items = made.source(ITEMS, name="items").event_time(at_of, name=time)
    last = items.key_by(key_of).process(function(), name=step)
    if other_step:
        last = last.key_by(key_of).reduce(lambda one, other: other, name="other")
    last.to(af.CollectSink[Item](), name=sink)
    return made


def start_of(path: Path, of: af.Flow | None = None, **options: bool) -> Continuation:
    of = of or flow()
    return read_continuation(path, of.graph, plan_fragments(of.graph), **options)


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The savepoint of a backfill up to T, with 3 partitions."""
    path = tmp_path_factory.mktemp("history") / "savepoint"
    history = backfill_locally(flow(), {"items": ITEMS}, until=T, parallelism=3, savepoint=path)
    asyncio.run(history)
    return path


def test_the_next_savepoint_has_the_next_number_and_begins_where_this_one_ends(
    savepoint: Path,
) -> None:
    start = start_of(savepoint)

    assert (start.begins, start.number, start.folder) == (T, 2, savepoint)
    assert start == start_of(savepoint / "checkpoint-000001.json")


@pytest.mark.parametrize("subtasks", [1, 2, 5])
def test_each_partition_reads_the_state_of_its_key_groups(subtasks: int, savepoint: Path) -> None:
    files = start_of(savepoint).files_of("last")
    assert files is not None
    bounds = [128 * n // subtasks for n in range(subtasks + 1)]

    parts = [files.read(KeyGroupRange(first, stop)) for first, stop in pairwise(bounds)]

    whole = files.read(KeyGroupRange(0, 128)).keyed
    assert sum(len(part.keyed) for part in parts) == len(whole) == 7
    assert {group: names for part in parts for group, names in part.keyed.items()} == whole


def test_a_new_step_has_no_state(savepoint: Path) -> None:
    assert start_of(savepoint, flow(other_step=True)).files_of("other") is None


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (flow("shops"), r"is of flow 'shop', and this flow is 'shops'"),
        (flow(step="latest"), r"(?s)would be lost.*step 'last' \(process\): dropped"),
        (flow(time="time"), r"does not say where step 'time' begins"),
        (flow(function=OfText), r"(?s)cannot start from the stored state.*declared as .*str"),
    ],
    ids=["another flow", "a renamed step", "a renamed event_time", "another type"],
)
def test_a_changed_flow_is_refused_by_the_rules_of_a_live_job(
    changed: af.Flow, complaint: str, savepoint: Path
) -> None:
    with pytest.raises(RestoreError, match=complaint):
        start_of(savepoint, changed)


def test_state_may_be_dropped_with_permission(savepoint: Path) -> None:
    start = start_of(savepoint, flow(step="latest"), allow_dropped_state=True)

    assert start.files_of("latest") is None


def test_output_of_a_removed_sink_is_dropped_with_permission_and_others_are_kept(
    savepoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "prepared"
    plan, piece = plan_fragments(flow().graph), {"piece": "first"}
    keyed = next(one for one in plan.fragments if one.keyed)
    files = start_of(savepoint).files_of("last")
    assert files is not None
    state = {"last": files.read(KeyGroupRange(0, 128))}
    parts = [StatePart(keyed, 0, 1, encoded_part(state))]
    write_savepoint(path, plan, parts, until=T, created_at=0, prepared={"out": [(1, piece)]})
    renamed = flow(sink="output")

    assert start_of(path).prepared == {"out": [(1, piece)]}
    with pytest.raises(RestoreError, match=r"(?s)would be lost.*step 'out'"):
        start_of(path, renamed)
    assert start_of(path, renamed, allow_dropped_state=True).prepared == {}


def test_another_number_of_key_groups_is_refused(savepoint: Path) -> None:
    graph = flow().graph

    with pytest.raises(RestoreError, match=r"stored in 128 key groups.*pass key_groups=128"):
        read_continuation(savepoint, graph, plan_fragments(graph, key_groups=64))


@pytest.mark.parametrize("until", [T, T - 1])
def test_history_that_ends_before_it_begins_is_refused(until: int, savepoint: Path) -> None:
    with pytest.raises(FlowDefinitionError, match=r"until= is .*00\.(500|499).*give a later"):
        start_of(savepoint).check_until(until)


def test_history_may_continue_to_its_end(savepoint: Path) -> None:
    start_of(savepoint).check_until(None)
    start_of(savepoint).check_until(T + 1)


@pytest.mark.parametrize("before", [False, True], ids=["fresh", "after the backfill"])
def test_a_savepoint_of_a_live_job_is_refused_unless_it_is_called_one(
    before: bool, savepoint: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        checkpointing = af.Checkpointing(every=None, storage=tmp_path / "live")
        async with flow().start(
            options=af.Options(clock=VirtualClock()),
            checkpointing=checkpointing,
            restore=savepoint if before else "fresh",
        ) as job:
            await job.wait()

    virtual_time.run(main)

    with pytest.raises(RestoreError, match=r"of a live job: step .* pass restore=LiveSavepoint"):
        start_of(tmp_path / "live")


def test_a_damaged_part_is_named(savepoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "parts").mkdir(parents=True)
    for file in [*savepoint.glob("*.json"), *savepoint.glob("parts/*")]:
        (copy / file.relative_to(savepoint)).write_bytes(file.read_bytes())
    part = next(copy.glob("parts/*last*"))
    whole = part.read_bytes()

    part.write_bytes(whole[:-3] + b"xyz")
    with pytest.raises(RestoreError, match=rf"{part.name} is corrupt"):
        start_of(copy)
    part.unlink()
    with pytest.raises(RestoreError, match=rf"{part.name} is missing"):
        start_of(copy)


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("", "restore takes the path"), ("s3://bucket/sp", "not in a file system of this machine")],
)
def test_an_invalid_path_is_refused(path: str, complaint: str) -> None:
    graph = flow().graph
    with pytest.raises(FlowDefinitionError, match=complaint):
        read_continuation(path, graph, plan_fragments(graph))


def test_a_missing_savepoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RestoreError, match="cannot be read"):
        start_of(tmp_path / "nothing")


def test_a_flow_without_event_time_cannot_continue(savepoint: Path) -> None:
    made = af.Flow("shop")
    made.source(ITEMS, name="items").to(af.CollectSink[Item](), name="out")

    with pytest.raises(FlowDefinitionError, match=r"has no event_time\(…\)"):
        start_of(savepoint, made)


def test_the_explanation_says_where_history_begins(savepoint: Path) -> None:
    text = explain(plan_fragments(flow().graph), begins=start_of(savepoint).begins, until=900)

    begins = "1970-01-01T00:00:00.500+00:00"
    assert f"over history from {begins} up to 1970-01-01T00:00:00.900+00:00" in text
    assert f"skips records before {begins}, which belong to the restored run" in text
    assert f"restored: state as it is at {begins}" in text


def test_records_before_the_beginning_are_counted(savepoint: Path, tmp_path: Path) -> None:
    done = asyncio.run(
        backfill_locally(
            flow(), {"items": ITEMS}, until=T + 200, restore=savepoint, savepoint=tmp_path / "next"
        )
    )

    parts = [ran for fragment, _, ran in done.left if not fragment.keyed]
    assert sum(one.skipped for one in parts) == 50
    assert sum(one.left_out for one in parts) == 30
    assert len(done.results["out"]) == 20
