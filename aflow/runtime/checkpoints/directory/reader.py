"""Reads the state of the steps from the files of a checkpoint; every file is checked before any of it is used."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Final, TypeAlias

import anyio
from anyio import CapacityLimiter

from aflow.errors import CheckpointError, RestoreError
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.directory.files import DISK, Files, WrongSize, reason
from aflow.runtime.checkpoints.directory.names import PLACE, manifest_name, manifest_numbers
from aflow.runtime.checkpoints.directory.paths import local_folder
from aflow.runtime.checkpoints.directory.session import THREADS
from aflow.runtime.checkpoints.directory.threads import to_its_end
from aflow.runtime.checkpoints.storage import Restored
from aflow.runtime.clock import release_gil
from aflow.state.manifest import (
    FileRef,
    Link,
    Manifest,
    SubtaskState,
    manifest_of,
    wrong_size,
    wrong_with,
)
from aflow.state.parts import decoded, encoded
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot, merge, replay

#: The content of a part, by step.
Content: TypeAlias = Mapping[str, OperatorSnapshot]

#: Runs a function in a thread.
Run: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


class PartSource(ABC):
    """The location that the paths in a manifest are relative to."""

    def __init__(self) -> None:
        #: Held while a thread encodes or decodes state. Threads cannot do that in parallel anyway, and the event loop
        #: would have to compete with all of them.
        self.turn: Final = Lock()

    @abstractmethod
    def shown(self, path: str) -> str:
        """Return the full name of the file ``path``, for messages; '' is the location itself."""

    @abstractmethod
    async def manifest(self, checkpoint: int) -> Manifest:
        """Return the manifest of a checkpoint. Raises ``RestoreError`` if it is damaged.

        A failure that a later attempt may not have is a ``CheckpointError``.
        """

    @abstractmethod
    def read(self, ref: FileRef) -> bytes:
        """Return the bytes of a part; blocks. Raises ``RestoreError``, also for another size than that of ``ref``.

        A failure that a later attempt may not have is a ``CheckpointError``.
        """

    def encoded(self, steps: Mapping[str, OperatorSnapshot], *, aflow: str) -> Iterator[bytes]:
        """Yield the content of a part; each piece is created in turn, and may be written meanwhile."""
        pieces = encoded(steps, aflow=aflow)
        while True:
            with self.turn:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece


class ReadSource(PartSource):
    """A folder of checkpoints."""

    def __init__(self, files: Files, folder: Path) -> None:
        super().__init__()
        self.files: Final = files
        self.folder: Final = folder

    def shown(self, path: str) -> str:
        return str(self.folder / path)

    async def manifest(self, checkpoint: int) -> Manifest:
        return await manifest_in(self.files, self.folder / manifest_name(checkpoint))

    def read(self, ref: FileRef) -> bytes:
        path = self.folder / ref.path
        _check_folders(self.folder, ref)
        try:
            return self.files.read(path, ref.size)
        except FileNotFoundError as exc:
            raise RestoreError(f"{path} is missing") from exc
        except WrongSize as exc:
            raise RestoreError(f"{path} {wrong_size(ref, exc.size)}") from exc
        except OSError as exc:
            raise RestoreError(f"{path} cannot be read: {reason(exc)}") from exc


async def manifest_in(files: Files, path: Path) -> Manifest:
    """Return the manifest in the file ``path``. Raises ``RestoreError``."""
    try:
        data = await files.load(path)
    except OSError as exc:
        raise RestoreError(f"{path} cannot be read: {reason(exc)}") from exc
    return manifest_of(data, what=str(path))


def content(source: PartSource, ref: FileRef) -> Content:
    """Return the content of the part ``ref``; blocks. Raises ``RestoreError`` if it does not match the manifest."""
    path = source.shown(ref.path)
    try:
        data = source.read(ref)
    except MemoryError as exc:
        raise RestoreError(f"{path} has {ref.size:,} bytes, more than fits in memory") from exc
    wrong = wrong_with(ref, data)
    if wrong is not None:
        raise RestoreError(f"{path} {wrong}")
    with source.turn:
        # Otherwise the event loop would wait 5 ms for the lock of the interpreter whenever it wakes up.
        return decoded(data, what=path, after_frame=release_gil)


def _check_folders(folder: Path, ref: FileRef) -> None:
    """Raise ``RestoreError`` if a folder on the path of a part is a link, which may lead out of ``folder``."""
    for one in PurePosixPath(ref.path).parents:
        if one.name and os.path.islink(folder / one):
            raise RestoreError(
                f"{folder / one} is a symbolic link: the folder of the checkpoints may be one, its contents may not"
            )


def read_chain(step: str, chain: Sequence[Link], source: PartSource) -> OperatorSnapshot:
    """Read the files of a subtask, and return its state as ``state_of`` does; blocks."""
    contents = {link.file: content(source, link.file) for link in chain}
    return state_of(step, chain, contents, source)


def state_of(
    step: str, chain: Sequence[Link], contents: Mapping[FileRef, Content], source: PartSource
) -> OperatorSnapshot:
    """Return the state of one subtask of ``step``: complete, and of the key groups of its links only.

    A complete part has all state of its key groups, so older ones are not read for them. Raises ``RestoreError``.
    """
    told: set[int] = set()
    parts: list[OperatorSnapshot] = []
    for link in reversed(chain):
        snapshot = contents[link.file].get(step)
        if snapshot is None:
            raise RestoreError(f"{source.shown(link.file.path)} holds nothing of step {step!r}")
        groups = frozenset(range(link.first, link.stop))
        parts.append(snapshot.restricted_to(groups - told))
        if snapshot.complete:
            told |= groups
        elif link is chain[0]:
            raise RestoreError(
                f"{source.shown(link.file.path)} holds changes of step {step!r}, and nothing says to what"
            )
    return replay(parts[::-1])


async def states_of(
    manifest: Manifest, source: PartSource, run: Run
) -> dict[str, OperatorSnapshot]:
    """Return the state of each step of a checkpoint. Raises ``RestoreError`` naming the files that are not complete."""
    contents: dict[FileRef, Content] = {}
    problems: dict[str, RestoreError] = {}
    closed: list[CheckpointError] = []

    async def fetch(ref: FileRef) -> None:
        def work() -> None:
            contents[ref] = content(source, ref)

        try:
            await run(work)
        except RestoreError as exc:
            problems[ref.path] = exc
        except (
            CheckpointError
        ) as exc:  # the storage was closed; raised below, since a group would wrap it
            closed.append(exc)

    async with anyio.create_task_group() as group:
        for ref in manifest.files:
            group.start_soon(fetch, ref)
    if closed:
        raise closed[0]
    if problems:
        raise _all_of([problems[path] for path in sorted(problems)])
    states: dict[str, OperatorSnapshot] = {}

    def merge_parts() -> None:
        with wrap_read_errors(f"checkpoint {manifest.id}"):
            states.update(_merged(manifest, contents, source))

    await run(merge_parts)
    return states


def _all_of(problems: Sequence[RestoreError]) -> RestoreError:
    shown = "; ".join(map(str, problems[:3]))
    more = f"; and {len(problems) - 3} more files" if len(problems) > 3 else ""
    error = RestoreError(shown + more)
    error.__cause__ = problems[0].__cause__
    return error


def _merged(
    manifest: Manifest, contents: Mapping[FileRef, Content], source: PartSource
) -> dict[str, OperatorSnapshot]:
    return {
        step.name: merge(state_of(step.name, one.chain, contents, source) for one in step.subtasks)
        for step in manifest.steps
    }


def of_step(manifest: Manifest, step: str, groups: KeyGroupRange) -> Manifest:
    """Return ``manifest`` with the files of one step that hold state of ``groups`` only."""
    steps = [
        replace(one, subtasks=tuple(clip_to_groups(subtask, groups) for subtask in one.subtasks))
        for one in manifest.steps
        if one.name == step
    ]
    return replace(
        manifest,
        steps=tuple(
            replace(one, subtasks=tuple(subtask for subtask in one.subtasks if subtask.chain))
            for one in steps
        ),
    )


def clip_to_groups(subtask: SubtaskState, groups: KeyGroupRange) -> SubtaskState:
    """Return ``subtask`` with the files that hold state of ``groups`` only; its chain may be empty."""
    clipped = (
        replace(link, first=max(link.first, groups.start), stop=min(link.stop, groups.stop))
        for link in subtask.chain
    )
    return replace(subtask, chain=tuple(link for link in clipped if link.first < link.stop))


def links_to_groups(subtasks: Iterable[SubtaskState], groups: KeyGroupRange) -> tuple[Link, ...]:
    """Return the links with state of ``groups``, each restricted to them: a chain, if the subtasks are of one step."""
    return tuple(link for one in subtasks for link in clip_to_groups(one, groups).chain)


def _whole(manifest: Manifest) -> Manifest:
    return manifest


async def newest_whole(
    numbers: Iterable[int],
    source: PartSource,
    run: Run,
    wanted: Callable[[Manifest], Manifest] = _whole,
) -> Restored | None:
    """Return the newest of these checkpoints that is complete, with the skipped ones named; None if there are none.

    Only the files of the manifest that ``wanted`` returns are read. Raises ``RestoreError`` naming all of them if none
    is complete, and ``CheckpointError`` for a failure that a later attempt may not have: no older checkpoint is
    restored for it.
    """
    passed_over: list[str] = []
    for number in sorted(numbers, reverse=True):
        try:
            manifest = await source.manifest(number)
            states = await states_of(wanted(manifest), source, run)
        except RestoreError as exc:
            passed_over.append(f"checkpoint {number}: {exc}")
        else:
            return Restored(manifest, states, tuple(passed_over))
    if not passed_over:
        return None
    raise RestoreError(
        f"none of the checkpoints in {source.shown('')} can be read: {'; '.join(passed_over)}. Restore the files "
        f"from a copy or start from a savepoint; an empty folder starts the flow anew"
    )


async def read_checkpoint(path: str | PathLike[str], *, files: Files = DISK) -> Restored:
    """Read a checkpoint without claiming its folder: also that of a running job.

    ``path`` is a savepoint, a folder of checkpoints (whose newest is read), or one manifest; a ``file:`` URI will do.
    Raises ``RestoreError`` if there is none, or none that is whole, and ``FlowDefinitionError`` for other URIs.
    """
    place = local_folder(path, "restore")
    limiter = CapacityLimiter(THREADS)

    async def run(work: Callable[[], None]) -> None:
        await to_its_end(work, limiter)

    try:
        names = await to_its_end(lambda: files.names(place), limiter)
    except NotADirectoryError:
        return await _one(place, files, run)
    except FileNotFoundError as exc:
        raise RestoreError(
            f"there is no checkpoint at {place}: nothing of that name exists"
        ) from exc
    except OSError as exc:
        raise RestoreError(f"{place} cannot be read: {reason(exc)}") from exc
    found = await newest_whole(manifest_numbers(names), ReadSource(files, place), run)
    if found is None:
        raise RestoreError(_nothing_in(place, names))
    return found


async def _one(path: Path, files: Files, run: Run) -> Restored:
    manifest = await manifest_in(files, path)
    return Restored(manifest, await states_of(manifest, ReadSource(files, path.parent), run))


def _nothing_in(folder: Path, names: Sequence[str]) -> str:
    if PLACE in names:
        return f"no checkpoint has been completed in {folder} yet"
    return (
        f"{folder} holds no checkpoint: a savepoint, and a folder of checkpoints, has a file {manifest_name(1)} or of "
        f"another number"
    )
