"""Backends of keyed operators, and the filing of their state in snapshots."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from aflow.model.batch import Batch
from aflow.operators.base import Operator, OperatorContext, unsupported
from aflow.state.backend import KeyedBackend
from aflow.state.backend_choice import make_backend
from aflow.state.keyed_entries import CapturedRows, KeyGroupCodec
from aflow.state.layouts import descriptions
from aflow.state.memory import MemoryBackend
from aflow.state.readable_state import KeySelection, ReadableState
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import StateSpec, ValueState


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


class BackendState:
    """The states ``names`` of a backend; see ``ReadableState``."""

    def __init__(self, backend: MemoryBackend, names: Sequence[str]) -> None:
        self._backend = backend
        self.names: Final = names
        self.key_codec: Final = backend.key_codec

    def read(self, name: str, key: Hashable) -> object:
        """As ``ReadableState.read``."""
        return self._backend.read(name, key)

    def scan(self, name: str, wanted: KeySelection) -> Iterator[Sequence[Hashable]]:
        """As ``ReadableState.scan``."""
        return self._backend.scan(name, wanted)


def stored_backend(
    snapshot: OperatorSnapshot,
    context: OperatorContext,
    states: Sequence[StateSpec[Any]],
    key_type: type[Hashable] | None,
) -> BackendState:
    """Return the declared ``states`` in ``snapshot``. Raises ``RestoreError``."""
    backend = keyed_backend(context, key_type)
    for state in states:
        backend.cell(state)
    backend.restore(snapshot.keyed)
    return BackendState(backend, [state.name for state in states])


class KeyedStateOperator(Operator):
    """Base of steps that keep ``states`` of each key in tables of a backend.

    ``key_type`` is the type of the keys, which snapshots need unless they are plain Python values.
    """

    def __init__(
        self, states: tuple[ValueState[Any], ...], key_type: type[Hashable] | None
    ) -> None:
        self._states: Final = states
        self._key_type = key_type
        self._to_close: Final = ExitStack()

    def declares(self) -> Mapping[str, bytes]:
        return descriptions(self._states)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = keyed_backend(context, self._key_type)
        self._to_close.callback(self._backend.close)

    def close(self) -> None:
        self._to_close.close()

    def readable_state(self) -> ReadableState:
        return BackendState(self._backend, [state.name for state in self._states])

    def stored_state(self, snapshot: OperatorSnapshot, context: OperatorContext) -> ReadableState:
        self.open(context)
        self.restore(snapshot)
        return self.readable_state()

    def capture(self, *, changes: bool) -> CapturedRows:
        """Capture the state. Raises ``CheckpointError`` for a value that cannot be encoded."""
        return CapturedRows(self._backend.key_codec, self._backend.capture(changes=changes))

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        return self._backend.restore_in_pieces(snapshot.keyed)


def touch(operator: Operator, backend: KeyedBackend, batch: Batch[Any]) -> Sequence[Hashable]:
    """Announce the keys of ``batch`` to ``backend``, and return them. Raises ``OperatorError``."""
    keys = operator.keys_of(batch)
    try:
        backend.touch(keys)
    except TypeError as exc:
        for index, key in enumerate(keys):
            if reason := unsupported(key):
                raise operator.failure_at(reason, batch, index) from exc
        raise
    return keys
