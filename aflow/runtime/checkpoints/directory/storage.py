"""Checkpoints in a folder of a file system.

::

    state/
      flow.json                             the flow that the folder belongs to
      lock                                  held by the live job; contains its process
      checkpoint-000012.json                the manifest of checkpoint 12
      parts/000012-sums-1f0c2a9b-0.part     stored by subtask 0 of task "sums" for checkpoint 12

A savepoint is such a folder too, without ``flow.json`` and ``lock``. A name that ends with ``.tmp`` is a file that is
being written, or whose writer has died. Names of files are for people; a reader uses the manifests.

A file is written under a temporary name, synced, renamed, and its folder is synced; the manifest of a checkpoint is
last. So every file with its final name is complete, and a checkpoint is there entirely or not at all. A call that is
cancelled first completes its work in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Final

import anyio

from aflow.errors import CheckpointError, RestoreError
from aflow.model.distribution import VERSION
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.directory.files import DISK, Files, Written, reason, stored
from aflow.runtime.checkpoints.directory.folder_lock import hold
from aflow.runtime.checkpoints.directory.names import (
    PARTS,
    PLACE,
    TEMPORARY,
    manifest_name,
    manifest_numbers,
    number_in,
    part_name,
)
from aflow.runtime.checkpoints.directory.reader import (
    ReadSource,
    manifest_in,
    newest_whole,
    of_step,
)
from aflow.runtime.checkpoints.directory.savepoints import Draft, check_new, export, rewritten
from aflow.runtime.checkpoints.directory.session import StorageSession
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.manifest import (
    FORMAT,
    FileRef,
    Link,
    Manifest,
    flow_of,
    manifest_bytes,
    place_bytes,
)
from aflow.state.snapshot import OperatorSnapshot


class DirectoryStorage:
    """Stores the checkpoints of one flow in a folder, which is created if it is missing; see ``CheckpointStorage``.

    The folder must be on a file system with POSIX locks and renames: a local disk, or a network one that has both.
    """

    def __init__(self, folder: str | PathLike[str], *, files: Files = DISK) -> None:
        self.folder: Final = Path(fspath(folder))
        self._files: Final = files
        self._source: Final = ReadSource(files, self.folder)
        self._aflow: Final = VERSION
        self._session: StorageSession | None = None

    # ------------------------------------------------------------------------------------------ the place

    async def open(self, flow: str) -> None:
        if self._session is not None:
            raise CheckpointError(f"the storage in {self.folder} is open already")
        session = self._session = StorageSession(self.folder)
        try:
            await session.run(lambda: self._claim(session, flow))
            await self._belong(session, flow)
            await self._look_around(session)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.end()

    def _claim(self, session: StorageSession, flow: str) -> None:
        session.locked(hold(self._files, self.folder, flow, user="live job"))

    async def _belong(self, session: StorageSession, flow: str) -> None:
        """Raise ``CheckpointError`` unless the folder is that of ``flow``."""
        path = self.folder / PLACE
        try:
            owner = flow_of(await self._files.load(path), what=str(path))
        except FileNotFoundError:
            content = place_bytes(flow, aflow=self._aflow)
            await session.run(lambda: stored(self._files, path, [content]))
        except OSError as exc:
            raise CheckpointError(f"cannot read {path}: {reason(exc)}") from exc
        except RestoreError as exc:
            raise CheckpointError(str(exc)) from exc
        else:
            if owner != flow:
                raise CheckpointError(
                    f"{self.folder} holds the checkpoints of flow {owner!r}, and this is {flow!r}: each flow needs a "
                    f"folder of its own"
                )

    async def _look_around(self, session: StorageSession) -> None:
        """List the files in the folder."""
        session.names.update(await session.run(lambda: self._names(PARTS)))
        for number in manifest_numbers(await session.run(lambda: self._names(""))):
            try:
                session.checkpoints[number] = await manifest_in(
                    self._files, self.folder / manifest_name(number)
                )
            except RestoreError:
                session.unreadable.add(number)

    def _names(self, subfolder: str) -> list[str]:
        folder = self.folder / subfolder
        try:
            return self._files.names(folder)
        except OSError as exc:
            raise CheckpointError(f"cannot list {folder}: {reason(exc)}") from exc

    def _opened(self) -> StorageSession:
        if self._session is None:
            raise CheckpointError(f"the storage in {self.folder} is not open: call open() first")
        return self._session

    # ------------------------------------------------------------------------------------------ reading

    async def latest(self) -> Restored | None:
        session = self._opened()
        numbers = [*session.checkpoints, *session.unreadable]
        return await newest_whole(numbers, self._source, session.run)

    async def latest_of(self, step: str, groups: KeyGroupRange) -> Restored | None:
        """As ``StepReader.latest_of``. If files are removed meanwhile, the newer checkpoint is read."""
        session = self._opened()
        while True:
            numbers = [*session.checkpoints, *session.unreadable]
            try:
                found = await newest_whole(
                    numbers, self._source, session.run, lambda one: of_step(one, step, groups)
                )
                if found is None or not found.passed_over:
                    return found
            except RestoreError:
                if not _has_newer(session, numbers):
                    raise
            else:
                if not _has_newer(session, numbers):
                    return found

    async def kept(self) -> list[int]:
        """Return the numbers of the completed checkpoints, ascending, including those that cannot be read.

        Savepoints are not included: they are never removed automatically.
        """
        session = self._opened()
        completed = [
            number
            for number, manifest in session.checkpoints.items()
            if manifest.kind is not CheckpointKind.SAVEPOINT
        ]
        return sorted([*completed, *session.unreadable])

    async def next_id(self) -> int:
        session = self._opened()
        names = {*session.names, *await session.run(lambda: self._names(PARTS))}
        names.update(await session.run(lambda: self._names("")))
        numbers = [number for name in names if (number := number_in(name)) is not None]
        return max([*numbers, *session.checkpoints], default=0) + 1

    # ------------------------------------------------------------------------------------------ writing

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        def write(path: Path) -> Written:
            return stored(self._files, path, self._source.encoded(steps, aflow=self._aflow))

        return await self._write_part(part_name(checkpoint, task, subtask), write)

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        def write(path: Path) -> Written:
            pieces = rewritten(self._source, step, chain, aflow=self._aflow)
            return stored(self._files, path, pieces)

        return await self._write_part(part_name(checkpoint, task, subtask, step), write)

    async def _write_part(self, name: str, write: Callable[[Path], Written]) -> FileRef:
        session = self._opened()
        chosen = session.begin_part(name)
        try:
            written = await session.run(lambda: write(self.folder / PARTS / chosen))
        finally:
            session.writing.discard(chosen)
        return FileRef(f"{PARTS}/{chosen}", written.size, written.checksum)

    async def complete(self, manifest: Manifest) -> None:
        session = self._opened()
        path = self.folder / manifest_name(manifest.id)
        manifest = replace(manifest, aflow=manifest.aflow or self._aflow, format=FORMAT)

        def write() -> None:
            with session.manifests_change:
                try:
                    for ref in manifest.files:
                        self._check_there(ref)
                    stored(self._files, path, [manifest_bytes(manifest)])
                finally:
                    # After a failure too: syncing the folder is last, and renamed files may be there.
                    if self._may_be_there(path):
                        session.checkpoints[manifest.id] = manifest

        await session.run(write)
        # A checkpoint subsumes the preceding ones; a savepoint does not.
        savepoint = manifest.kind is CheckpointKind.SAVEPOINT
        session.decided(
            lambda number: number == manifest.id or (number < manifest.id and not savepoint)
        )

    def _may_be_there(self, path: Path) -> bool:
        try:
            return self._files.exists(path)
        except OSError:
            return True

    def _check_there(self, ref: FileRef) -> None:
        path = self.folder / ref.path
        try:
            size = self._files.size(path)
        except OSError as exc:
            raise CheckpointError(f"{path}, a part of the checkpoint: {reason(exc)}") from exc
        if size != ref.size:
            raise CheckpointError(f"{path} has {size} bytes in place of {ref.size}")

    # ------------------------------------------------------------------------------------------ removing

    async def discard(self, checkpoint: int) -> None:
        """Remove the manifest of a checkpoint, which may be an aborted one; see ``CheckpointStorage``.

        Raises ``CheckpointError`` if it cannot be removed; then its parts are kept too.
        """
        session = self._opened()
        path = self.folder / manifest_name(checkpoint)

        def remove() -> None:
            with session.manifests_change:
                try:
                    self._files.remove(path)
                    # Parts are removed only after this, so that no power failure restores a manifest without parts.
                    self._files.sync_folder(self.folder)
                except FileNotFoundError:
                    pass  # it was removed before
                except OSError as exc:
                    raise CheckpointError(f"cannot remove {path}: {reason(exc)}") from exc

        await session.run(remove)
        session.checkpoints.pop(checkpoint, None)
        session.unreadable.discard(checkpoint)
        session.decided(lambda number: number == checkpoint)

    async def sweep(self, keep: Collection[FileRef]) -> None:
        session = self._opened()
        # A part that is complete before its turn may be needed as well: ``keep`` is of this moment.
        kept = {*(ref.path for ref in keep), *(f"{PARTS}/{name}" for name in session.writing)}

        def clear() -> None:
            with session.manifests_change:
                for manifest in list(session.checkpoints.values()):
                    kept.update(ref.path for ref in manifest.files)
                must_stay = session.must_stay()
                self._remove(PARTS, lambda name: f"{PARTS}/{name}" in kept or must_stay(name))
                # While manifests may not change, a temporary one has no writer.
                self._remove("", lambda name: not name.endswith(TEMPORARY))

        await session.run(clear)

    def _remove(self, subfolder: str, stays: Callable[[str], bool]) -> None:
        """Remove our files that need not be kept. A later sweep removes those that cannot be removed now."""
        folder = self.folder / subfolder
        try:
            names = self._files.names(folder)
        except OSError:
            return
        for name in names:
            if number_in(name) is not None and not stays(name):
                with suppress(OSError):
                    self._files.remove(folder / name)

    # ------------------------------------------------------------------------------------------ savepoints

    def check_savepoint(self, path: str) -> None:
        """Raise ``CheckpointError`` if ``export`` to ``path`` must fail, as far as existing names tell.

        Blocks for one or two calls of the file system.
        """
        check_new(self._files, Path(path))

    async def export(self, manifest: Manifest, path: str) -> Manifest:
        session = self._opened()
        manifest = replace(manifest, aflow=manifest.aflow or self._aflow, format=FORMAT)
        draft = Draft(self._files, Path.cwd() / path)
        return await export(self._source, manifest, draft, session.run)


def _has_newer(session: StorageSession, numbers: Collection[int]) -> bool:
    """Return True if a checkpoint was completed that is newer than all of ``numbers``."""
    return max(session.checkpoints, default=0) > max(numbers, default=0)
