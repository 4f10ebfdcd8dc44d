"""The manifest of a checkpoint: the files that hold the state of each step.

Theory. A checkpoint is a *manifest* and the files that it references. Each subtask writes one file for each checkpoint,
its *part*, with the snapshots of all its steps. The state of a step that stores changes is a *chain* of parts, from a
complete snapshot to the newest changes, which the manifest lists. Parts are immutable and may be in the chains of
several checkpoints. They are removed when no retained manifest references them.

Committables of sinks, positions of sources and records in flight are operator state of their step, under names that
begin with ``@``. Storage does not distinguish them from other state.

A manifest is stored as JSON that people can read::

    {
      "format": 1,
      "aflow": "0.1.0",
      "checksum": "93ab12ef",
      "checkpoint": {"id": 12, "kind": "checkpoint", "flow": "card-totals", …}
    }

``format``, ``aflow`` and ``checksum`` are the same in all formats. The checksum is the CRC-32 of the two preceding
values, each followed by a space, and of the bytes of the value of ``checkpoint`` in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import repeat
from pathlib import PurePosixPath
from typing import Final
from zlib import crc32

import msgspec

from aflow.errors import CheckpointError, RestoreError
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import MOST_KEY_GROUPS
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

#: Format of parts and manifests. A reader refuses newer ones.
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class FileRef:
    """An immutable file of a checkpoint; ``path`` is relative to the folder of the storage."""

    path: str
    size: int
    """In bytes."""
    checksum: str
    """CRC-32 of the content as eight hexadecimal digits, or a stronger one with its name as prefix: ``sha256:…``."""


@dataclass(frozen=True, slots=True)
class Link:
    """A part in a chain, used for the key groups from ``first`` up to ``stop`` (exclusive)."""

    file: FileRef
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """The state of one step in one subtask: its chain, oldest part first."""

    subtask: int
    chain: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class StepState:
    """The state of one step."""

    name: str
    what: str
    """The method that made the step (``process``, ``window.fold`` …)."""
    parallelism: int
    subtasks: tuple[SubtaskState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Progress of a stream of micro-batches at the end of an epoch, whose manifest has it."""

    batch: int | None = None
    """Number of the last micro-batch in the state, of the engine that counts them; None before the first one."""
    watermark: Timestamp = MIN_TIMESTAMP
    """Event time of the whole stream at the end of the epoch (epoch ms)."""
    watermarks: Mapping[str, Timestamp] = field(default_factory=dict[str, Timestamp])
    """Event time of each keyed step at the end of the epoch (epoch ms)."""
    earned: Mapping[str, Timestamp] = field(default_factory=dict[str, Timestamp])
    """Watermark that the records of each source have earned so far (epoch ms), by the step that assigns timestamps."""
    splits: Mapping[str, Mapping[str, Timestamp]] = field(
        default_factory=dict[str, Mapping[str, Timestamp]]
    )
    """The same of each split, for the steps whose records have splits."""
    begins: Timestamp | None = None
    """Moment (epoch ms) before which records are skipped, from the savepoint with which the stream began."""
    restored: str = ""
    """Folder of that savepoint; empty without one."""
    live: bool = False
    """True if it is the savepoint of a live job."""
    until: Timestamp | None = None
    """Moment (epoch ms) from which on records are left to the live job."""
    newest: Timestamp | None = None
    """Newest timestamp of all records so far (epoch ms), also of those."""
    cut: Timestamp | None = None
    """Moment (epoch ms) of a savepoint to be written, from which on records are held back; None if none are."""
    held: tuple[str, ...] = ()
    """Stored rows with the records that are held back, oldest first."""
    prepared: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    """Encoded committables of the epoch, by sink."""
    sources: tuple[str, ...] = ()
    """Names of the sources, in the order in which the engine stores their offsets."""
    entries: int | None = None
    """Number of values in the state; None if it was never counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A completed checkpoint."""

    id: int
    kind: CheckpointKind
    flow: str
    key_groups: int
    created_at: Timestamp
    """Time of the trigger (epoch ms)."""
    completed_at: Timestamp
    steps: tuple[StepState, ...]
    stream: StreamPosition | None = None
    """For an epoch of a stream."""
    aflow: str = ""
    """The version of aflow that wrote it."""
    format: int = FORMAT

    @property
    def files(self) -> frozenset[FileRef]:
        """All files of the checkpoint."""
        return frozenset(
            link.file for step in self.steps for one in step.subtasks for link in one.chain
        )


class _Checkpoint(msgspec.Struct, frozen=True):
    """All of a manifest except the envelope."""

    id: int
    kind: CheckpointKind
    flow: str
    key_groups: int
    created_at: int
    completed_at: int
    steps: tuple[StepState, ...]
    stream: StreamPosition | None = None


class _Envelope(msgspec.Struct, frozen=True):
    format: int
    aflow: str
    checksum: str
    checkpoint: msgspec.Raw


class _Place(msgspec.Struct, frozen=True):
    """The flow that a folder belongs to."""

    format: int
    aflow: str
    flow: str


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the content of a manifest file, in the newest format regardless of ``manifest.format``.

    Raises ``CheckpointError`` for a manifest that could not be read again.
    """
    wrong = _wrong_with(manifest)
    if wrong is not None:
        raise CheckpointError(f"the manifest of checkpoint {manifest.id} {wrong}")
    inner = {name: getattr(manifest, name) for name in _Checkpoint.__struct_fields__}
    if manifest.stream is None:
        del inner["stream"]  # only streams have it
    # A line break inside a string is written as \\n, so this indents lines and changes nothing else.
    pretty = msgspec.json.format(msgspec.json.encode(inner)).replace(b"\n", b"\n  ")
    head = {
        "format": FORMAT,
        "aflow": manifest.aflow,
        "checksum": _sum(FORMAT, manifest.aflow, pretty),
    }
    # Joined as bytes: an encoder could change those that the checksum covers.
    opened = msgspec.json.format(msgspec.json.encode(head)).removesuffix(b"\n}")
    return opened + b',\n  "checkpoint": ' + pretty + b"\n}\n"


def manifest_of(data: bytes, *, what: str) -> Manifest:
    """Return the manifest in a file; ``what`` names the file in errors.

    Raises ``RestoreError`` for bytes that are no manifest, were changed, or have a newer format than this version of
    aflow knows.
    """
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        if envelope.format > FORMAT:
            raise RestoreError(newer(what, envelope.format, envelope.aflow))
        found = _sum(envelope.format, envelope.aflow, bytes(envelope.checkpoint))
        if found != envelope.checksum:
            raise RestoreError(
                f"{what} is corrupt: its checksum is {found} in place of {envelope.checksum}"
            )
        inner = msgspec.json.decode(envelope.checkpoint, type=_Checkpoint)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as exc:
        raise RestoreError(
            f"{what} is no manifest of a checkpoint, or an incomplete one: {exc}"
        ) from exc
    manifest = Manifest(
        **msgspec.structs.asdict(inner), aflow=envelope.aflow, format=envelope.format
    )
    wrong = _wrong_with(manifest)
    if wrong is not None:
        raise RestoreError(f"{what} {wrong}")
    return manifest


def _sum(written: int, aflow: str, body: bytes) -> str:
    return checksum(f"{written} {aflow} ".encode() + body)


def _wrong_with(manifest: Manifest) -> str | None:
    """Return what would let a reader access other folders or run for ever; None if there is nothing.

    Numbers in a manifest determine how many bytes are read and over how many key groups a reader iterates.
    """
    if not 1 <= manifest.key_groups <= MOST_KEY_GROUPS:
        return f"has {manifest.key_groups} key groups, which is not between 1 and {MOST_KEY_GROUPS}"
    times = [manifest.created_at, manifest.completed_at]
    if manifest.stream is not None:
        stream = manifest.stream
        times += [stream.watermark, *stream.watermarks.values(), *stream.earned.values()]
        times += [at for splits in stream.splits.values() for at in splits.values()]
    if not all(MIN_TIMESTAMP <= at <= MAX_TIMESTAMP for at in times):
        return "has a time that is out of range"
    for ref in manifest.files:
        path = PurePosixPath(ref.path)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in ref.path:
            return f"points out of its folder, to {ref.path!r}"
        if ref.size < 0:
            return f"has {ref.size} bytes in {ref.path!r}"
    return next(
        filter(None, map(_wrong_with_step, manifest.steps, repeat(manifest.key_groups))), None
    )


def _wrong_with_step(step: StepState, key_groups: int) -> str | None:
    if not 1 <= step.parallelism <= MOST_KEY_GROUPS:
        return f"has {step.parallelism} subtasks of step {step.name!r}"
    for one in step.subtasks:
        if not one.chain:
            return f"names no part for subtask {one.subtask} of step {step.name!r}"
        if not 0 <= one.subtask < step.parallelism:
            return f"has a subtask {one.subtask} of {step.parallelism} of step {step.name!r}"
        for link in one.chain:
            if not 0 <= link.first <= link.stop <= key_groups:
                return f"has key groups {link.first} to {link.stop} of {key_groups} in step {step.name!r}"
    return None


def place_bytes(flow: str, *, aflow: str) -> bytes:
    """Return the content of the file that names the flow of a folder."""
    return msgspec.json.format(msgspec.json.encode(_Place(FORMAT, aflow, flow))) + b"\n"


def flow_of(data: bytes, *, what: str) -> str:
    """Return the flow that a folder belongs to, from the content of that file; ``what`` names it in errors.

    Raises ``RestoreError`` for other bytes and for a newer format than this version of aflow knows.
    """
    try:
        place = msgspec.json.decode(data, type=_Place)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as exc:
        raise RestoreError(f"{what} does not name a flow: {exc}") from exc
    if place.format > FORMAT:
        raise RestoreError(newer(what, place.format, place.aflow))
    return place.flow


def newer(what: str, written: int, aflow: str) -> str:
    """Return the message for a file of an unknown, newer format."""
    by = f"aflow {aflow}" if aflow else "an unknown version of aflow"
    return f"{what} has format {written}, written by {by}; this version reads formats up to {FORMAT}: upgrade aflow"


def checksum(data: bytes, before: int = 0) -> str:
    """Return the CRC-32 of ``data`` as manifests write it; ``before`` is that of the preceding bytes."""
    return in_hexadecimal(crc32(data, before))


def in_hexadecimal(crc: int) -> str:
    """Return a CRC-32 as manifests write it: eight digits."""
    return f"{crc:08x}"


def wrong_size(ref: FileRef, size: int) -> str:
    """Return the description of a file whose ``size`` differs from that in ``ref``."""
    return (
        f"is {'truncated' if size < ref.size else 'too long'}: {size} bytes in place of {ref.size}"
    )


def wrong_with(ref: FileRef, data: bytes) -> str | None:
    """Return why ``data`` is not the content of ``ref``, for a message; None if it is."""
    if len(data) != ref.size:
        return wrong_size(ref, len(data))
    algorithm, colon, _ = ref.checksum.partition(":")
    if not colon:
        found = checksum(data)
    elif algorithm == "sha256":
        found = f"sha256:{sha256(data).hexdigest()}"
    else:
        return f"has a checksum of a kind unknown to this version of aflow: {ref.checksum}"
    if found != ref.checksum:
        return f"is corrupt: its checksum is {found} in place of {ref.checksum}"
    return None
