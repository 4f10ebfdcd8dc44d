"""Where keyed operators get their backend, and the place of their state in snapshots, from."""

from __future__ import annotations

from collections.abc import Hashable

from aflow.operators.base import OperatorContext
from aflow.state.filing import KeyedFiling
from aflow.state.memory import MemoryBackend


def keyed_filing(context: OperatorContext, key_type: type[Hashable] | None) -> KeyedFiling:
    """How one subtask files what belongs to keys; without ``key_type`` its keys must be plain values."""
    return KeyedFiling(
        operator=context.name,
        key_type=key_type,
        key_groups=context.key_groups,
        key_group_count=context.key_group_count,
    )


def keyed_backend(context: OperatorContext, key_type: type[Hashable] | None) -> MemoryBackend:
    """An empty backend for the key groups of one subtask; without ``key_type`` its keys must be plain values."""
    return MemoryBackend(keyed_filing(context, key_type))
