"""Checkpoints as data, for tests of storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aflow.model.elements import CheckpointKind
from aflow.state.manifest import FileRef, Link, Manifest, StepState, SubtaskState
from aflow.state.snapshot import OperatorSnapshot

GROUPS = 4

#: The steps of the task, and their state in both subtasks together.
TASK = "sums → out"


def complete(rows: Mapping[int, Iterable[tuple[str, str]]], *parts: str) -> OperatorSnapshot:
    """Return a complete snapshot: by key group, keys and values of the state "total"; and parts of the state "@at"."""
    return OperatorSnapshot(
        {
            group: {"total": tuple((key.encode(), value.encode()) for key, value in entries)}
            for group, entries in rows.items()
        },
        {"@at": tuple(part.encode() for part in parts)} if parts else {},
    )


def changes(
    rows: Mapping[int, Iterable[tuple[str, str]]],
    forgotten: Mapping[int, Iterable[str]] | None = None,
) -> OperatorSnapshot:
    """Return a snapshot of changed rows and deleted keys."""
    whole = complete(rows)
    replaced = {group: {key for key, _ in names["total"]} for group, names in whole.keyed.items()}
    for group, keys in (forgotten or {}).items():
        replaced.setdefault(group, set()).update(key.encode() for key in keys)
    return OperatorSnapshot(
        whole.keyed, replaced={group: frozenset(keys) for group, keys in replaced.items()}
    )


def manifest(
    number: int,
    chains: Mapping[str, Iterable[Iterable[FileRef | Link]]],
    *,
    kind: CheckpointKind = CheckpointKind.PERIODIC,
    flow: str = "flow",
) -> Manifest:
    """Return a manifest; ``chains`` has the chain of each subtask, by step. Subtasks share the key groups evenly."""
    steps: list[StepState] = []
    for name, of_subtasks in chains.items():
        listed = [list(chain) for chain in of_subtasks]
        share = GROUPS // len(listed)
        states = tuple(
            SubtaskState(
                subtask,
                tuple(
                    one
                    if isinstance(one, Link)
                    else Link(one, subtask * share, (subtask + 1) * share)
                    for one in chain
                ),
            )
            for subtask, chain in enumerate(listed)
        )
        steps.append(StepState(name, "process", len(listed), states))
    return Manifest(
        id=number,
        kind=kind,
        flow=flow,
        key_groups=GROUPS,
        created_at=number * 1000,
        completed_at=number * 1000 + 5,
        steps=tuple(steps),
        aflow="1.2.3",
    )
