"""Backends of keyed operators, and the filing of their state in snapshots."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from aflow.errors import InternalError
from aflow.model.batch import Batch
from aflow.operators.base import Operator, OperatorContext, unsupported
from aflow.state.backend import KeyedBackend
from aflow.state.backend_choice import make_backend
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MemoryBackend


def key_group_codec(context: OperatorContext, key_type: type[Hashable] | None) -> KeyGroupCodec:
    """Return the filing of keyed state of one subtask; without ``key_type`` keys must be plain values."""
    return KeyGroupCodec(
        operator=context.name,
        key_type=key_type,
        key_groups=context.key_groups,
        key_group_count=context.key_group_count,
    )


def keyed_backend(context: OperatorContext, key_type: type[Hashable] | None) -> MemoryBackend:
    """Return an empty backend for the key groups of one subtask; without ``key_type`` keys must be plain values.

    It is of the kind of the job. The caller closes it.
    """
    return make_backend(context.backend, key_group_codec(context, key_type), context.clock)


def memory_backend(context: OperatorContext, key_type: type[Hashable] | None) -> MemoryBackend:
    """Return an empty backend in memory, for steps with other state that is in memory in any case."""
    return MemoryBackend(key_group_codec(context, key_type), context.clock)


def touch(operator: Operator, backend: KeyedBackend, batch: Batch[Any]) -> Sequence[Hashable]:
    """Announce the keys of ``batch`` to ``backend``, and return them. Raises ``OperatorError``."""
    keys = batch.keys
    if keys is None:
        raise InternalError(f"step {operator.name!r} is keyed and got a batch without keys")
    try:
        backend.touch(keys)
    except TypeError as exc:
        for index, key in enumerate(keys):
            if reason := unsupported(key):
                raise operator.failure_at(reason, batch, index) from exc
        raise
    return keys
