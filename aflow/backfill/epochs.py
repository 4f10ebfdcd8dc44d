"""State of a stream of micro-batches, by epoch: a folder whose manifests are those of checkpoints.

Theory. An *epoch* is the processing of one micro-batch. Its tasks begin with the state of the preceding epoch and write
what has changed; the driver commits the epoch by its manifest, in one rename. Only that file decides: parts that no
manifest names are leftovers of an attempt or an epoch that does not count, and are removed.

A part holds the changes of one subtask, and the manifest lists the chain of parts from a complete one on, as that of a
live job does (``aflow.state.manifest``). A subtask that has changed nothing writes no part and keeps its chain. A task
writes a complete part in place of a long chain (``needs_complete_part``), which it has read anyway, so nothing compacts
chains afterwards. If the number of subtasks changes, the chain of a new subtask consists of the parts of all former
ones, each restricted to its key groups.

``EpochStore`` is the folder, for one driver at a time. ``next_steps`` is the rule for chains, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from aflow.backfill.continuation import StepFiles
from aflow.backfill.savepoint import encoded_part
from aflow.connect import Committable
from aflow.errors import CheckpointError, InternalError, RestoreError
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.runtime.checkpoints.chains import PartChain
from aflow.runtime.checkpoints.directory.files import (
    DISK,
    Files,
    HeldLock,
    load_now,
    reason,
    stored,
)
from aflow.runtime.checkpoints.directory.folder_lock import hold
from aflow.runtime.checkpoints.directory.names import (
    PARTS,
    manifest_name,
    manifest_numbers,
    number_in,
    slug,
)
from aflow.runtime.checkpoints.directory.reader import links_to_groups
from aflow.state.change_plan import ChangePlan
from aflow.state.manifest import (
    FileRef,
    Link,
    Manifest,
    StepState,
    SubtaskState,
    manifest_bytes,
    manifest_of,
)
from aflow.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class EpochPart:
    """State that one task of a keyed step has left at the end of an epoch."""

    step: str
    subtask: int
    """From 0: its key groups are ``ranges(key_groups, subtasks)[subtask]``."""
    file: FileRef | None
    """The part that it has written; None if nothing has changed."""
    complete: bool
    """True if the part has all state of the subtask, and not only its changes."""


def needs_complete_part(files: StepFiles | None, folder: Path, groups: KeyGroupRange) -> bool:
    """Return True if a task with ``groups``, which begins with ``files``, has to write all of its state.

    False if it suffices to write changes. ``folder`` is that of the stream: state that it begins with from another
    one, a savepoint, is written once, as is state that a changed flow reads in another way. A chain that became long
    is replaced.
    """
    if files is None or files.folder != folder or files.step in files.changes.changed_steps:
        return True
    chain = PartChain.of(links_to_groups(files.subtasks, groups))
    return not chain.links or chain.long


def next_steps(
    last: Sequence[StepState],
    parts: Iterable[EpochPart],
    kinds: Mapping[str, str],
    *,
    subtasks: int,
    key_groups: int,
) -> tuple[StepState, ...]:
    """Return the state of all keyed steps after an epoch.

    ``last`` is that before the epoch, ``parts`` is what the tasks have left, in any order, and ``kinds`` is the method
    that made each keyed step, by its name. Raises ``CheckpointError`` unless each subtask of each step has left exactly
    one part, and changes have a part on which they are based.
    """
    former = {step.name: step for step in last}
    left: dict[tuple[str, int], EpochPart] = {}
    for part in parts:
        if part.step not in kinds or not 0 <= part.subtask < subtasks:
            raise CheckpointError(
                f"{_named(part.step, part.subtask)} does not belong to this stream"
            )
        if left.setdefault((part.step, part.subtask), part) is not part:
            raise CheckpointError(f"{_named(part.step, part.subtask)} was written twice")
    steps: list[StepState] = []
    for name, what in kinds.items():
        states: list[SubtaskState] = []
        for subtask, groups in enumerate(ranges(key_groups, subtasks)):
            found = left.get((name, subtask))
            if found is None:
                raise CheckpointError(
                    f"{_named(name, subtask)} is missing: without it the stream would lose the state of its keys"
                )
            chain = _chain_after(found, former.get(name), groups)
            if chain:
                states.append(SubtaskState(subtask, chain))
        if states:
            steps.append(StepState(name, what, subtasks, tuple(states)))
    return tuple(steps)


def _chain_after(
    part: EpochPart, former: StepState | None, groups: KeyGroupRange
) -> tuple[Link, ...]:
    link = () if part.file is None else (Link(part.file, groups.start, groups.stop),)
    if part.complete:
        return link
    chain = links_to_groups(() if former is None else former.subtasks, groups)
    if link and not chain:
        raise CheckpointError(
            f"{_named(part.step, part.subtask)} holds changes, and the state that they change is missing"
        )
    return chain + link


def _named(step: str, subtask: int) -> str:
    return f"the state of subtask {subtask} of step {step!r}"


def write_epoch_part(
    folder: Path,
    epoch: int,
    step: str,
    subtask: int,
    state: Mapping[str, OperatorSnapshot],
    *,
    files: Files = DISK,
) -> EpochPart:
    """Write the state that a task has left for ``step`` at the end of an epoch, durably; blocks.

    ``state`` is that of a ``FragmentResult``. Attempts of a task never write the same file. Raises ``CheckpointError``.
    """
    snapshot = state.get(step, OperatorSnapshot())
    if not snapshot.complete and is_empty(snapshot):
        return EpochPart(step, subtask, None, complete=False)
    name = f"{PARTS}/{epoch:06d}-{slug(step)}-{subtask}-{uuid4().hex}.part"
    written = stored(files, folder / name, encoded_part({step: snapshot}))
    file = FileRef(name, written.size, written.checksum)
    return EpochPart(step, subtask, file, complete=snapshot.complete)


def is_empty(changes: OperatorSnapshot) -> bool:
    """Return True if ``changes`` change nothing; operator state is always whole, and may have changed."""
    return not any(
        (
            changes.keyed,
            changes.operator,
            changes.broadcast,
            any((changes.replaced or {}).values()),
            changes.removed,
        )
    )


def encoded_output(sink: str, committables: Iterable[Committable]) -> tuple[bytes, ...]:
    """Return the committables of a sink for a manifest. Raises ``CheckpointError`` unless they are plain data."""
    try:
        return tuple(map(PLAIN.encode, committables))
    except CodecError as exc:
        raise CheckpointError(f"sink {sink!r}: its output cannot be stored: {exc}") from exc


def decoded_output(manifest: Manifest, sink: str) -> list[Committable]:
    """Return the committables of a sink in the manifest of an epoch. Raises ``RestoreError``."""
    if manifest.stream is None:
        return []
    try:
        return [PLAIN.decode(one) for one in manifest.stream.prepared.get(sink, ())]
    except CodecError as exc:
        raise RestoreError(f"sink {sink!r}: its output cannot be read: {exc}") from exc


@dataclass(slots=True)
class EpochStore:
    """The folder of one stream, which one driver holds. All methods block."""

    folder: Path
    """Absolute; driver and executors see it alike."""
    flow: str
    key_groups: int
    files: Files = DISK
    _lock: HeldLock | None = field(init=False, default=None)

    def open(self) -> Manifest | None:
        """Hold the folder, which is created if it does not exist, and return its last epoch; None if there is none.

        Files that this epoch does not need are removed. Raises ``CheckpointError`` if another driver holds the folder
        or it cannot be written, and ``RestoreError`` for the folder of another flow or number of key groups, for
        something else than a stream, and for a damaged manifest.
        """
        self._lock = hold(self.files, self.folder, self.flow, user="stream")
        try:
            last = self._latest()
            if last is not None:
                self.clean(last)
        except BaseException:
            self.close()
            raise
        return last

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch, durably and at once. Raises ``CheckpointError``: then it may be committed or not.

        Only ``open`` says which, so a driver that gets this error must end. The last epoch may be committed again with
        other output, before the next one.
        """
        if self._lock is None or manifest.stream is None:
            raise InternalError("only the holder of a stream's folder commits its epochs")
        path = self.folder / manifest_name(manifest.id)
        stored(self.files, path, [manifest_bytes(manifest)])

    def check_written(self, parts: Iterable[EpochPart]) -> None:
        """Raise ``CheckpointError`` for a part that this machine does not see as its task has written it."""
        for part in parts:
            if part.file is None:
                continue
            path = self.folder / part.file.path
            try:
                size = self.files.size(path)
            except OSError as exc:
                raise CheckpointError(
                    f"an executor has written {path}, which this machine cannot read: {reason(exc)}. The state folder "
                    f"must be one that the driver and all executors see alike"
                ) from exc
            if size != part.file.size:
                raise CheckpointError(
                    f"{path} has {size:,} bytes here, and the executor that wrote it has written {part.file.size:,}"
                )

    def clean(self, last: Manifest) -> None:
        """Remove what ``last`` does not need: older epochs, and parts of attempts that do not count.

        No task may run. A file that cannot be removed is left: the next call removes it.
        """
        if self._lock is None:
            raise InternalError("only the holder of a stream's folder removes its files")
        needed = {ref.path for ref in last.files}
        with suppress(OSError):
            # Manifests first: without it, one would name parts that are gone.
            for name in self.files.names(self.folder):
                number = number_in(name)
                if number is not None and number < last.id:
                    self.files.remove(self.folder / name)
        with suppress(OSError):
            for name in self.files.names(self.folder / PARTS):
                if f"{PARTS}/{name}" not in needed:
                    with suppress(OSError):
                        self.files.remove(self.folder / PARTS / name)

    def files_of(self, last: Manifest, step: str, changes: ChangePlan) -> StepFiles | None:
        """Return the stored state of a step; None if it has none.

        ``changes`` are those of the flow since ``last``, in the first epoch of a driver; later ones have none.
        """
        for one in last.steps:
            if one.name == step:
                return StepFiles(self.folder, step, one.subtasks, changes)
        return None

    def _latest(self) -> Manifest | None:
        try:
            numbers = manifest_numbers(self.files.names(self.folder))
            if not numbers:
                return None
            path = self.folder / manifest_name(max(numbers))
            manifest = manifest_of(load_now(path), what=str(path))
        except OSError as exc:
            raise RestoreError(f"{self.folder} cannot be read: {reason(exc)}") from exc
        if manifest.stream is None:
            raise RestoreError(
                f"{self.folder} holds checkpoints of a live job or a savepoint, and a stream needs a state folder of "
                f"its own; restore= takes the savepoint with which it begins"
            )
        if manifest.flow != self.flow:
            raise RestoreError(
                f"{self.folder} has the state of flow {manifest.flow!r}, and this flow is {self.flow!r}: give each "
                f"stream a state folder of its own"
            )
        if manifest.key_groups != self.key_groups:
            raise RestoreError(
                f"the keys in {self.folder} are stored in {manifest.key_groups} key groups, and this stream has "
                f"{self.key_groups}: pass key_groups={manifest.key_groups}"
            )
        return manifest
