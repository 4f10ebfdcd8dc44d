"""Where keyed operators get their backend from."""

from __future__ import annotations

from collections.abc import Hashable

from aflow.operators.base import OperatorContext
from aflow.state.filing import KeyedFiling
from aflow.state.memory import MemoryBackend


def keyed_backend(context: OperatorContext, key_type: type[Hashable] | None) -> MemoryBackend:
    """An empty backend for the key groups of one subtask; without ``key_type`` its keys must be plain values."""
    filing = KeyedFiling(
        operator=context.name,
        key_type=key_type,
        key_groups=context.key_groups,
        key_group_count=context.key_group_count,
    )
    return MemoryBackend(filing)
