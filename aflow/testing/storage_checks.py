"""The contract of ``CheckpointStorage`` as one check, for authors of storages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias, TypeVar

from aflow.errors import AflowError, CheckpointError, RestoreError, described, shown
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.storage import CheckpointStorage, Restored, StepReader
from aflow.state.manifest import FileRef, Link, Manifest, StepState, SubtaskState
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing.leftovers import no_leftovers_of_block
from aflow.testing.time_limit import PATIENCE, check_not_async, in_time

R = TypeVar("R")

MakeStorage: TypeAlias = Callable[[str], CheckpointStorage]
"""Makes a storage over the place of a name; a new name is an empty place."""

#: The flow whose checkpoints are stored, its one task with its two steps, and the number of key groups.
_FLOW: Final = "checked"
_TASK: Final = "sums → out"
_STEP: Final = "sums"
_GROUPS: Final = 4


async def check_storage(make_storage: MakeStorage, *, patience: timedelta = PATIENCE) -> None:
    """Raise ``AssertionError`` if a storage breaks the contract of ``CheckpointStorage``; the message names the breach.

    ``make_storage(place)`` makes a storage over the place of that name, many times: storages of equal names share what
    they store, as those of two runs of a program do. A place of a new name is empty. No call may take longer than
    ``patience`` of loop time.

    The check stores complete snapshots and changes from several subtasks, reads the newest checkpoint back, also with
    another storage over the same place, compacts chains, discards and sweeps, exports a savepoint to a temporary
    folder, and opens places that are in use or belong to another flow. Afterwards no task, thread or open file may be
    left.
    """
    check_not_async(make_storage, "make_storage")
    check = _StorageCheck(make_storage, patience)
    await (
        check.empty()
    )  # without a check for leftovers: a library may open a resource at its first use and keep it
    for scenario in check.scenarios():
        async with no_leftovers_of_block(check.name):
            await scenario()


class _StorageCheck:
    def __init__(self, make: MakeStorage, patience: timedelta) -> None:
        self._make = make
        self._patience = patience
        self.name: Final = type(make("name")).__name__

    def scenarios(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return all checks."""
        return (
            self._subtasks,
            self._changes,
            self._key_groups,
            self._reading_steps,
            self._reading_beside_writers,
            self._writing_at_once,
            self._continuing,
            self._discarding,
            self._sweeping,
            self._sweeping_beside_writers,
            self._compacting,
            self._exporting,
            self._exporting_twice,
            self._in_use,
            self._of_another_flow,
            self._closing,
            self._cancelling,
        )

    async def empty(self) -> None:
        """A new place has no checkpoint."""
        async with self._opened("empty") as storage:
            self._same(await self._latest(storage), None, "latest() of an empty place is")
            self._same(await self._kept(storage), [], "kept() of an empty place is")
            number = await self._next_id(storage)
            if type(number) is not int or number < 1:
                raise self._broken(f"next_id() is a whole number from 1 on, not {shown(number)}")

    async def _subtasks(self) -> None:
        """The states of all subtasks are read back as one."""
        async with self._opened("subtasks") as storage:
            files = [
                await self._write(storage, 1, subtask, _complete({group: {"k": "1"}}, f"{subtask}"))
                for subtask, group in enumerate((0, 3))
            ]
            manifest = _manifest(1, [[file] for file in files])
            await self._complete(storage, manifest)
            await self._expect(
                storage, 1, _complete({0: {"k": "1"}, 3: {"k": "1"}}, "0", "1"), "of two subtasks"
            )
            restored = await self._latest(storage)
            assert restored is not None
            self._same(restored.manifest, manifest, "the manifest that latest() gives is")

    async def _changes(self) -> None:
        """A chain of a complete snapshot and changes is replayed."""
        async with self._opened("changes") as storage:
            base = await self._write(
                storage, 1, 0, _complete({0: {"a": "1", "b": "1"}, 2: {"c": "1"}})
            )
            await self._complete(storage, _manifest(1, [[base]]))
            newer = await self._write(storage, 2, 0, _changes({0: {"a": "2"}}, {2: {"c"}}))
            await self._complete(storage, _manifest(2, [[base, newer]]))
            await self._expect(storage, 2, _complete({0: {"a": "2", "b": "1"}}), "with changes")

    async def _key_groups(self) -> None:
        """Of each link of a chain only its key groups count."""
        async with self._opened("key groups") as storage:
            whole = {group: {f"k{group}": "old"} for group in range(_GROUPS)}
            old = await self._write(storage, 1, 0, _complete(whole))
            new = await self._write(storage, 2, 1, _changes({2: {"k2": "new"}, 3: {"k3": "never"}}))
            chains = [[Link(old, 0, 2)], [Link(old, 2, _GROUPS), Link(new, 2, 3)]]
            await self._complete(storage, _manifest(2, chains))
            wanted = _complete({**whole, 2: {"k2": "new"}})
            await self._expect(storage, 2, wanted, "with links of some key groups")

    async def _reading_steps(self) -> None:
        """A storage that reads single steps returns the state of at least the wanted key groups."""
        async with self._opened("steps") as storage:
            if not isinstance(storage, StepReader):
                return
            groups = KeyGroupRange(2, _GROUPS)
            found = await self._in_time(storage.latest_of(_STEP, groups), "latest_of()")
            self._same(found, None, "latest_of() of an empty place is")
            files = [
                await self._write(storage, 1, subtask, _complete({group: {"k": "1"}}))
                for subtask, group in enumerate((0, 3))
            ]
            manifest = _manifest(1, [[Link(files[0], 0, 2)], [Link(files[1], 2, _GROUPS)]])
            await self._complete(storage, manifest)
            found = await self._in_time(storage.latest_of(_STEP, groups), "latest_of()")
            state = None if found is None else found.states.get(_STEP)
            keyed = None if state is None else state.restricted_to(groups).keyed
            self._same(
                keyed, _complete({3: {"k": "1"}}).keyed, "the state that latest_of() gives is"
            )
            other = await self._in_time(storage.latest_of("other", groups), "latest_of()")
            states = None if other is None else other.states
            self._same(states, {}, "the states that latest_of() gives for an unknown step are")

    async def _reading_beside_writers(self) -> None:
        """``latest`` may be called while checkpoints are written, completed and discarded."""
        last = 8
        async with self._opened("reading") as storage:
            await self._checkpoint(storage, 1)

            async def replace() -> None:
                for number in range(2, last + 1):
                    await self._checkpoint(storage, number)
                    await self._discard(storage, number - 1)

            breaches: list[AssertionError] = []
            async with asyncio.TaskGroup() as group:
                replacing = group.create_task(replace())
                while not replacing.done() and not breaches:
                    try:
                        await self._read_beside(storage)
                    except AssertionError as breach:
                        breaches.append(breach)  # raised below, since a group would wrap it
            if breaches:
                raise breaches[0]
            await self._expect(storage, last, _numbered(last), "after reads beside a writer")

    async def _read_beside(self, storage: CheckpointStorage) -> None:
        before = await self._kept(storage)
        try:
            restored = await in_time(storage.latest(), self._patience, f"{self.name}: latest()")
        except RestoreError as exc:
            if await self._kept(storage) == before:
                raise self._broken(f"latest() raises {described(exc)}") from exc
            return  # its files were removed; the caller asks again
        if restored is None:
            raise self._broken("latest() is None while a further checkpoint is written")
        state = {_STEP: _numbered(restored.manifest.id)}
        self._same(restored.states, state, "the states read beside a writer are")

    async def _writing_at_once(self) -> None:
        """Concurrent writes of parts are independent."""
        async with self._opened("at once") as storage:
            states = [_complete({}, str(subtask)) for subtask in range(8)]
            files = await asyncio.gather(
                *(self._write(storage, 1, subtask, state) for subtask, state in enumerate(states))
            )
            if len({file.path for file in files}) < len(files):
                raise self._broken("write_part() gives two parts one path")
            await self._complete(storage, _manifest(1, [[Link(file, 0, 0)] for file in files]))
            await self._expect(storage, 1, _complete({}, *map(str, range(8))), "of eight subtasks")

    async def _continuing(self) -> None:
        """Another storage over the same place continues: nothing is lost and no number is used twice."""
        async with self._opened("continuing") as storage:
            await self._checkpoint(storage, 7)
            await self._write(storage, 9, 0, _complete({}))
        async with self._opened("continuing") as storage:
            await self._expect(storage, 7, _numbered(7), "of a former run")
            self._same(await self._kept(storage), [7], "kept() after a former run is")
            number = await self._next_id(storage)
            if number <= 9:
                raise self._broken(
                    f"next_id() is {number}, though a part of checkpoint 9 was written in this place"
                )
            await self._checkpoint(storage, number)
            await self._expect(storage, number, _numbered(number), "after a former run")

    async def _discarding(self) -> None:
        """A discarded checkpoint is no longer there; the one before it is."""
        async with self._opened("discarding") as storage:
            await self._checkpoint(storage, 1)
            await self._checkpoint(storage, 2)
            self._same(await self._kept(storage), [1, 2], "kept() after two checkpoints is")
            await self._discard(storage, 2)
            self._same(await self._kept(storage), [1], "kept() after discard(2) is")
            await self._expect(storage, 1, _numbered(1), "after discard(2)")
            await self._discard(storage, 3)  # one that was never completed

    async def _sweeping(self) -> None:
        """``sweep`` keeps the parts of manifests and of ``keep``."""
        async with self._opened("sweeping") as storage:
            await self._checkpoint(storage, 1)
            base = await self._write(storage, 2, 0, _complete({0: {"a": "2"}}))
            await self._complete(storage, _manifest(2, [[base]]))
            await self._discard(storage, 1)
            await self._discard(storage, 2)
            await self._checkpoint(storage, 3)
            await self._sweep(storage, [base])
            await self._expect(storage, 3, _numbered(3), "after sweep()")
            newer = await self._write(storage, 4, 0, _changes({1: {"b": "4"}}))
            await self._complete(storage, _manifest(4, [[base, newer]]))
            wanted = _complete({0: {"a": "2"}, 1: {"b": "4"}})
            await self._expect(storage, 4, wanted, "on a part that sweep(keep) was given")

    async def _sweeping_beside_writers(self) -> None:
        """``sweep`` keeps the parts of a checkpoint that is not completed yet."""
        async with self._opened("beside writers") as storage:
            file = await self._write(storage, 1, 0, _numbered(1))
            await self._sweep(storage, [])
            await self._complete(storage, _manifest(1, [[file]]))
            await self._expect(storage, 1, _numbered(1), "whose part was written before sweep()")

    async def _compacting(self) -> None:
        """A compacted chain is one part with the same state."""
        async with self._opened("compacting") as storage:
            base = await self._write(storage, 1, 0, _complete({0: {"a": "1"}}))
            newer = await self._write(storage, 2, 0, _changes({1: {"b": "2"}}))
            chain = [Link(base, 0, _GROUPS), Link(newer, 0, _GROUPS)]
            work = storage.compact(2, _TASK, 0, _STEP, chain)
            file = await self._in_time(work, "compact()")
            await self._complete(storage, _manifest(2, [[file]]))
            wanted = _complete({0: {"a": "1"}, 1: {"b": "2"}})
            await self._expect(storage, 2, wanted, "of a compacted chain")

    async def _exporting(self) -> None:
        """A savepoint needs no other file."""
        with TemporaryDirectory() as folder:
            path = str(Path(folder) / "savepoint")
            async with self._opened("exporting") as storage:
                manifest = await self._checkpoint(storage, 1)
                saved = await self._in_time(storage.export(manifest, path), "export()")
                self._same(saved.kind, CheckpointKind.SAVEPOINT, "the kind of a savepoint is")
                await self._discard(storage, 1)
                await self._sweep(storage, [])
            restored = await read_checkpoint(path)
        self._same(restored.states, {_STEP: _numbered(1)}, "the states of a savepoint are")

    async def _exporting_twice(self) -> None:
        with TemporaryDirectory() as folder:
            async with self._opened("exporting twice") as storage:
                manifest = await self._checkpoint(storage, 1)
                await self._refused(
                    storage.export(manifest, folder), "export() to a path that exists"
                )

    async def _in_use(self) -> None:
        """A place belongs to one storage at a time."""
        async with self._opened("in use") as storage:
            other = self._make("in use")
            await self._refused(other.open(_FLOW), "open() of a place that is in use")
            await self._in_time(other.close(), "close()")
            await self._checkpoint(storage, 1)
        async with self._opened("in use") as storage:
            await self._expect(storage, 1, _numbered(1), "after open() by two")

    async def _of_another_flow(self) -> None:
        async with self._opened("flows"):
            pass
        other = self._make("flows")
        await self._refused(other.open("another"), "open() for another flow")
        await self._in_time(other.close(), "close()")

    async def _closing(self) -> None:
        """``close`` can be called before ``open`` and twice."""
        storage = self._make("closing")
        await self._in_time(storage.close(), "close() before open()")
        await self._in_time(storage.open(_FLOW), "open()")
        await self._in_time(storage.close(), "close()")
        await self._in_time(storage.close(), "close() for the second time")

    async def _cancelling(self) -> None:
        """A cancelled write of a part has no effect on later writes."""
        async with self._opened("cancelling") as storage:
            await self._checkpoint(storage, 1)
            try:
                async with asyncio.timeout(0):  # cancels at the first wait
                    await self._write(storage, 2, 0, _numbered(2))
            except TimeoutError:
                pass  # the cancellation that is checked
            await self._discard(storage, 2)
            await self._sweep(storage, [])
            await self._expect(storage, 1, _numbered(1), "after a write that was cancelled")

    @asynccontextmanager
    async def _opened(self, place: str) -> AsyncGenerator[CheckpointStorage]:
        storage = self._make(place)
        await self._in_time(storage.open(_FLOW), "open()")
        try:
            yield storage
        finally:
            await self._in_time(storage.close(), "close()")

    async def _checkpoint(self, storage: CheckpointStorage, number: int) -> Manifest:
        """Complete a checkpoint with the state of one subtask."""
        file = await self._write(storage, number, 0, _numbered(number))
        manifest = _manifest(number, [[file]])
        await self._complete(storage, manifest)
        return manifest

    async def _write(
        self, storage: CheckpointStorage, number: int, subtask: int, state: OperatorSnapshot
    ) -> FileRef:
        work = storage.write_part(number, _TASK, subtask, {_STEP: state})
        return await self._in_time(work, f"write_part({number})")

    async def _complete(self, storage: CheckpointStorage, manifest: Manifest) -> None:
        await self._in_time(storage.complete(manifest), f"complete({manifest.id})")

    async def _discard(self, storage: CheckpointStorage, number: int) -> None:
        await self._in_time(storage.discard(number), f"discard({number})")

    async def _sweep(self, storage: CheckpointStorage, keep: Sequence[FileRef]) -> None:
        await self._in_time(storage.sweep(keep), "sweep()")

    async def _latest(self, storage: CheckpointStorage) -> Restored | None:
        return await self._in_time(storage.latest(), "latest()")

    async def _kept(self, storage: CheckpointStorage) -> list[int]:
        return await self._in_time(storage.kept(), "kept()")

    async def _next_id(self, storage: CheckpointStorage) -> int:
        return await self._in_time(storage.next_id(), "next_id()")

    async def _expect(
        self, storage: CheckpointStorage, number: int, state: OperatorSnapshot, what: str
    ) -> None:
        """Raise unless the newest checkpoint is ``number`` with ``state``."""
        restored = await self._latest(storage)
        found = None if restored is None else restored.manifest.id
        self._same(found, number, f"the newest checkpoint {what} has the number")
        assert restored is not None
        self._same(restored.passed_over, (), f"latest() {what} passes over")
        self._same(restored.states, {_STEP: state}, f"the states {what} are")

    async def _refused(self, work: Awaitable[object], what: str) -> None:
        try:
            await in_time(work, self._patience, f"{self.name}: {what}")
        except CheckpointError:
            return
        raise self._broken(f"{what} raises no CheckpointError")

    def _same(self, found: object, expected: object, what: str) -> None:
        if found != expected:
            raise self._broken(f"{what} {shown(found)} instead of {shown(expected)}")

    def _broken(self, how: str) -> AssertionError:
        return AssertionError(f"{self.name} breaks the contract of CheckpointStorage: {how}")

    async def _in_time(self, work: Awaitable[R], what: str) -> R:
        """Return the result of ``work``; an error of the storage breaks the contract."""
        try:
            return await in_time(work, self._patience, f"{self.name}: {what}")
        except AflowError as exc:
            raise self._broken(f"{what} raises {described(exc)}") from exc


def _complete(rows: Mapping[int, Mapping[str, str]], *parts: str) -> OperatorSnapshot:
    """Return a complete snapshot: rows of the state "total" by key group, and parts of the operator state "@at"."""
    return OperatorSnapshot(
        {
            group: {
                "total": tuple((key.encode(), value.encode()) for key, value in entries.items())
            }
            for group, entries in rows.items()
        },
        {"@at": tuple(part.encode() for part in parts)} if parts else {},
    )


def _changes(
    rows: Mapping[int, Mapping[str, str]], deleted: Mapping[int, set[str]] | None = None
) -> OperatorSnapshot:
    """Return a snapshot of changes: rows that were written, and keys that were deleted."""
    keyed = _complete(rows).keyed
    groups = {*rows, *(deleted or {})}
    replaced = {
        group: frozenset(
            key.encode() for key in (*rows.get(group, ()), *(deleted or {}).get(group, ()))
        )
        for group in groups
    }
    return OperatorSnapshot(keyed, replaced=replaced)


def _numbered(number: int) -> OperatorSnapshot:
    return _complete({number % _GROUPS: {"key": str(number)}}, f"at {number}")


def _manifest(number: int, chains: Sequence[Sequence[FileRef | Link]]) -> Manifest:
    """Return a manifest with the chain of each subtask, oldest part first; a file counts with all key groups."""
    states = tuple(
        SubtaskState(
            subtask,
            tuple(one if isinstance(one, Link) else Link(one, 0, _GROUPS) for one in chain),
        )
        for subtask, chain in enumerate(chains)
    )
    return Manifest(
        id=number,
        kind=CheckpointKind.PERIODIC,
        flow=_FLOW,
        key_groups=_GROUPS,
        created_at=number * 1000,
        completed_at=number * 1000 + 5,
        steps=(StepState(_STEP, "process", len(states), states),),
        aflow="1.2.3",
    )
