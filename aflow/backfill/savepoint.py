"""Savepoint of a backfill, from which the live job starts.

Executors encode the state of their fragments as part files (``encoded_part``); the driver writes them as they arrive,
with a manifest, so that the folder is a savepoint like any other. It also records where the live job begins: each
``event_time`` step that assigns timestamps to the records of a source finds the end of the history in its own state
(``aflow.operators.handover``). Output that was prepared for a sink is in it as in any savepoint: the live job commits
it first, and removes later output whenever it is restored from the savepoint.

The driver checks each part, and refuses a savepoint that could not be restored correctly: with parts that are missing,
duplicated or truncated, or that hold keys of another part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final

from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.connect import Committable
from aflow.errors import CheckpointError, RestoreError
from aflow.model.distribution import VERSION
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import ranges
from aflow.model.time import Timestamp
from aflow.operators.handover import BEGINS, begins_at
from aflow.runtime.checkpoints.directory.files import DISK, Files, stored
from aflow.runtime.checkpoints.directory.names import PARTS, part_name
from aflow.runtime.checkpoints.directory.paths import local_folder
from aflow.runtime.checkpoints.directory.savepoints import Draft, check_new
from aflow.runtime.checkpoints.sections import committables as snapshot_of
from aflow.state.manifest import FileRef, Link, Manifest, StepState, SubtaskState
from aflow.state.parts import PartReader, encoded
from aflow.state.snapshot import OperatorSnapshot

#: Number of the savepoint of a backfill from the beginning of history. One that continues from a savepoint writes the
#: next number, and checkpoints of the job that starts from it have higher ones.
SAVEPOINT: Final = 1

#: Maximum bytes of a chunk of a part.
CHUNK: Final = 4 << 20


@dataclass(frozen=True, slots=True, eq=False)
class StatePart:
    """State of one of the ``subtasks`` of a fragment: ``encoded_part`` of its steps, in order."""

    fragment: Fragment
    subtask: int
    """From 0: its key groups are ``ranges(key_groups, subtasks)[subtask]``."""
    subtasks: int
    chunks: Iterable[bytes]


def encoded_part(snapshots: Mapping[str, OperatorSnapshot]) -> Iterator[bytes]:
    """Yield the content of a part file with ``snapshots``, by step, in chunks of at most 4 MiB.

    Raises ``CheckpointError`` for a value that is too large to be stored.
    """
    chunk = bytearray()
    for piece in encoded(snapshots, aflow=VERSION):
        if chunk and len(chunk) + len(piece) > CHUNK:
            yield bytes(chunk)
            chunk.clear()
        chunk += piece
        while len(chunk) > CHUNK:
            yield bytes(chunk[:CHUNK])
            del chunk[:CHUNK]
    yield bytes(chunk)


def savepoint_folder(path: str | PathLike[str]) -> Path:
    """Return the absolute folder ``path``. Raises ``FlowDefinitionError`` for an invalid path of a local folder."""
    return Path.cwd() / local_folder(path, "savepoint")


def check_savepoint_path(path: str | PathLike[str], *, files: Files = DISK) -> Path:
    """Return the folder ``path`` if a savepoint can be written there; blocks.

    Raises ``FlowDefinitionError`` for an invalid path of a local folder, and ``CheckpointError`` if something exists
    there or cannot be created.
    """
    folder = local_folder(path, "savepoint")
    check_new(files, folder)
    return folder


def write_savepoint(
    path: str | PathLike[str],
    plan: FragmentPlan,
    parts: Iterable[StatePart],
    *,
    until: Timestamp,
    created_at: Timestamp,
    number: int = SAVEPOINT,
    prepared: Mapping[str, Sequence[tuple[int, Committable]]] | None = None,
    files: Files = DISK,
) -> None:
    """Write a savepoint of ``plan`` to the new folder ``path``, which appears when it is complete; blocks.

    ``parts`` are the state of the subtasks of the fragments, in any order: all subtasks of each keyed fragment, each
    with the state of the head if it has any. One chunk is in memory at a time. A live job that starts from the
    savepoint processes the records from ``until`` on; ``until`` and ``created_at`` are epoch ms. ``prepared`` is, by
    sink, the output that the live job commits first, with the number of its savepoint: of this one, ``number``, or of
    an earlier one.

    Raises as ``check_savepoint_path`` does, and ``CheckpointError`` for missing, duplicate or truncated parts, and if
    writing fails. Then nothing remains at ``path``.
    """
    draft = Draft(files, Path.cwd() / check_savepoint_path(path, files=files))
    writing = _Writing(draft, plan, number)
    try:
        writing.draft.begin()
        for part in parts:
            writing.add(part)
        writing.check_all_there()
        writing.begin_at(until)
        for sink, some in (prepared or {}).items():
            writing.add_prepared(sink, some)
        writing.draft.finish(writing.manifest(created_at))
    except BaseException:
        writing.draft.remove()
        raise


@dataclass(slots=True)
class _Writing:
    """A savepoint that is being written."""

    draft: Draft
    plan: FragmentPlan
    number: int
    #: Fragments and subtasks whose parts are written.
    there: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    #: Number of subtasks by fragment.
    subtasks: dict[int, int] = field(default_factory=dict[int, int])
    #: By step, its fragment and the state of its subtasks.
    states: dict[str, tuple[Fragment, list[SubtaskState]]] = field(
        default_factory=dict[str, tuple[Fragment, list[SubtaskState]]]
    )
    #: Prepared output by sink.
    sinks: dict[str, SubtaskState] = field(default_factory=dict[str, SubtaskState])

    def add(self, part: StatePart) -> None:
        """Write the part. Raises ``CheckpointError``."""
        fragment = self._fragment(part)
        what = _named(fragment, part.subtask)
        groups = ranges(self.plan.key_groups, part.subtasks)[part.subtask]
        reading = PartReader(what=what, groups=groups)
        try:
            file = self._write(fragment.head.name, part.subtask, _followed(part.chunks, reading))
            steps = reading.end()
        except RestoreError as exc:
            raise CheckpointError(f"{exc}; run the backfill again") from exc
        self._check_steps(fragment, what, steps)
        self.there.add((fragment.index, part.subtask))
        if not steps:
            self.draft.files.remove(self.draft.folder / file.path)  # no manifest would point to it
        left = SubtaskState(part.subtask, (Link(file, groups.start, groups.stop),))
        for step in steps:
            self.states.setdefault(step, (fragment, []))[1].append(left)

    def check_all_there(self) -> None:
        """Raise ``CheckpointError`` unless the parts of all subtasks of each keyed fragment are present."""
        for fragment in self.plan.fragments:
            subtasks = self.subtasks.get(fragment.index, 1 if fragment.keyed else 0)
            missing = [n for n in range(subtasks) if (fragment.index, n) not in self.there]
            if missing:
                raise CheckpointError(
                    f"{_named(fragment, missing[0])} is missing, of {subtasks} subtasks in all: a savepoint without it "
                    f"would have lost what its keys have"
                )

    def begin_at(self, until: Timestamp) -> None:
        """Store the start of the live job for the steps that assign timestamps to records of sources."""
        for step, fragment in sorted(self.plan.cuts.items()):
            snapshot = OperatorSnapshot(operator={BEGINS: begins_at(until)})
            file = self._write(step, 0, encoded_part({step: snapshot}))
            link = Link(file, 0, self.plan.key_groups)
            self.states[step] = (fragment, [SubtaskState(0, (link,))])

    def add_prepared(self, sink: str, prepared: Sequence[tuple[int, Committable]]) -> None:
        """Add output that was prepared for a sink and is committed once the savepoint exists."""
        snapshot = snapshot_of(sink, prepared, ())
        file = self._write(sink, 0, encoded_part({sink: snapshot}))
        self.sinks[sink] = SubtaskState(0, (Link(file, 0, self.plan.key_groups),))

    def manifest(self, created_at: Timestamp) -> Manifest:
        steps: list[StepState] = []
        for name, (fragment, left) in self.states.items():
            what = next(node.what for node in fragment.nodes if node.name == name)
            subtasks = tuple(sorted(left, key=lambda one: one.subtask))
            steps.append(StepState(name, what, len(subtasks), subtasks))
        of_flow = self.plan.sinks
        steps += [
            StepState(name, of_flow[name].what, 1, (one,)) for name, one in self.sinks.items()
        ]
        return Manifest(
            id=self.number,
            kind=CheckpointKind.SAVEPOINT,
            flow=self.plan.flow,
            key_groups=self.plan.key_groups,
            created_at=created_at,
            completed_at=created_at,
            steps=tuple(steps),
            aflow=VERSION,
        )

    def _fragment(self, part: StatePart) -> Fragment:
        """Return the fragment of the part, if the part is expected. Raises ``CheckpointError``."""
        # Of the plan: the part's own fragment may be a copy that was sent to executors.
        fragment = self.plan.fragments[part.fragment.index]
        what, subtasks = _named(fragment, part.subtask), part.subtasks
        known = self.subtasks.setdefault(fragment.index, subtasks)
        if known != subtasks or not 0 <= part.subtask < subtasks <= self.plan.key_groups:
            raise CheckpointError(
                f"{what} says that there are {subtasks} subtasks; {self.plan.key_groups} key groups are divided among "
                f"{known}"
            )
        if (fragment.index, part.subtask) in self.there:
            raise CheckpointError(
                f"{what} is duplicated, and only one of them can be right: take the complete state of one attempt"
            )
        return fragment

    def _check_steps(self, fragment: Fragment, what: str, steps: tuple[str, ...]) -> None:
        head = fragment.head
        if fragment.keyed and head.stateful and head.name not in steps:
            raise CheckpointError(f"{what} holds nothing of step {head.name!r}")
        known = {node.name for node in fragment.nodes}
        for step in steps:
            owner = self.states.get(step, (fragment, []))[0]
            if step not in known or step in fragment.cuts_at or owner is not fragment:
                raise CheckpointError(f"{what} holds state of step {step!r}, which is none of it")

    def _write(self, step: str, subtask: int, content: Iterable[bytes]) -> FileRef:
        name = f"{PARTS}/{part_name(self.number, step, subtask)}"
        written = stored(self.draft.files, self.draft.folder / name, content)
        return FileRef(name, written.size, written.checksum)


def _followed(chunks: Iterable[bytes], reading: PartReader) -> Iterator[bytes]:
    for chunk in chunks:
        reading.add(chunk)
        yield chunk


def _named(fragment: Fragment, subtask: int) -> str:
    return f"part {subtask} of the state that the backfill has left for step {fragment.head.name!r}"
