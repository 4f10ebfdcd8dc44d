"""The savepoint of a backfill: complete, like any other, and refused if parts are missing or do not fit."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.backfill.savepoint import (
    CHUNK,
    StatePart,
    check_savepoint_path,
    encoded_part,
    write_savepoint,
)
from aflow.connect import Committable
from aflow.errors import CheckpointError, FlowDefinitionError
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import ranges
from aflow.operators.handover import BEGINS, begins_at
from aflow.state.parts import decoded
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import CollectSink, ScriptedSource
from tests.backfill.hand_over_case import contents

T = 1_372_636_800_000


def flow() -> af.Flow:
    """Two fragments read by key: "sums" and "counts"; two steps begin time."""
    made = af.Flow("shop")
    numbers = made.source(ScriptedSource[int](), name="numbers").event_time(
        lambda n: n, name="number times"
    )
    others = made.source(ScriptedSource[int](), name="others").event_time(
        lambda n: n, name="other times"
    )
    sums = numbers.union(others).key_by(lambda n: n % 2).fold(int, lambda a, n: a + n, name="sums")
    windows = sums.key_by(lambda n: n % 3).window(af.Tumbling(timedelta(days=1)))
    counts = windows.fold(int, lambda count, _: count + 1, name="counts")
    counts.to(CollectSink[object](), name="out")
    return made


PLAN = plan_fragments(flow().graph)


def fragment(name: str, plan: FragmentPlan = PLAN) -> Fragment:
    return next(one for one in plan.fragments if one.head.name == name)


def state(*groups: int, value: bytes = b"v") -> OperatorSnapshot:
    """One row of a key in each of ``groups``."""
    return OperatorSnapshot({group: {"@rows": ((b"k%d" % group, value),)} for group in groups})


def part(name: str, subtask: int = 0, subtasks: int = 1, *groups: int) -> StatePart:
    chunks = encoded_part({name: state(*groups)})
    return StatePart(fragment(name), subtask, subtasks, chunks)


def write(path: Path, *parts: StatePart) -> None:
    write_savepoint(path, PLAN, parts, until=T, created_at=5)


def test_the_savepoint_of_the_flow_holds_the_state_of_all_parts(tmp_path: Path) -> None:
    write(
        tmp_path / "sp",
        part("counts", 1, 2, 64, 127),
        part("sums", 0, 1, 3, 100),
        part("counts", 0, 2, 0, 63),
    )

    found = contents(tmp_path / "sp")
    manifest = found.manifest
    steps = {step.name: (step.what, step.parallelism) for step in manifest.steps}
    assert (manifest.kind, manifest.flow, manifest.key_groups) == (
        CheckpointKind.SAVEPOINT,
        "shop",
        128,
    )
    assert (manifest.created_at, manifest.completed_at) == (5, 5)
    assert steps == {
        "counts": ("window.fold", 2),
        "sums": ("fold", 1),
        "number times": ("event_time", 1),
        "other times": ("event_time", 1),
    }
    assert found.states["counts"] == state(0, 63, 64, 127)
    assert found.states["sums"] == state(3, 100)


def test_each_part_counts_for_the_key_groups_of_its_subtask(tmp_path: Path) -> None:
    write(tmp_path / "sp", *(part("counts", n, 3, 43 * n) for n in (2, 0, 1)), part("sums"))

    steps = contents(tmp_path / "sp").manifest.steps
    subtasks = next(step.subtasks for step in steps if step.name == "counts")
    links = [(one.subtask, link.first, link.stop) for one in subtasks for link in one.chain]
    assert links == [(n, one.start, one.stop) for n, one in enumerate(ranges(128, 3))]


def test_the_steps_that_assign_time_store_where_the_live_job_begins(tmp_path: Path) -> None:
    write(tmp_path / "sp", part("counts"), part("sums"))

    states = contents(tmp_path / "sp").states
    begins = OperatorSnapshot(operator={BEGINS: begins_at(T)})
    assert (states["number times"], states["other times"]) == (begins, begins)


def test_the_folder_holds_exactly_the_files_of_its_manifest(tmp_path: Path) -> None:
    write(tmp_path / "sp", part("counts"), part("sums"))

    folder = tmp_path / "sp"
    files = {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}
    named = {one.path for one in contents(folder).manifest.files}
    assert files == {"checkpoint-000001.json", *named}
    assert [one.name for one in tmp_path.iterdir()] == ["sp"]


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([part("sums")], "part 0 of the state .* for step 'counts' is missing, of 1 subtasks"),
        (
            [part("sums"), part("counts", 1, 3), part("counts", 0, 3)],
            "part 2 of the state .* for step 'counts' is missing, of 3 subtasks",
        ),
        (
            [part("counts", 1, 3), part("counts", 1, 3)],
            "part 1 of the state .* for step 'counts' is duplicated",
        ),
        ([part("counts", 1, 3), part("counts", 1, 2)], "says that there are 2 subtasks"),
        ([part("counts", 3, 3)], "part 3 .* says that there are 3 subtasks"),
        ([part("counts", 0, 129)], "says that there are 129 subtasks; 128 key groups"),
        (
            [part("counts", 0, 2, 64)],
            "key group 64 for step 'counts', which is not among the key groups",
        ),
        (
            [StatePart(fragment("counts"), 0, 1, encoded_part({"sums": state()}))],
            "holds nothing of step 'counts'",
        ),
        (
            [
                StatePart(
                    fragment("counts"), 0, 1, encoded_part({"counts": state(), "sums": state()})
                )
            ],
            "holds state of step 'sums', which is none of it",
        ),
        (
            [
                StatePart(
                    fragment("counts"),
                    0,
                    1,
                    encoded_part({"counts": replace(state(), replaced={})}),
                )
            ],
            "holds changes of step 'counts'",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_and_leave_no_files(
    parts: list[StatePart], complaint: str, tmp_path: Path
) -> None:
    fresh = [replace(one, chunks=list(one.chunks)) for one in parts]

    with pytest.raises(CheckpointError, match=complaint):
        write(tmp_path / "sp", *fresh)

    assert list(tmp_path.iterdir()) == []


SPOILT: dict[str, Callable[[bytes], list[bytes]]] = {
    "the end of a chunk is missing": lambda whole: [whole[:-1]],
    "a chunk is missing": lambda whole: [whole[:40]],
    "nothing came": lambda whole: [],
    "something behind it": lambda whole: [whole, b"x"],
    "it came twice": lambda whole: [whole, whole],
    "chunks in another order": lambda whole: [whole[40:], whole[:40]],
    "something in front of it": lambda whole: [b"something else", whole],
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
def test_a_part_that_is_not_whole_is_refused(
    spoilt: Callable[[bytes], list[bytes]], tmp_path: Path
) -> None:
    whole = b"".join(encoded_part({"sums": state(3)}))

    with pytest.raises(CheckpointError, match=r"part 0 of the state .* 'sums' .*run the backfill"):
        write(tmp_path / "sp", StatePart(fragment("sums"), 0, 1, spoilt(whole)))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [1, 7, 100])
def test_chunks_of_any_size_are_the_same_part(size: int, tmp_path: Path) -> None:
    whole = b"".join(encoded_part({"sums": state(*range(128))}))
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]

    write(tmp_path / "sp", StatePart(fragment("sums"), 0, 1, chunks), part("counts"))

    assert contents(tmp_path / "sp").states["sums"] == state(*range(128))


def test_an_error_of_the_chunks_leaves_no_files(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"AFLOW"
        raise LookupError("the executor is gone")

    with pytest.raises(LookupError, match="the executor is gone"):
        write(tmp_path / "sp", StatePart(fragment("sums"), 0, 1, chunks()))

    assert list(tmp_path.iterdir()) == []


def test_chunks_are_bounded_and_are_one_part_together() -> None:
    large = {"sums": state(*range(128), value=b"x" * 100_000)}

    chunks = list(encoded_part(large))

    assert max(map(len, chunks)) <= CHUNK
    assert len(chunks) < 8
    assert decoded(b"".join(chunks), what="part") == large


def test_a_value_larger_than_a_chunk_is_cut() -> None:
    large = {"sums": state(1, value=b"x" * (2 * CHUNK))}

    chunks = list(encoded_part(large))

    assert max(map(len, chunks)) == CHUNK
    assert decoded(b"".join(chunks), what="part") == large


def test_parts_are_not_held_in_memory_together(tmp_path: Path) -> None:
    size = 3_000_000

    def parts() -> Iterator[StatePart]:
        for subtask in range(20):
            group = ranges(128, 20)[subtask].start
            chunks = encoded_part({"sums": state(group, value=b"x" * size)})
            yield StatePart(fragment("sums"), subtask, 20, chunks)
        yield part("counts")

    tracemalloc.start()
    write_savepoint(tmp_path / "sp", PLAN, parts(), until=T, created_at=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 10 * size


@pytest.mark.parametrize("there", ["folder", "file"])
def test_a_place_where_something_is_is_refused(there: str, tmp_path: Path) -> None:
    path = tmp_path / "sp"
    path.mkdir() if there == "folder" else path.touch()

    with pytest.raises(CheckpointError, match=r"there is something at .*sp already"):
        check_savepoint_path(path)
    with pytest.raises(CheckpointError, match=r"there is something at .*sp already"):
        write(path, part("sums"), part("counts"))


@pytest.mark.parametrize("path", ["", 5, None, b"sp"])
def test_an_invalid_path_is_refused(path: object) -> None:
    with pytest.raises(FlowDefinitionError, match="savepoint takes the path of a folder"):
        check_savepoint_path(path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["s3://bucket/sp", "hdfs://host:9000/sp", "file://host/sp", "file:sp", "dbfs:///sp"]
)
def test_a_place_outside_of_the_file_system_is_refused(path: str) -> None:
    with pytest.raises(FlowDefinitionError, match="is not in a file system of this machine"):
        check_savepoint_path(path)


def test_a_file_uri_is_the_path_in_it(tmp_path: Path) -> None:
    uri = (tmp_path / "a savepoint").as_uri()

    write_savepoint(uri, PLAN, [part("sums"), part("counts")], until=T, created_at=0)

    assert check_savepoint_path(f"{uri}2") == tmp_path / "a savepoint2"
    assert contents(uri) == contents(tmp_path / "a savepoint")


def test_a_step_without_state_has_an_empty_part(tmp_path: Path) -> None:
    def only(fragments: Iterable[Fragment]) -> FragmentPlan:
        return replace(PLAN, fragments=tuple(fragments))

    head = replace(fragment("sums").head, stateful=False)
    forgetful = replace(fragment("sums"), nodes=(head,))
    plan = only([*PLAN.fragments[:2], forgetful])

    left = StatePart(forgetful, 0, 1, encoded_part({}))
    write_savepoint(tmp_path / "sp", plan, [left], until=T, created_at=0)

    assert set(contents(tmp_path / "sp").states) == {"number times", "other times"}
    assert len(list((tmp_path / "sp" / "parts").iterdir())) == 2


class RecoveringSink(CollectSink[object]):
    """Records the committables of its recovery."""

    recovered: Sequence[Committable] = ()

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        self.recovered = committables


@pytest.mark.asyncio
async def test_prepared_output_of_a_sink_is_committed_by_the_live_job(tmp_path: Path) -> None:
    def build(sink: af.Sink[object]) -> af.Flow:
        made = af.Flow("shop")
        numbers = made.source(ScriptedSource[int](), name="numbers").event_time(lambda n: n)
        sums = numbers.key_by(lambda n: n % 2).fold(int, lambda a, n: a + n, name="sums")
        sums.to(sink, name="out")
        return made

    sink = RecoveringSink()
    plan = plan_fragments(build(sink).graph)
    parts = [StatePart(fragment("sums", plan), 0, 1, encoded_part({"sums": state(3)}))]
    prepared: list[Committable] = [{"piece": "first"}, {"piece": "second"}]

    write_savepoint(
        tmp_path / "sp",
        plan,
        parts,
        until=T,
        created_at=5,
        prepared={"out": [(1, one) for one in prepared]},
    )
    await build(sink).run(
        restore=tmp_path / "sp",
        checkpointing=af.Checkpointing(every=timedelta(days=1), storage=tmp_path / "state"),
    )

    assert list(sink.recovered) == prepared
