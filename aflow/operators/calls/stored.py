"""Snapshots of the inputs of calls: operator state, in parts of one subtask each, in order of arrival.

A restored record with a key belongs to the subtask that owns its key group. A record without a key belongs to the
subtask with the number of its former one, modulo the parallelism.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, cast

from aflow.errors import RestoreError, UnstorableState
from aflow.machines.calls.call import Call
from aflow.model.batch import BATCH_RECORDS, Batch
from aflow.model.codecs import PLAIN, RECORDS, Codec, CodecError
from aflow.model.key_groups import key_group
from aflow.operators.base import OperatorContext
from aflow.state.snapshot import OperatorSnapshot

#: The name of the inputs in the operator state of a snapshot.
CALLS: Final = "@calls"


@dataclass(frozen=True, slots=True)
class StoredCalls:
    """Turns the inputs of one step's calls into bytes and back."""

    step: str
    codec: Codec[Any]
    typed: bool
    """True if each value is encoded by itself, by the codec of its type."""
    keyed: bool
    """True if records belong to keys."""

    def encoded(self, subtask: int, calls: Sequence[Call]) -> tuple[bytes, ...]:
        """Raises ``CheckpointError``."""
        alike = [list(some) for _, some in groupby(calls, lambda call: call.timestamp is None)]
        return tuple(
            self._part(subtask, some[at : at + BATCH_RECORDS])
            for some in alike
            for at in range(0, len(some), BATCH_RECORDS)
        )

    def _part(self, subtask: int, calls: Sequence[Call]) -> bytes:
        timed = calls[0].timestamp is not None
        try:
            return PLAIN.encode(
                (
                    subtask,
                    self._values([call.value for call in calls]),
                    [call.timestamp for call in calls] if timed else None,
                    RECORDS.encode([call.key for call in calls]) if self.keyed else None,
                )
            )
        except CodecError as exc:
            raise UnstorableState(
                f"step {self.step!r} cannot store the records whose calls are under way: {exc}; declare what they are "
                f"with of=…, or how they are stored with codec=Pickled[…]()"
            ) from exc

    def _values(self, values: list[Any]) -> bytes | list[bytes]:
        if self.typed:
            return [self.codec.encode(value) for value in values]
        return self.codec.encode(values)

    def restored(
        self, snapshot: OperatorSnapshot, context: OperatorContext
    ) -> Iterator[Batch[Any]]:
        """Yield the records of the subtask of ``context``. Raises ``RestoreError``."""
        for subtask, batch in self.stored_batches(snapshot):
            yield from owned(subtask, batch, context)

    def stored_batches(self, snapshot: OperatorSnapshot) -> Iterator[tuple[int, Batch[Any]]]:
        """Yield all stored records, with the number of the former subtask. Raises ``RestoreError``."""
        return map(self._read, snapshot.operator.get(CALLS, ()))

    def _read(self, part: bytes) -> tuple[int, Batch[Any]]:
        try:
            subtask, stored, timestamps, keys = cast(
                "tuple[int, bytes | list[bytes], list[int] | None, bytes | None]",
                PLAIN.decode(part),  # written by _part
            )
            values = self._read_values(stored)
            known = None if keys is None else cast("list[Hashable]", RECORDS.decode(keys))
        except CodecError as exc:
            raise RestoreError(
                f"step {self.step!r} cannot read the records whose calls were under way: {exc}"
            ) from exc
        if self.keyed and known is None:
            raise RestoreError(
                f"step {self.step!r}: the records whose calls were under way belonged to no keys, and now the stream "
                f"is keyed: restore with the former pipeline, drain it, and change it then"
            )
        return subtask, Batch(values, timestamps, known)

    def _read_values(self, stored: bytes | list[bytes]) -> list[Any]:
        if isinstance(stored, bytes) is self.typed:
            raise RestoreError(
                f"step {self.step!r}: the records whose calls were under way were stored "
                f"{'without' if self.typed else 'with'} a type (of= or codec=): restore with the former pipeline, "
                f"drain it, and change it then"
            )
        if isinstance(stored, bytes):
            return cast("list[Any]", self.codec.decode(stored))
        return [self.codec.decode(one) for one in stored]


def owned(subtask: int, batch: Batch[Any], context: OperatorContext) -> Iterator[Batch[Any]]:
    """Yield the records of ``batch``, of a former ``subtask``, that belong to the subtask of ``context``."""
    mine = owned_places(subtask, batch, context)
    if len(mine) == len(batch):
        yield batch
    elif mine and (keys := batch.keys) is not None:
        picked = batch.pick(list(mine))
        yield Batch(picked.values, picked.timestamps, [keys[index] for index in mine])


def owned_places(subtask: int, batch: Batch[Any], context: OperatorContext) -> Sequence[int]:
    """Return the places in ``batch``, of a former ``subtask``, of the records of the subtask of ``context``."""
    if batch.keys is None:
        return range(len(batch) if subtask % context.parallelism == context.subtask else 0)
    return [
        index
        for index, key in enumerate(batch.keys)
        if key_group(key, context.key_group_count) in context.key_groups
    ]
