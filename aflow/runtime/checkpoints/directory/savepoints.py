"""Parts rewritten as complete ones: of one chain, to compact it, and of a whole checkpoint, as a savepoint."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from anyio import CancelScope, CapacityLimiter, create_task_group

from aflow.errors import CheckpointError, RestoreError
from aflow.model.elements import CheckpointKind
from aflow.runtime.checkpoints.directory.files import Files, Written, reason, stored
from aflow.runtime.checkpoints.directory.names import PARTS, manifest_name, part_name
from aflow.runtime.checkpoints.directory.reader import PartSource, content, state_of
from aflow.runtime.checkpoints.directory.threads import to_its_end
from aflow.state.manifest import FileRef, Link, Manifest, StepState, SubtaskState, manifest_bytes

T = TypeVar("T")


class Run(Protocol):
    """Runs a function in a thread, to its end."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class SavepointDraft(Protocol):
    """A savepoint that is being written. All methods block, and raise ``CheckpointError``."""

    def begin(self) -> None:
        """Claim the location, which must be new."""
        ...

    def store(self, name: str, pieces: Iterable[bytes]) -> Written:
        """Write a part."""
        ...

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which makes the savepoint readable."""
        ...

    def remove(self) -> None:
        """Remove what was written, if it is not finished. Raises nothing."""
        ...


def rewritten(
    source: PartSource, step: str, chain: Sequence[Link], *, aflow: str
) -> Iterator[bytes]:
    """Return the state of a chain as one complete part, in pieces; blocks. Raises ``CheckpointError``."""
    try:
        contents = {link.file: content(source, link.file) for link in chain}
        with source.turn:
            state = state_of(step, chain, contents, source)
    except RestoreError as exc:
        raise CheckpointError(f"the state of step {step!r} cannot be read back: {exc}") from exc
    return source.encoded({step: state}, aflow=aflow)


def check_new(files: Files, path: Path) -> None:
    """Raise ``CheckpointError`` if ``path`` exists, or no folder can be created there; blocks."""
    target = Path.cwd() / path
    if files.exists(target):
        raise CheckpointError(
            f"there is something at {target} already: a savepoint needs a name of its own"
        )
    above = next(one for one in target.parents if files.exists(one))
    if not above.is_dir():
        raise CheckpointError(f"cannot write {target}: {above} is no folder")


async def export(
    source: PartSource, manifest: Manifest, draft: SavepointDraft, run: Run
) -> Manifest:
    """Write a checkpoint as a savepoint; see ``CheckpointStorage.export``."""
    try:
        await run(draft.begin)
        steps = await _steps(source, manifest, draft, run)
        saved = replace(manifest, kind=CheckpointKind.SAVEPOINT, steps=steps)
        await run(lambda: draft.finish(saved))
    except BaseException:
        with CancelScope(shield=True):
            # Not by ``run``, which refuses work if the storage was closed meanwhile.
            await to_its_end(draft.remove, CapacityLimiter(1))
        raise
    return saved


async def _steps(
    source: PartSource, manifest: Manifest, draft: SavepointDraft, run: Run
) -> tuple[StepState, ...]:
    """Rewrite the state of all steps, and return its descriptions."""
    links: dict[tuple[str, int], Link] = {}
    failures: list[BaseException] = []

    async def write(step: str, one: SubtaskState) -> None:
        name = f"{PARTS}/{part_name(manifest.id, step, one.subtask)}"
        try:
            written = await run(
                lambda: draft.store(name, rewritten(source, step, one.chain, aflow=manifest.aflow))
            )
        except CheckpointError as exc:
            failures.append(exc)
            group.cancel_scope.cancel()
            return
        file = FileRef(name, written.size, written.checksum)
        first, stop = min(link.first for link in one.chain), max(link.stop for link in one.chain)
        links[step, one.subtask] = Link(file, first, stop)

    async with create_task_group() as group:
        for step in manifest.steps:
            for one in step.subtasks:
                group.start_soon(write, step.name, one)
    if failures:
        raise failures[0]
    return tuple(
        replace(
            step,
            subtasks=tuple(
                SubtaskState(one.subtask, (links[step.name, one.subtask],)) for one in step.subtasks
            ),
        )
        for step in manifest.steps
    )


@dataclass(frozen=True, slots=True)
class Draft:
    """A savepoint that is being written to a folder.

    It is written to a folder beside it, whose name starts with a dot, and is renamed when it is complete.
    """

    files: Files
    target: Path

    @property
    def folder(self) -> Path:
        """A folder of this draft only: two may be written for the same name."""
        return self.target.parent / f".{self.target.name}.partial-{os.getpid()}-{id(self):x}"

    def begin(self) -> None:
        try:
            check_new(self.files, self.target)
            self.files.make_folder(self.folder / PARTS)
        except OSError as exc:
            raise CheckpointError(f"cannot write {self.target}: {reason(exc)}") from exc

    def store(self, name: str, pieces: Iterable[bytes]) -> Written:
        return stored(self.files, self.folder / name, pieces)

    def finish(self, manifest: Manifest) -> None:
        stored(self.files, self.folder / manifest_name(manifest.id), [manifest_bytes(manifest)])
        try:
            check_new(self.files, self.target)
            self.files.rename(self.folder, self.target)
        except OSError as exc:
            raise CheckpointError(f"cannot write {self.target}: {reason(exc)}") from exc
        try:
            self.files.sync_folder(self.target.parent)
        except OSError as exc:
            with suppress(OSError):
                self.files.remove_folder(self.target)
            raise CheckpointError(f"cannot write {self.target}: {reason(exc)}") from exc

    def remove(self) -> None:
        with suppress(OSError):
            self.files.remove_folder(self.folder)
