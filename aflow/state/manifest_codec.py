"""Codec of manifests: JSON that people can read.

::

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

from itertools import repeat
from pathlib import PurePosixPath

import msgspec

from aflow.errors import CheckpointError, RestoreError
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import MOST_KEY_GROUPS
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.state.manifest import FORMAT, Manifest, StepState
from aflow.state.manifest_checksums import checksum
from aflow.state.parts import newer


class _Checkpoint(msgspec.Struct, frozen=True):
    """All of a manifest except the envelope."""

    id: int
    kind: CheckpointKind
    flow: str
    key_groups: int
    created_at: int
    completed_at: int
    steps: tuple[StepState, ...]


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
    inner = _Checkpoint(
        manifest.id,
        manifest.kind,
        manifest.flow,
        manifest.key_groups,
        manifest.created_at,
        manifest.completed_at,
        manifest.steps,
    )
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
        id=inner.id,
        kind=inner.kind,
        flow=inner.flow,
        key_groups=inner.key_groups,
        created_at=inner.created_at,
        completed_at=inner.completed_at,
        steps=inner.steps,
        aflow=envelope.aflow,
        format=envelope.format,
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
    if not all(MIN_TIMESTAMP <= at <= MAX_TIMESTAMP for at in _moments(manifest)):
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


def _moments(manifest: Manifest) -> tuple[Timestamp, Timestamp]:
    return manifest.created_at, manifest.completed_at


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
