"""Checkpoints and savepoints in a bucket, as readers see them, and the writing of savepoints."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
from anyio import CapacityLimiter

from aflow.errors import CheckpointError, RestoreError
from aflow.runtime.checkpoints.bucket.objects import (
    BucketError,
    CheckpointBucket,
    NoObject,
    Refused,
    written,
)
from aflow.runtime.checkpoints.bucket.register import RegisterState, read_register
from aflow.runtime.checkpoints.directory.files import SMALL, Written
from aflow.runtime.checkpoints.directory.names import manifest_name, manifest_numbers
from aflow.runtime.checkpoints.directory.reader import PartSource, newest_whole
from aflow.runtime.checkpoints.directory.session import THREADS
from aflow.runtime.checkpoints.directory.threads import to_its_end
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.manifest import FileRef, Manifest, manifest_bytes, manifest_of, wrong_size

MANIFESTS: Final = "manifests"
#: Claims the location of a savepoint.
_CLAIM: Final = "claim.json"


def manifest_key(checkpoint: int, epoch: int) -> str:
    """Return the key of the manifest of a checkpoint that was written in ``epoch``."""
    return f"{MANIFESTS}/{epoch:06d}/{manifest_name(checkpoint)}"


def manifest_keys(state: RegisterState) -> dict[int, str]:
    """Return the keys of the manifests that a register lists, by checkpoint."""
    return {number: manifest_key(number, epoch) for number, epoch in state.epochs.items()}


class BucketSource(PartSource):
    """Parts and manifests below the URL of a bucket.

    An object that is missing, or has another size, is a ``RestoreError``: the checkpoint is damaged. A request that
    fails otherwise is a ``CheckpointError``: it tells nothing about the checkpoint, which must not be skipped for it.
    """

    def __init__(self, bucket: CheckpointBucket) -> None:
        super().__init__()
        self._bucket: Final = bucket
        #: Keys of the manifests, by checkpoint. Replaced, not changed: threads read it.
        self.manifests: dict[int, str] = {}
        self._limiter: Final = CapacityLimiter(1)

    def shown(self, path: str) -> str:
        return self._bucket.shown(path)

    async def manifest(self, checkpoint: int) -> Manifest:
        key = self.manifests.get(checkpoint, manifest_name(checkpoint))
        return await to_its_end(lambda: self._manifest(key), self._limiter)

    def _manifest(self, key: str) -> Manifest:
        where = self.shown(key)
        try:
            try:
                data, _ = self._bucket.read(key, limit=SMALL)
            except NoObject:
                raise
            except BucketError as exc:
                if self._bucket.head(key).size > SMALL:
                    raise RestoreError(f"{where} cannot be read: {exc}") from exc
                raise
        except NoObject as exc:
            raise RestoreError(f"{where} is missing") from exc
        except BucketError as exc:
            raise CheckpointError(f"{where} cannot be read: {exc}") from exc
        return manifest_of(data, what=where)

    def read(self, ref: FileRef) -> bytes:
        where = self.shown(ref.path)
        try:
            size = self._bucket.head(ref.path).size
            if size != ref.size:
                raise RestoreError(f"{where} {wrong_size(ref, size)}")
            return self._bucket.read(ref.path)[0]
        except NoObject as exc:
            raise RestoreError(f"{where} is missing") from exc
        except BucketError as exc:
            raise CheckpointError(f"{where} cannot be read: {exc}") from exc


async def read_place(bucket: CheckpointBucket) -> Restored:
    """Return the newest checkpoint, or the savepoint, below a URL, without a claim: also that of a running job.

    Raises ``RestoreError`` if there is none, or none that is whole.
    """
    limiter = CapacityLimiter(THREADS)
    source = BucketSource(bucket)
    try:
        source.manifests = await to_its_end(lambda: _listed(bucket), limiter)
        found = await newest_whole(source.manifests, source, lambda work: to_its_end(work, limiter))
    except (BucketError, CheckpointError) as exc:
        raise RestoreError(f"{bucket.url} cannot be read: {exc}") from exc
    if found is None:
        raise RestoreError(
            f"there is no complete checkpoint at {bucket.url}: a storage there has none yet, or the URL names none"
        )
    return found


def _listed(bucket: CheckpointBucket) -> dict[int, str]:
    """Return the keys of the manifests below a URL, by checkpoint; blocks."""
    register = read_register(bucket)
    if register is not None:
        return manifest_keys(register[0])
    numbers = manifest_numbers(one.key for one in bucket.objects(""))
    return {number: manifest_name(number) for number in numbers}


class BucketDraft:
    """A savepoint that is being written to a bucket. All methods block.

    The location is claimed by an object that must not exist before, and the manifest is the last object.
    """

    def __init__(self, bucket: CheckpointBucket) -> None:
        self._bucket: Final = bucket
        self._owner: Final = msgspec.json.encode(
            {"pid": os.getpid(), "host": socket.gethostname(), "token": secrets.token_hex(8)}
        )
        #: True while what is there is ours to remove.
        self._begun = False

    def begin(self) -> None:
        try:
            if self._bucket.objects(""):
                raise self._occupied()
            self._begun = True  # also if the answer is lost; then another's objects are not touched, see ``remove``
            self._bucket.create(_CLAIM, self._owner)
        except Refused as exc:
            if not self._is_ours():
                raise self._occupied() from exc
        except BucketError as exc:
            raise CheckpointError(f"cannot write {self._bucket.url}: {exc}") from exc

    def store(self, name: str, pieces: Iterable[bytes]) -> Written:
        try:
            return written(self._bucket, name, pieces)
        except BucketError as exc:
            raise CheckpointError(f"cannot write {self._bucket.shown(name)}: {exc}") from exc

    def finish(self, manifest: Manifest) -> None:
        self.store(manifest_name(manifest.id), [manifest_bytes(manifest)])

    def remove(self) -> None:
        if not self._begun:
            return
        with suppress(BucketError):
            if self._is_ours():
                keys = [one.key for one in self._bucket.objects("") if one.key != _CLAIM]
                # The manifest first, and the claim last: no reader and no other writer meets a part of it.
                self._bucket.delete([key for key in keys if manifest_numbers([key])])
                self._bucket.delete([key for key in keys if not manifest_numbers([key])])
                self._bucket.delete([_CLAIM])

    def _is_ours(self) -> bool:
        try:
            return self._bucket.read(_CLAIM)[0] == self._owner
        except BucketError:
            return False

    def _occupied(self) -> CheckpointError:
        return CheckpointError(
            f"there is something at {self._bucket.url} already: a savepoint needs a name of its own"
        )
