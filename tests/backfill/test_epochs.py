"""A stream of micro-batches stores the changes of each epoch, and its folder always has one whole epoch."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import aflow as af
from aflow.backfill.continuation import StepFiles, changes_since
from aflow.backfill.epochs import (
    EpochPart,
    EpochStore,
    decoded_output,
    encoded_output,
    needs_complete_part,
    next_steps,
    write_epoch_part,
)
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import Partition
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.errors import CheckpointError, RestoreError
from aflow.model.distribution import VERSION
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.runtime.checkpoints.directory.files import DISK, Files
from aflow.runtime.checkpoints.directory.reader import ReadSource, read_chain
from aflow.state.change_plan import ChangePlan
from aflow.state.manifest import (
    FileRef,
    Link,
    Manifest,
    StepState,
    StreamPosition,
    SubtaskState,
    manifest_bytes,
)
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import VirtualClock, virtual_time
from tests.backfill.comparison import Case, Results, together
from tests.backfill.epoch_tasks import EpochTasks, Processes
from tests.backfill.locally import run_locally
from tests.backfill.test_continuation import moments
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of
from tests.runtime.checkpoints.faulty_files import FaultyFiles, Killed

GROUPS = 128


def epoch(number: int, steps: tuple[StepState, ...] = (), flow: str = "shop") -> Manifest:
    return Manifest(
        id=number,
        kind=CheckpointKind.PERIODIC,
        flow=flow,
        key_groups=GROUPS,
        created_at=0,
        completed_at=0,
        steps=steps,
        stream=StreamPosition(batch=number),
        aflow=VERSION,
    )


@contextmanager
def opened(
    folder: Path, flow: str = "shop", files: Files = DISK
) -> Generator[tuple[EpochStore, Manifest | None]]:
    store = EpochStore(folder, flow, GROUPS, files)
    last = store.open()
    with closing(store):
        yield store, last


def ref(number: int, size: int = 100) -> FileRef:
    return FileRef(f"parts/{number:06}-step-0.part", size, "00000000")


# The whole of it, with fragments


class _Stream:
    """The epochs of a flow in a folder, whose tasks run in processes that may keep state."""

    def __init__(self, case: Case, folder: Path, random: Random) -> None:
        self._case = case
        self._folder = folder
        self.processes = Processes(random)
        self.complete: list[bool] = []
        """For each part that was written: is it complete?"""

    def epoch(self, begins: int | None, until: int | None, random: Random) -> Results:
        """Results from ``begins`` up to ``until``, on any number of partitions."""
        sinks = self._case.new_sinks()

        async def main() -> Results:
            flow = self._case.flow({name: [] for name in self._case.sources}, sinks)
            plan = plan_fragments(flow.graph)
            with opened(self._folder, plan.flow) as (store, last):
                run = _EpochRun(self.processes, store, plan, last, random.choice([1, 2, 3]))
                options = af.Options(clock=VirtualClock(), batch_records=random.choice([1, 1024]))
                results, left = await run_locally(
                    plan,
                    self._case.sources,
                    lambda fragment, groups: replace(
                        run.partition(fragment, groups), begins=begins, until=until
                    ),
                    None,
                    selector=run.tasks.begin,
                    options=options,
                )
                if until is not None:
                    parts = [run.tasks.end(*one) for one in left if one[0].keyed]
                    self.complete += [one.complete for one in parts if one.file is not None]
                    run.commit(parts)
            return results

        results = virtual_time.run(main)
        return {name: sorted(results.get(name, [])) for name in sinks}


class _EpochRun:
    def __init__(
        self,
        processes: Processes,
        store: EpochStore,
        plan: FragmentPlan,
        last: Manifest | None,
        subtasks: int,
    ) -> None:
        self._store = store
        self._plan = plan
        self._last = last
        self._subtasks = subtasks
        self.tasks = EpochTasks(processes, store, last, subtasks)

    def partition(self, fragment: Fragment, groups: KeyGroupRange) -> Partition:
        changes = not needs_complete_part(self._files(fragment), self._store.folder, groups)
        return Partition(subtasks=self._subtasks, key_groups=self._plan.key_groups, changes=changes)

    def _files(self, fragment: Fragment) -> StepFiles | None:
        if self._last is None:
            return None
        return self._store.files_of(self._last, fragment.head.name, ChangePlan())

    def commit(self, parts: list[EpochPart]) -> None:
        steps = next_steps(
            () if self._last is None else self._last.steps,
            parts,
            {one.head.name: one.head.what for one in self._plan.fragments if one.keyed},
            subtasks=self._subtasks,
            key_groups=self._plan.key_groups,
        )
        manifest = epoch(self.tasks.number, steps, self._plan.flow)
        self._store.commit(manifest)
        self._store.clean(manifest)
        self.tasks.check_kept(self._plan.fragments, manifest)


@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_a_step_continues_from_the_changes_of_epochs(name: str, tmp_path: Path) -> None:
    case, expected = case_of(name)
    random = Random(f"{name} in epochs")
    ends = sorted(set(random.choices(moments(case), k=5)))
    stream = _Stream(case, tmp_path, random)

    results: Results = {}
    for begins, until in zip([None, *ends], [*ends, None], strict=True):
        some = stream.epoch(begins, until, random)
        results = together(some, results) if results else some

    assert results == expected, f"until {ends}"


def test_an_epoch_writes_only_what_has_changed(tmp_path: Path) -> None:
    case, _ = case_of("running")
    stream = _Stream(case, tmp_path, Random(3))
    for begins, until in [(None, 300), (300, 301), (301, 302)]:
        stream.epoch(begins, until, Random(3))

    assert stream.complete[0]
    assert not any(stream.complete[len(stream.complete) // 2 :])


# Chains


def link(file: FileRef, first: int = 0, stop: int = GROUPS) -> Link:
    return Link(file, first, stop)


def step(*chains: tuple[Link, ...], name: str = "sums") -> StepState:
    subtasks = tuple(SubtaskState(number, chain) for number, chain in enumerate(chains))
    return StepState(name, "fold", len(chains), subtasks)


def after(last: tuple[StepState, ...], *parts: EpochPart, subtasks: int) -> list[tuple[Link, ...]]:
    steps = next_steps(last, parts, {"sums": "fold"}, subtasks=subtasks, key_groups=GROUPS)
    return [one.chain for found in steps for one in found.subtasks]


def test_changes_are_added_to_the_chain_of_their_subtask() -> None:
    last = (step((link(ref(1)),)),)

    assert after(last, EpochPart("sums", 0, ref(2), complete=False), subtasks=1) == [
        (link(ref(1)), link(ref(2)))
    ]


def test_a_subtask_without_changes_keeps_its_chain() -> None:
    last = (step((link(ref(1)), link(ref(2)))),)

    assert after(last, EpochPart("sums", 0, None, complete=False), subtasks=1) == [
        (link(ref(1)), link(ref(2)))
    ]


def test_a_complete_part_begins_a_new_chain() -> None:
    last = (step((link(ref(1)), link(ref(2)))),)

    assert after(last, EpochPart("sums", 0, ref(3), complete=True), subtasks=1) == [(link(ref(3)),)]


def test_the_chain_of_another_number_of_subtasks_has_all_parts_with_its_key_groups() -> None:
    one, two = ranges(GROUPS, 2)
    last = (
        step(
            (link(ref(1), one.start, one.stop),),
            (link(ref(2), two.start, two.stop), link(ref(3), two.start, two.stop)),
        ),
    )

    assert after(last, EpochPart("sums", 0, ref(4), complete=False), subtasks=1) == [
        (
            link(ref(1), one.start, one.stop),
            link(ref(2), two.start, two.stop),
            link(ref(3), two.start, two.stop),
            link(ref(4)),
        )
    ]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([EpochPart("sums", 0, ref(2), complete=True)], "subtask 1 of step 'sums' is missing"),
        ([EpochPart("sums", 0, ref(2), complete=True)] * 2, "written twice"),
        ([EpochPart("others", 0, ref(2), complete=True)], "does not belong to this stream"),
        ([EpochPart("sums", 2, ref(2), complete=True)], "does not belong to this stream"),
        (
            [EpochPart("sums", number, ref(2), complete=False) for number in (0, 1)],
            "state that they change is missing",
        ),
    ],
)
def test_parts_that_would_lose_state_are_refused(parts: list[EpochPart], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        # The same object twice is one part.
        after((), *(replace(one) for one in parts), subtasks=2)


def test_long_chains_and_state_of_other_folders_are_written_completely(tmp_path: Path) -> None:
    def needed(folder: Path, *sizes: int) -> bool:
        chain = tuple(link(ref(number, size)) for number, size in enumerate(sizes, 1))
        state = (SubtaskState(0, chain),) if chain else ()
        files = StepFiles(folder, "sums", state, ChangePlan())
        return needs_complete_part(files, tmp_path, KeyGroupRange(0, GROUPS))

    assert needs_complete_part(None, tmp_path, KeyGroupRange(0, GROUPS))
    assert needed(tmp_path)
    assert needed(tmp_path / "savepoint", 100)
    assert not needed(tmp_path, 100, 10, 10)
    assert needed(tmp_path, 100, *[30] * 4)
    assert needed(tmp_path, 100_000, *[1] * 30)


# The folder


def test_the_last_epoch_is_found_and_the_others_are_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, last):
        assert last is None
        for number in (1, 2):
            store.commit(epoch(number))
        (tmp_path / "parts" / "000003-sums-0.part").write_bytes(b"of an attempt")

    with opened(tmp_path) as (_, last):
        assert last == epoch(2)
    assert [one.name for one in tmp_path.glob("checkpoint-*")] == ["checkpoint-000002.json"]
    assert not list((tmp_path / "parts").iterdir())


def test_parts_of_a_chain_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, _):
        state = {"sums": OperatorSnapshot({3: {"rows": ((b"k", b"v"),)}})}
        part = write_epoch_part(tmp_path, 1, "sums", 0, state)
        assert part.file is not None
        store.commit(epoch(1, (step((link(part.file),)),)))
    for number in (2, 3):
        with opened(tmp_path) as (store, last):
            assert last is not None
            store.commit(epoch(number, last.steps))

    with opened(tmp_path) as (store, last):
        assert last is not None
        files = store.files_of(last, "sums", ChangePlan())
        assert files is not None
        assert files.read(KeyGroupRange(0, GROUPS)).keyed == state["sums"].keyed
        assert store.files_of(last, "others", ChangePlan()) is None


def test_output_of_sinks_is_part_of_an_epoch(tmp_path: Path) -> None:
    output = [{"piece": "a", "number": 1}, ("b", None)]
    with opened(tmp_path) as (store, _):
        position = StreamPosition(prepared={"totals": encoded_output("totals", output)})
        store.commit(replace(epoch(1), stream=position))

    with opened(tmp_path) as (_, last):
        assert last is not None
        assert decoded_output(last, "totals") == output
        assert decoded_output(last, "others") == []


def test_output_that_is_no_plain_data_is_refused() -> None:
    with pytest.raises(CheckpointError, match="sink 'totals': its output cannot be stored"):
        encoded_output("totals", [object()])


def test_a_folder_has_one_driver(tmp_path: Path) -> None:
    with (
        opened(tmp_path),
        pytest.raises(CheckpointError, match="in use by another stream"),
        opened(tmp_path),
    ):
        pass
    with opened(tmp_path):
        pass


@pytest.mark.parametrize(
    ("flow", "key_groups", "message"),
    [("other", GROUPS, "state of flow 'shop'"), ("shop", 64, "pass key_groups=128")],
)
def test_state_of_another_stream_is_refused(
    tmp_path: Path, flow: str, key_groups: int, message: str
) -> None:
    with opened(tmp_path) as (store, _):
        store.commit(epoch(1))

    store = EpochStore(tmp_path, flow, key_groups)
    with pytest.raises(RestoreError, match=message):
        store.open()
    with opened(tmp_path) as (_, last):  # the lock was released
        assert last == epoch(1)


def test_the_folder_of_a_live_job_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, _):
        store.commit(epoch(1))
    path = tmp_path / "checkpoint-000001.json"
    path.write_bytes(manifest_bytes(replace(epoch(1), stream=None)))

    with pytest.raises(RestoreError, match="checkpoints of a live job"), opened(tmp_path):
        pass
    assert path.exists()


def test_a_damaged_epoch_is_refused_and_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, _):
        store.commit(epoch(1))
    path = tmp_path / "checkpoint-000001.json"
    path.write_text(path.read_text().replace('"batch": 1', '"batch": 7'))

    with pytest.raises(RestoreError, match="corrupt"), opened(tmp_path):
        pass
    assert path.exists()


@pytest.mark.parametrize("killed", [False, True])
def test_a_driver_that_fails_anywhere_leaves_one_whole_epoch(tmp_path: Path, killed: bool) -> None:
    """Each operation of an epoch fails, or is the last one of the driver."""
    committed = 0
    for number in range(1, 200):
        folder = tmp_path / str(number)
        before = _epoch_in(folder, 1, DISK)
        files = FaultyFiles(fails_at=number, killed=killed, for_good=True)
        try:
            expected = _epoch_in(folder, 2, files)
        except (CheckpointError, RestoreError, Killed):
            expected = None
        finally:
            files.die()

        with opened(folder) as (_, last):
            assert last is not None
            assert last == expected or (expected is None and last.id in (1, 2))
            for one in last.steps:
                chain = one.subtasks[0].chain
                read_chain(one.name, chain, ReadSource(DISK, folder))
            if last.id == 1:
                assert last == before
            committed += last.id == 2
        if not files.fell():
            assert expected is not None
            assert committed
            return
    raise AssertionError("the operations have no end")


def _epoch_in(folder: Path, number: int, files: Files) -> Manifest:
    """Commit an epoch whose subtask has changed a key."""
    with opened(folder, files=files) as (store, last):
        snapshot = OperatorSnapshot(
            {3: {"rows": ((b"k%d" % number, b"v"),)}},
            replaced=None if last is None else {3: frozenset([b"k%d" % number])},
        )
        part = write_epoch_part(folder, number, "sums", 0, {"sums": snapshot}, files=files)
        steps = () if last is None else last.steps
        kinds = {"sums": "fold"}
        made = epoch(number, next_steps(steps, [part], kinds, subtasks=1, key_groups=GROUPS))
        store.commit(made)
        store.clean(made)
        return made


def test_a_changed_flow_is_compared_with_the_state_of_the_last_epoch(tmp_path: Path) -> None:
    case, _ = case_of("running")
    _Stream(case, tmp_path, Random(1)).epoch(None, 300, Random(1))
    other = af.Flow("compared")
    other.source([1], name="items").key_by(lambda n: n).fold(str, lambda a, n: a, name="new").to(
        af.CollectSink[str](), name="out"
    )

    with opened(tmp_path, "compared") as (_, last):
        assert last is not None
        with pytest.raises(RestoreError, match="would be lost"):
            changes_since(last, tmp_path, other.graph)
        changes = changes_since(last, tmp_path, other.graph, allow_dropped_state=True)
    assert changes.dropped
