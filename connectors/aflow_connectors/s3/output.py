"""Output of a writer into objects: exactly once, with a hidden object for each checkpoint.

Theory. ``prepare`` uploads the records since the preceding checkpoint to a hidden key, below ``.pending/``, which
readers ignore. ``commit`` copies the object to its name, in the server and in one step, and deletes the hidden one. A
repeated commit copies the same content again, or finds it there. The name has the owner (the lineage of runs), the
subtask and the number of the checkpoint, so no two complete checkpoints have one name. A job that was replaced and runs
on may prepare the number that its successor prepares. So the hidden key also has a random token, which the committable
names: neither job overwrites the hidden object of the other. After a restore, hidden objects and objects of later
checkpoints that the restored one does not name are deleted: their records will be written again. ``restores`` keeps
the numbers of such restores, so that a checkpoint whose output was deleted is not restored.

Completing a multipart upload at the commit would avoid the copy; obstore has no interface for uploads that another
process completes. Manifests of data objects, as of table formats, would need readers that know them.

All methods block: they are for worker threads.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, cast

from aflow.checkpoints import BucketError, NoObject
from aflow.connect import Committable, SinkError
from aflow.errors import RestoreError
from aflow_connectors.commit_errors import foreign_committable
from aflow_connectors.files.compression import compressed
from aflow_connectors.files.output.names import Parts
from aflow_connectors.files.output.output_file import SinkOutput
from aflow_connectors.owners import OWNER, is_owner
from aflow_connectors.s3.bucket import Bucket
from aflow_connectors.s3.restores import RestoreLog

_PENDING: Final = ".pending"
#: Regular expression for the token of a hidden key.
_TOKEN: Final = r"[0-9a-f]{16}"
_BLOCK: Final = 1 << 20
#: Bytes of the largest object that S3 copies in one request.
_MOST: Final = 5 << 30


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """Names of the objects of a sink in its folder."""

    parts: Parts

    def part(self, owner: str, subtask: int) -> str:
        """Return the name without checkpoints."""
        return f"{self.parts.stem}-{owner}-{subtask:05d}{self.parts.ending}"

    def piece(self, owner: str, subtask: int, checkpoint: int) -> str:
        """Return the name of the output for a checkpoint."""
        return f"{self.parts.stem}-{owner}-{subtask:05d}-{checkpoint:06d}{self.parts.ending}"

    def checkpoint(self, name: str, owner: str = OWNER) -> int | None:
        """Return the checkpoint of an object of ``owner``, 0 if it has none; None for other names."""
        stem, ending = re.escape(self.parts.stem), re.escape(self.parts.ending)
        found = re.fullmatch(rf"{stem}-{owner}-\d{{5}}(?:-(\d{{6,}}))?{ending}", name)
        return None if found is None else int(found[1] or 0)


@dataclass(frozen=True, slots=True)
class PreparedObject:
    """Output prepared by a writer for a checkpoint; ``name`` is empty if it wrote no records."""

    checkpoint: int
    name: str
    size: int
    owner: str
    folder: str
    """The URL."""
    token: str
    """Makes the hidden key unique."""
    run: int = 0
    """The number of the run; see ``restores``."""

    @property
    def hidden(self) -> str:
        """Return the key of the object until it is committed."""
        return f"{_PENDING}/{self.owner}/{self.token}/{self.name}"

    def stored(self) -> Committable:
        return {
            "checkpoint": self.checkpoint,
            "object": self.name,
            "size": self.size,
            "owner": self.owner,
            "folder": self.folder,
            "token": self.token,
            "run": self.run,
        }

    @classmethod
    def of(cls, committable: Committable, folder: ObjectFolder) -> PreparedObject:
        """Return the decoded committable. Raises ``RestoreError`` unless a sink of this folder prepared it."""
        match cast("dict[str, object]", committable):
            case {
                "checkpoint": int(number),
                "object": str(name),
                "size": int(size),
                "owner": str(owner),
                "folder": str(place),
                "token": str(token),
            } if is_owner(owner) and re.fullmatch(_TOKEN, token):
                run = cast("dict[str, object]", committable).get("run", 0)
                if place != folder.url:
                    raise RestoreError(
                        f"sink {folder.sink!r} cannot commit its output in {place}: it writes to {folder.url} now; "
                        f"restore with the former URL"
                    )
                named = not name or folder.names.checkpoint(name, owner) == number
                if named and isinstance(run, int) and run >= 0:
                    return cls(number, name, size, owner, place, token, run)
            case _:
                pass
        raise foreign_committable(folder.sink, committable)


class ObjectFolder:
    """The objects of a sink below a URL."""

    def __init__(self, bucket: Bucket, names: ObjectNames, *, sink: str) -> None:
        self.bucket: Final = bucket
        self.names: Final = names
        self.sink: Final = sink
        self.url: Final = bucket.url

    @contextmanager
    def errors(self) -> Generator[None]:
        """Convert a ``BucketError`` into a ``SinkError``."""
        try:
            yield
        except BucketError as exc:
            raise SinkError(f"sink {self.sink!r}: cannot write to {self.url}: {exc}") from exc

    def check(self) -> None:
        """Raise ``SinkError`` if the folder cannot be listed."""
        with self.errors():
            self.bucket.objects(_PENDING)

    def begin(self, *, overwrite: bool) -> None:
        """Start fresh. Raises ``SinkError`` if there is output of earlier runs, unless it may be removed."""
        with self.errors():
            former = [key for key in self._shown() if self.names.checkpoint(key) is not None]
            if former and not overwrite:
                raise SinkError(
                    f"sink {self.sink!r}: {self.bucket.shown(former[0])} already exists: remove it, write elsewhere, "
                    f"or pass overwrite=True"
                )
            if overwrite:
                # Not without being asked: another checkpoint may name them.
                hidden = [
                    one.key for one in self.bucket.objects(_PENDING) if self._is_ours(one.key)
                ]
                self.bucket.delete([*former, *hidden])

    def _is_ours(self, key: str) -> bool:
        return self.names.checkpoint(key.rpartition("/")[2]) is not None

    def recover(self, prepared: Sequence[PreparedObject]) -> int:
        """Commit the output of a restored checkpoint, remove later output of its owner, and return the new run.

        Raises ``SinkError``, and ``RestoreError`` if output of the checkpoint was removed.
        """
        newest = max(prepared, key=lambda one: one.checkpoint)
        restored = newest.checkpoint
        owners = {one.owner for one in prepared}
        with self.errors():
            logs = {owner: RestoreLog.read(self.bucket, owner) for owner in owners}
        for log in logs.values():
            self._check_not_withdrawn(newest, log)
        for one in prepared:
            self.commit(one)
        kept = {one.name for one in prepared}
        begun = 0
        with self.errors():
            for owner, log in logs.items():
                # Before the first object is deleted: a crash between them must not hide it.
                log, run = log.restored(restored, run=newest.run)
                log.write(self.bucket, owner)
                begun = max(begun, run)
            for owner in owners:
                later = [
                    key
                    for key in self._shown()
                    if (self.names.checkpoint(key, owner) or 0) > restored and key not in kept
                ]
                pending = [one.key for one in self.bucket.objects(f"{_PENDING}/{owner}")]
                if later or pending:
                    self.bucket.delete([*later, *pending])
        return begun

    def _check_not_withdrawn(self, newest: PreparedObject, log: RestoreLog) -> None:
        restored = newest.checkpoint
        down_to = log.withdrawn_down_to(restored, run=newest.run)
        if down_to is not None:
            raise RestoreError(
                f"sink {self.sink!r}: checkpoint {restored} cannot be restored: a restore of checkpoint {down_to} has "
                f"removed the output after it from {self.url}. Continue from a checkpoint of the job that was restored "
                f"then, or from checkpoint {down_to} or an older one"
            )

    def _shown(self) -> list[str]:
        return [one.key for one in self.bucket.objects("") if "/" not in one.key]

    def prepare(self, prepared: PreparedObject, file: IO[bytes]) -> None:
        """Upload ``file``, hidden."""
        with self.errors():
            self.bucket.write(prepared.hidden, _blocks(file))

    def publish(self, name: str, file: IO[bytes]) -> None:
        """Upload ``file`` under its name."""
        with self.errors():
            self.bucket.write(name, _blocks(file))

    def commit(self, prepared: PreparedObject) -> None:
        """Publish an object, unless that was done. Raises ``SinkError``, and ``RestoreError`` for a lost object."""
        if not prepared.name:
            return
        with self.errors():
            try:
                self.bucket.copy(prepared.hidden, prepared.name)
            except NoObject:
                self._refuse_lost(prepared)
                return
            self.bucket.delete([prepared.hidden])

    def _refuse_lost(self, prepared: PreparedObject) -> None:
        try:
            size = self.bucket.head(prepared.name).size
        except NoObject:
            size = -1
        if size != prepared.size:
            raise RestoreError(
                f"sink {self.sink!r}: {self.bucket.shown(prepared.name)}, output of checkpoint {prepared.checkpoint}, "
                f"is neither pending nor there as it was written: it was removed or replaced"
            )


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(_BLOCK):
        yield block


class ObjectOutput(SinkOutput):
    """Output of one writer. It is spooled to a nameless temporary file of the local disk, and then uploaded."""

    def __init__(self, folder: ObjectFolder, *, owner: str, subtask: int) -> None:
        super().__init__(Path(folder.url), sink=folder.sink, shown=folder.url)
        self._folder = folder
        self._owner = owner
        self._subtask = subtask
        self._ending = Path(folder.names.parts.ending).suffix
        self._raw: IO[bytes] | None = None
        self._file: IO[bytes] | None = None
        self._closed = False

    @property
    def file(self) -> IO[bytes]:
        """Return the file to write into, created if there is none. Raises ``SinkError`` if the writer is closed."""
        if self._closed:
            raise self.error(f"{self.shown} is closed, nothing can be added to it")
        if self._file is None:
            with self.errors():
                self._raw = cast("IO[bytes]", TemporaryFile())  # noqa: SIM115 # closed by ``_ended``'s callers
                self._file = compressed(self._raw, self._ending)
        return self._file

    def open(self) -> None:
        self._folder.check()

    def _ended(self) -> IO[bytes] | None:
        """Return the complete file, to be closed; None if nothing was written."""
        raw, file, self._raw, self._file = self._raw, self._file, None, None
        if file is not None and file is not raw:
            with self.errors():
                file.close()
        return raw

    def discard(self) -> None:
        """Remove data that is not prepared. Hidden objects are kept: their checkpoint may be complete."""
        self._closed = True
        raw = self._ended()
        if raw is not None:
            raw.close()


class ObjectPieces(ObjectOutput):
    """Output with an object for each checkpoint."""

    in_pieces = True

    def __init__(self, folder: ObjectFolder, *, owner: str, subtask: int, run: int = 0) -> None:
        super().__init__(folder, owner=owner, subtask=subtask)
        self._run = run
        #: Objects that wait for their commit.
        self._pending: set[str] = set()

    def prepare(self, checkpoint: int) -> Committable:
        raw = self._ended()
        folder, token = self._folder, secrets.token_hex(8)
        prepared = PreparedObject(checkpoint, "", 0, self._owner, folder.url, token, self._run)
        if raw is not None:
            with raw:
                size = raw.seek(0, 2)
                if size > _MOST:
                    raise self.error(
                        f"the output for checkpoint {checkpoint} has more than 5 GiB, which no store copies in one "
                        f"request: take checkpoints more often"
                    )
                name = folder.names.piece(self._owner, self._subtask, checkpoint)
                prepared = replace(prepared, name=name, size=size)
                folder.prepare(prepared, raw)
            self._pending.add(name)
        return prepared.stored()

    def commit(self, committable: Committable) -> None:
        prepared = PreparedObject.of(committable, self._folder)
        self._folder.commit(prepared)
        self._pending.discard(prepared.name)

    def finish(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._raw is not None or self._pending:
            raise self.error(
                f"the input of {self.shown} has ended, but no checkpoint covers the last records"
            )


class WholeObject(ObjectOutput):
    """Output of a job without checkpoints: one object, which appears at the end."""

    in_pieces = False

    def __init__(
        self, folder: ObjectFolder, *, owner: str, subtask: int, on_finished: Callable[[], None]
    ) -> None:
        """``on_finished`` is called, in a worker thread, when the object has appeared."""
        super().__init__(folder, owner=owner, subtask=subtask)
        self._on_finished = on_finished

    def prepare(self, checkpoint: int) -> Committable:
        raise self.without_checkpoints()

    def commit(self, committable: Committable) -> None:
        raise self.without_checkpoints()

    def finish(self) -> None:
        if self._closed:
            return
        _ = self.file  # an object without records, too
        raw = self._ended()
        self._closed = True
        if raw is not None:
            with raw:
                self._folder.publish(self._folder.names.part(self._owner, self._subtask), raw)
            self._on_finished()
