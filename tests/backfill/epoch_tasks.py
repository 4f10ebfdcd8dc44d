"""Tasks of the epochs of a stream, dealt at random to processes that keep their state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from aflow.backfill.blocks import InputRows
from aflow.backfill.epochs import EpochPart, EpochStore
from aflow.backfill.fragment_run import FragmentResult
from aflow.backfill.fragments import Fragment
from aflow.backfill.state_cache import StateCache, StateOwner
from aflow.backfill.task_state import CacheUse, TaskPlace, TaskState
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.runtime.checkpoints.directory.reader import links_to_groups
from aflow.state.change_plan import ChangePlan
from aflow.state.manifest import Manifest
from aflow.state.snapshot import STATES, OperatorSnapshot

#: More than the state of any test.
MUCH = 1 << 30


@dataclass
class Processes:
    """Processes that run the tasks of a stream: some with a cache, and one without."""

    random: Random
    caches: list[StateCache] = field(default_factory=lambda: [StateCache(), StateCache()])
    hits: int = 0
    """Tasks that have read no complete part, since their process kept it."""
    partial: int = 0
    """Tasks that have restored the state of some keys."""
    bytes_read: int = 0

    def use(self, owner: StateOwner) -> CacheUse | None:
        number = self.random.choice([0, 0, 1, None])
        return None if number is None else CacheUse(self.caches[number], owner, MUCH)


@dataclass
class EpochTasks:
    """The tasks of one epoch, which begin with the state of ``last``."""

    processes: Processes
    store: EpochStore
    last: Manifest | None
    subtasks: int
    _tasks: dict[tuple[int, int], TaskState] = field(
        default_factory=dict[tuple[int, int], TaskState]
    )

    @property
    def number(self) -> int:
        return 1 if self.last is None else self.last.id + 1

    def begin(self, fragment: Fragment, subtask: int, rows: list[InputRows]) -> TaskState:
        """The state of a task, whose ``rows`` were looked at."""
        step, groups = fragment.head.name, self._groups[subtask]
        files = None if self.last is None else self.store.files_of(self.last, step, ChangePlan())
        place = TaskPlace(self.store.folder, self.number, step, subtask, groups)
        use = self.processes.use(owner(self.store, fragment, groups))
        task = self._tasks[fragment.index, subtask] = TaskState(place, files, use)
        task.read()
        assert list(task.look_ahead(iter(rows))) == rows
        return task

    def end(self, fragment: Fragment, subtask: int, result: FragmentResult) -> EpochPart:
        """The part that a task has written."""
        task = self._tasks[fragment.index, subtask]
        if task.files is not None:
            self.processes.partial += task.is_partial
            self.processes.hits += task.use is not None and not task.bytes_read
            self.processes.bytes_read += task.bytes_read
        return task.write(result.state)

    def check_kept(self, fragments: tuple[Fragment, ...], committed: Manifest) -> None:
        """Check that the kept state is what a reader of the files gets."""
        for fragment in fragments:
            files = self.store.files_of(committed, fragment.head.name, ChangePlan())
            for cache, groups in (
                (cache, groups) for cache in self.processes.caches for groups in self._groups
            ):
                if files is None or not fragment.keyed:
                    continue
                chain = links_to_groups(files.subtasks, groups)
                place = owner(self.store, fragment, groups)
                found = cache.take(place, chain)
                if found is not None:
                    if found.chain == chain:
                        assert rows_of(found.state.complete()) == rows_of(files.read(groups))
                    cache.put(place, found.chain, found.state, MUCH)

    @property
    def _groups(self) -> list[KeyGroupRange]:
        return ranges(self.store.key_groups, self.subtasks)


def owner(store: EpochStore, fragment: Fragment, groups: KeyGroupRange) -> StateOwner:
    return StateOwner(store.folder, "query", f"{fragment.index}", groups)


def rows_of(snapshot: OperatorSnapshot) -> object:
    """The content of a snapshot, in an order of its own."""

    def sorted_rows(names: Mapping[str, object]) -> dict[str, object]:
        return {
            name: sorted(rows)  # type: ignore[call-overload]
            for name, rows in names.items()
            if rows and name != STATES
        }

    keyed = {group: sorted_rows(names) for group, names in snapshot.keyed.items()}
    return (
        {group: names for group, names in keyed.items() if names},
        snapshot.operator,
        snapshot.broadcast,
    )
