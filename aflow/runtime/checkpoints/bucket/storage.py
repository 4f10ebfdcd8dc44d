"""Checkpoints in a bucket.

::

    state/
      register.json                                   the holder, its epoch, and the complete checkpoints
      manifests/000003/checkpoint-000012.json         the manifest of checkpoint 12, written in epoch 3
      parts/000003/000012-sums-1f0c2a9b-0.part        stored by subtask 0 of task "sums" for checkpoint 12

A savepoint has the layout of one in a folder, and a ``claim.json``. Parts and manifests are as in a folder.

A checkpoint is complete when the register lists it; read ``register`` first. An object is written by one request or one
multipart upload, so it is there entirely or not at all. Requests are made in worker threads; a call that is cancelled
first completes its work.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final

import anyio

from aflow.errors import CheckpointError, FlowDefinitionError, RestoreError, StorageTaken, shown
from aflow.model.distribution import VERSION
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import KeyGroupRange
from aflow.runtime.checkpoints.bucket.objects import BucketError, CheckpointBucket, Version, written
from aflow.runtime.checkpoints.bucket.register import (
    RegisterClaim,
    RegisterState,
    check_conditions,
    read_register,
    try_claim,
)
from aflow.runtime.checkpoints.bucket.savepoints import (
    MANIFESTS,
    BucketDraft,
    BucketSource,
    manifest_key,
    manifest_keys,
    read_place,
)
from aflow.runtime.checkpoints.directory.files import DISK, Written
from aflow.runtime.checkpoints.directory.names import PARTS, number_in, part_name
from aflow.runtime.checkpoints.directory.reader import newest_whole, of_step, read_checkpoint
from aflow.runtime.checkpoints.directory.savepoints import Draft, export, rewritten
from aflow.runtime.checkpoints.directory.session import StorageSession
from aflow.runtime.checkpoints.directory.threads import in_a_task
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.manifest import FORMAT, FileRef, Link, Manifest, manifest_bytes
from aflow.state.snapshot import OperatorSnapshot

LEASE: Final = timedelta(seconds=15)
#: Seconds between two looks at the register of another job.
_LONGEST_PAUSE: Final = 0.5
#: Epoch and name of a part or manifest.
_KEY: Final = re.compile(rf"(?:{PARTS}|{MANIFESTS})/(\d{{6,18}})/([^/]+)")


class BucketStorage:
    """Stores the checkpoints of one flow in a bucket; see ``CheckpointStorage``.

    The store must support conditional writes, which ``open`` checks. A second job is refused while the first one lives.
    After a crash a job in the same PID namespace (of one host or container, on Linux) continues at once, and any other
    one when the claim was not renewed for ``lease``, the longer one of both jobs. A job that was replaced while it was
    unreachable can complete no checkpoint: it fails with ``StorageTaken``. Savepoints are written to, and read from,
    the same bucket or a folder.
    """

    def __init__(self, bucket: CheckpointBucket, *, lease: timedelta = LEASE) -> None:
        """Raises ``FlowDefinitionError`` for a ``lease`` that is not positive."""
        if not isinstance(lease, timedelta) or lease <= timedelta(0):
            raise FlowDefinitionError(
                f"{type(self).__name__}: lease= must be a positive timedelta, not {shown(lease)}"
            )
        self._bucket: Final = bucket
        self._lease: Final = lease
        #: Seconds between two renewals of the claim.
        self._renewal = lease.total_seconds() / 3
        self._source: Final = BucketSource(self._bucket)
        self._session: StorageSession | None = None
        self._claim: RegisterClaim | None = None
        self._heartbeat: _Heartbeat | None = None

    # ------------------------------------------------------------------------------------------ the place

    async def open(self, flow: str) -> None:
        if self._session is not None:
            raise CheckpointError(f"the storage in {self._bucket.url} is open already")
        session = self._session = StorageSession(self._bucket.url)
        try:
            await session.run(lambda: check_conditions(self._bucket))
            claim = await self._claimed(session, flow)
            self._heartbeat = _Heartbeat(claim, self._renewal, asyncio.get_running_loop())
            await self._look_around(session, claim)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def close(self) -> None:
        session, self._session = self._session, None
        claim, self._claim = self._claim, None
        heartbeat, self._heartbeat = self._heartbeat, None
        if session is None:
            return
        try:
            await session.end()
        finally:
            release = partial(_release, claim, heartbeat)
            await in_a_task(partial(anyio.to_thread.run_sync, release), shielded=True)

    async def _claimed(self, session: StorageSession, flow: str) -> RegisterClaim:
        """Claim the storage. Raises ``CheckpointError`` if another live job holds it, or it belongs to another flow."""
        seen = await session.run(self._register)
        since = anyio.current_time()
        while True:
            if seen is not None and seen[0].flow != flow:
                raise CheckpointError(
                    f"{self._bucket.url} holds the checkpoints of flow {seen[0].flow!r}, and this is {flow!r}: each "
                    f"flow needs a prefix of its own"
                )
            holder = None if seen is None else seen[0].holder
            lease = max(self._lease.total_seconds(), 0.0 if seen is None else seen[0].lease)
            waited = anyio.current_time() - since
            if holder is None or holder.is_dead() or waited >= lease:
                claim = await session.run(partial(self._try_claim, flow, seen))
                if claim is not None:
                    return claim
            else:
                await anyio.sleep(min(lease / 10, _LONGEST_PAUSE))
            now = await session.run(self._register)
            if now != seen:
                changed = now is not None and now[0].holder is not None
                if changed and holder is not None and not holder.is_dead():
                    assert now is not None
                    raise CheckpointError(
                        f"{self._bucket.url} is in use by another live job ({now[0].holder}): stop that one first, or "
                        f"give this one a prefix of its own"
                    )
                seen, since = now, anyio.current_time()

    def _try_claim(
        self, flow: str, seen: tuple[RegisterState, Version] | None
    ) -> RegisterClaim | None:
        """Claim the storage in a thread. The claim is kept here, so that it is released if ``open`` was cancelled."""
        claim = self._claim = try_claim(self._bucket, flow, seen, self._lease.total_seconds())
        return claim

    def _register(self) -> tuple[RegisterState, Version] | None:
        try:
            return read_register(self._bucket)
        except BucketError as exc:
            raise CheckpointError(f"cannot read {self._bucket.url}: {exc}") from exc

    async def _look_around(self, session: StorageSession, claim: RegisterClaim) -> None:
        """Read the manifests of the complete checkpoints. Raises ``CheckpointError`` if a request fails."""
        self._source.manifests = manifest_keys(claim.state)
        for number in self._source.manifests:
            try:
                session.checkpoints[number] = await self._source.manifest(number)
            except RestoreError:
                session.unreadable.add(number)

    def _opened(self) -> tuple[StorageSession, RegisterClaim]:
        if self._session is None or self._claim is None:
            raise CheckpointError(
                f"the storage in {self._bucket.url} is not open: call open() first"
            )
        return self._session, self._claim

    async def watch_claim(self) -> None:
        """See ``ClaimWatcher``. The heartbeat notices it, within a third of ``lease`` if the bucket is reachable."""
        self._opened()
        assert self._heartbeat is not None
        await self._heartbeat.watch()

    # ------------------------------------------------------------------------------------------ reading

    async def latest(self) -> Restored | None:
        session, _ = self._opened()
        numbers = [*session.checkpoints, *session.unreadable]
        return await newest_whole(numbers, self._source, session.run)

    async def latest_of(self, step: str, groups: KeyGroupRange) -> Restored | None:
        """As ``StepReader.latest_of``. If objects are removed meanwhile, the newer checkpoint is read."""
        session, _ = self._opened()
        while True:
            numbers = [*session.checkpoints, *session.unreadable]
            newer = False
            try:
                found = await newest_whole(
                    numbers, self._source, session.run, lambda one: of_step(one, step, groups)
                )
            except RestoreError:
                newer = max(session.checkpoints, default=0) > max(numbers, default=0)
                if not newer:
                    raise
            else:
                newer = max(session.checkpoints, default=0) > max(numbers, default=0)
                if found is None or not found.passed_over or not newer:
                    return found

    async def kept(self) -> list[int]:
        """Return the numbers of the completed checkpoints, ascending, including those that cannot be read."""
        session, _ = self._opened()
        return sorted([*session.checkpoints, *session.unreadable])

    async def next_id(self) -> int:
        session, _ = self._opened()
        keys = await session.run(self._keys)
        numbers = [number for _, _, number in map(_parsed, keys) if number is not None]
        started = [number for name in session.names if (number := number_in(name)) is not None]
        return max([*numbers, *started, *session.checkpoints, *session.unreadable], default=0) + 1

    async def read_savepoint(self, path: str) -> Restored:
        """Return the checkpoint or savepoint at ``path``: a URL in the same bucket, or a folder.

        Raises ``RestoreError``.
        """
        bucket = self._bucket.same_root(path)
        if bucket is None:
            return await read_checkpoint(path)
        return await read_place(bucket)

    # ------------------------------------------------------------------------------------------ writing

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        def write(key: str) -> Written:
            return self._written(key, lambda: self._source.encoded(steps, aflow=VERSION))

        return await self._write_part(part_name(checkpoint, task, subtask), write)

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        def write(key: str) -> Written:
            return self._written(key, lambda: rewritten(self._source, step, chain, aflow=VERSION))

        return await self._write_part(part_name(checkpoint, task, subtask, step), write)

    async def _write_part(self, name: str, write: Callable[[str], Written]) -> FileRef:
        session, claim = self._opened()
        chosen = session.begin_part(name)
        key = _part_key(claim.epoch, chosen)
        try:
            written = await session.run(lambda: write(key))
        finally:
            session.writing.discard(chosen)
        return FileRef(key, written.size, written.checksum)

    def _written(self, key: str, pieces: Callable[[], Iterable[bytes]]) -> Written:
        try:
            return written(self._bucket, key, pieces())
        except BucketError as exc:
            raise CheckpointError(f"cannot write {self._bucket.shown(key)}: {exc}") from exc

    async def complete(self, manifest: Manifest) -> None:
        session, claim = self._opened()
        manifest = replace(manifest, aflow=manifest.aflow or VERSION, format=FORMAT)
        number, epoch = manifest.id, claim.epoch
        key = manifest_key(number, epoch)

        def listed(state: RegisterState) -> RegisterState:
            return replace(state, checkpoints={**state.checkpoints, str(number): epoch})

        def write() -> None:
            with session.manifests_change:
                for ref in manifest.files:
                    self._check_there(ref)
                self._written(key, lambda: [manifest_bytes(manifest)])
                try:
                    self._source.manifests = {**self._source.manifests, number: key}
                    claim.change(listed)
                finally:
                    # After a failure too: the change may have taken effect.
                    session.checkpoints[number] = manifest

        await session.run(write)
        # A checkpoint subsumes the preceding ones; a savepoint does not.
        savepoint = manifest.kind is CheckpointKind.SAVEPOINT
        session.decided(lambda one: one == number or (one < number and not savepoint))

    def _check_there(self, ref: FileRef) -> None:
        where = self._bucket.shown(ref.path)
        try:
            size = self._bucket.head(ref.path).size
        except BucketError as exc:
            raise CheckpointError(f"{where}, a part of the checkpoint: {exc}") from exc
        if size != ref.size:
            raise CheckpointError(f"{where} has {size} bytes in place of {ref.size}")

    # ------------------------------------------------------------------------------------------ removing

    async def discard(self, checkpoint: int) -> None:
        """Remove a checkpoint, which may be an aborted one, from the register; see ``CheckpointStorage``.

        Raises ``CheckpointError`` if it cannot be removed; then its parts are kept too.
        """
        session, claim = self._opened()

        def unlisted(state: RegisterState) -> RegisterState:
            rest = {
                one: epoch for one, epoch in state.checkpoints.items() if int(one) != checkpoint
            }
            return replace(state, checkpoints=rest)

        def remove() -> None:
            with session.manifests_change:
                known = checkpoint in session.checkpoints or checkpoint in session.unreadable
                if known or str(checkpoint) in claim.state.checkpoints:
                    claim.change(unlisted)

        await session.run(remove)
        session.checkpoints.pop(checkpoint, None)
        session.unreadable.discard(checkpoint)
        session.decided(lambda number: number == checkpoint)

    async def sweep(self, keep: Collection[FileRef]) -> None:
        session, claim = self._opened()
        # A part that is complete before its turn may be needed as well: ``keep`` is of this moment.
        kept = {ref.path for ref in keep}
        kept.update(_part_key(claim.epoch, name) for name in session.writing)

        def clear() -> None:
            with session.manifests_change:
                for manifest in list(session.checkpoints.values()):
                    kept.update(ref.path for ref in manifest.files)
                manifests = self._source.manifests
                kept.update(manifest_keys(claim.state).values())
                kept.update(manifests[number] for number in session.checkpoints)
                with suppress(CheckpointError, BucketError):  # a later sweep removes the rest
                    removed = [key for key in self._keys() if not _stays(key, kept, session, claim)]
                    self._bucket.delete(removed)

        await session.run(clear)

    def _keys(self) -> list[str]:
        try:
            return [
                one.key for folder in (PARTS, MANIFESTS) for one in self._bucket.objects(folder)
            ]
        except BucketError as exc:
            raise CheckpointError(f"cannot list {self._bucket.url}: {exc}") from exc

    # ------------------------------------------------------------------------------------------ savepoints

    async def export(self, manifest: Manifest, path: str) -> Manifest:
        """Write a savepoint to a new URL in the same bucket, or to a new folder; see ``CheckpointStorage``."""
        session, _ = self._opened()
        manifest = replace(manifest, aflow=manifest.aflow or VERSION, format=FORMAT)
        bucket = self._bucket.same_root(path)
        if bucket is not None:
            return await export(self._source, manifest, BucketDraft(bucket), session.run)
        if "://" in path:
            raise CheckpointError(
                f"cannot write {path}: a savepoint is written to the bucket of the checkpoints, {self._bucket.url}, or "
                f"to a folder"
            )
        draft = Draft(DISK, Path.cwd() / path)
        return await export(self._source, manifest, draft, session.run)


def _part_key(epoch: int, name: str) -> str:
    return f"{PARTS}/{epoch:06d}/{name}"


def _stays(key: str, kept: Collection[str], session: StorageSession, claim: RegisterClaim) -> bool:
    """Return True unless an object is ours to remove and not needed.

    Those of later epochs are not: a holder that was replaced must not remove the parts of its successor. Those that the
    successor continues from are in ``kept``, since its register was ours.
    """
    epoch, name, number = _parsed(key)
    if key in kept or number is None or epoch > claim.epoch:
        return True
    if not key.startswith(f"{PARTS}/"):
        return False
    # The parts that an unreadable manifest needs are unknown, except that they are not newer than the manifest.
    if number <= max(session.unreadable, default=-1):
        return True
    return epoch == claim.epoch and (name in session.undecided or name in session.writing)


def _parsed(key: str) -> tuple[int, str, int | None]:
    """Return the epoch and the name of a part or manifest, and its checkpoint; None for other objects."""
    found = _KEY.fullmatch(key)
    return (0, key, None) if found is None else (int(found[1]), found[2], number_in(found[2]))


class _Heartbeat:
    """Renews a claim in a thread of its own, so that it is renewed while the event loop is busy, too."""

    def __init__(self, claim: RegisterClaim, pause: float, loop: asyncio.AbstractEventLoop) -> None:
        """``loop`` is that of the job, and runs at this moment."""
        self._claim: Final = claim
        self._pause: Final = pause
        self._loop: Final = loop
        #: Set by the loop when ``_failure`` is.
        self._lost: Final = asyncio.Event()
        self._failure: StorageTaken | None = None
        self._over: Final = Event()
        self._thread: Final = Thread(target=self._run, name="aflow-claim", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            try:
                self._claim.renew()
            except StorageTaken as exc:
                self._failure = exc
                with suppress(RuntimeError):  # the loop is closed: no job waits
                    self._loop.call_soon_threadsafe(self._lost.set)
                return
            except CheckpointError:
                continue  # the next one may succeed; other jobs wait for the lease

    async def watch(self) -> None:
        """Wait until the claim is lost; then raise ``StorageTaken``."""
        await self._lost.wait()
        assert self._failure is not None
        raise self._failure

    def stop(self) -> None:
        """Block until the thread has ended."""
        self._over.set()
        self._thread.join()


def _release(claim: RegisterClaim | None, heartbeat: _Heartbeat | None) -> None:
    if heartbeat is not None:
        heartbeat.stop()
    if claim is not None:
        # Otherwise the next job waits for the lease, or for the end of this process.
        with suppress(CheckpointError):
            claim.release()
