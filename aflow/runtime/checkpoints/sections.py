"""State of the runtime in checkpoints, stored as operator state of the step concerned.

``@progress`` of a source: a part for each split that was started, and one for each that has ended. ``@pending`` of a
sink: committables that were prepared and are not known to be committed. ``@waiting`` of a sink and ``@in flight`` of a
step that reads from others: records that barriers have overtaken, see ``inflight``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from aflow.connect import Committable
from aflow.errors import RestoreError, UnstorableState, shown
from aflow.model.codecs import PLAIN, CodecError
from aflow.operators.sink import Pending
from aflow.runtime.splits import Progress, SplitPosition
from aflow.state.snapshot import OperatorSnapshot

PROGRESS: Final = "@progress"
PENDING: Final = "@pending"
WAITING: Final = "@waiting"
IN_FLIGHT: Final = "@in flight"


def source_progress(name: str, progress: Progress, subtask: int) -> OperatorSnapshot:
    """Encode the progress of ``subtask`` in a source. Raises ``CheckpointError`` for a position that is no plain
    data."""
    parts: list[bytes] = []
    for split, place in progress.places.items():
        try:
            parts.append(PLAIN.encode((split, place.position, place.skip, subtask)))
        except CodecError as exc:
            raise UnstorableState(
                f"source {name!r}: the position in split {split!r} cannot be stored: {exc}"
            ) from exc
    parts.extend(PLAIN.encode((split,)) for split in sorted(progress.ended))
    return OperatorSnapshot(operator={PROGRESS: tuple(parts)})


def read_progress(name: str, snapshot: OperatorSnapshot, parallelism: int) -> Progress:
    """Return the progress of all subtasks of a source, so many. Raises ``RestoreError``."""
    places: dict[str, SplitPosition] = {}
    readers: dict[str, int] = {}
    ended: set[str] = set()
    for part in _decoded(name, snapshot.operator.get(PROGRESS, ())):
        known = cast("tuple[object, ...]", part) if isinstance(part, tuple) else ()
        match known:
            case (str(split), object() as position, int(skip), int(subtask)):
                places[split] = SplitPosition(position, skip)
                readers[split] = subtask
            case (str(split), object() as position, int(skip)):  # of an older checkpoint
                places[split] = SplitPosition(position, skip)
            case (str(split),):
                ended.add(split)
            case _:
                raise RestoreError(f"source {name!r}: {part!r} is not the progress of a split")
    return Progress(places, frozenset(ended), readers, parallelism)


def committables(name: str, pending: Pending, waiting: tuple[bytes, ...]) -> OperatorSnapshot:
    """Encode the state of a sink. Raises ``CheckpointError`` for a committable that is no plain data."""
    parts: list[bytes] = []
    for checkpoint, committable in pending:
        try:
            parts.append(PLAIN.encode((checkpoint, committable)))
        except CodecError as exc:
            raise UnstorableState(
                f"sink {name!r}: the committable of checkpoint {checkpoint} cannot be stored: {exc}"
            ) from exc
    operator: Mapping[str, tuple[bytes, ...]] = {PENDING: tuple(parts), WAITING: waiting}
    return OperatorSnapshot(operator={key: held for key, held in operator.items() if held})


def read_committables(name: str, snapshot: OperatorSnapshot) -> list[tuple[int, Committable]]:
    """Return the committables of all writers of a sink with their checkpoints, ascending. Raises ``RestoreError``."""
    found: list[tuple[int, Committable]] = []
    for part in _decoded(name, snapshot.operator.get(PENDING, ())):
        match part:
            case (int(checkpoint), object() as committable):
                found.append((checkpoint, committable))
            case _:
                raise RestoreError(f"sink {name!r}: {shown(part)} is no committable of a sink")
    return sorted(found, key=lambda one: one[0])


def _decoded(name: str, parts: Iterable[bytes]) -> Iterable[object]:
    for part in parts:
        try:
            yield PLAIN.decode(part)
        except CodecError as exc:
            raise RestoreError(
                f"step {name!r} cannot read its state in the checkpoint: {exc}"
            ) from exc
