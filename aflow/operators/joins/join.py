"""Kinds of joins, and the base of joins: two keyed inputs with event time, and a function that joins two records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from aflow.errors import OperatorError, RestoreError, UnstorableState, described, readable, shown
from aflow.machines.calls.on_error import Fail
from aflow.model.batch import Batch
from aflow.model.codecs import Codec, CodecError
from aflow.model.keys import CheckedKeys
from aflow.model.time import Timestamp
from aflow.operators.base import (
    RAISED,
    OperatorContext,
    TwoInputOperator,
    is_of_record,
    unsupported,
)
from aflow.operators.changed_keys import ChangedKeys, save_keys
from aflow.operators.first_call import FirstCall
from aflow.operators.group_watermarks import no_group_ahead, restored_watermarks
from aflow.operators.joins.buffered_records import BufferingStep, JoinState
from aflow.operators.joins.columns import decoded, encoded
from aflow.operators.keyed_state import key_group_codec
from aflow.state.gradual_capture import GradualCaptures
from aflow.state.keyed_entries import CapturedRows, Keyed, KeyedRows, RowColumns
from aflow.state.layouts import state_codec
from aflow.state.readable_state import ReadableState
from aflow.state.snapshot import OperatorSnapshot

#: Side output of late records of the left input.
LATE_LEFT: Final = "late-left"

#: Side output of late records of the right input.
LATE_RIGHT: Final = "late-right"


class Join(Enum):
    """Selects the records that are also emitted without a partner, with ``None`` in its place."""

    INNER = "inner"
    """Pairs only."""
    LEFT = "left"
    """Pairs, and left records without a partner."""
    RIGHT = "right"
    """Pairs, and right records without a partner."""
    FULL = "full"
    """Pairs, and records of both inputs without a partner."""

    @property
    def keeps_left(self) -> bool:
        """Return True if left records without a partner are emitted."""
        return self is Join.LEFT or self is Join.FULL

    @property
    def keeps_right(self) -> bool:
        """Return True if right records without a partner are emitted."""
        return self is Join.RIGHT or self is Join.FULL


JoinFunction: TypeAlias = Callable[[Any, Any], Any]
"""Returns the result for a left record and a right one; one of them may be None in an outer join."""


class _FailedPair(NamedTuple):
    """A pair for which the function raised ``cause``, in place of its result."""

    cause: Exception
    left: Any
    right: Any


KeyRecords: TypeAlias = tuple[Any, ...]
"""A key, timestamps and values of its records, and plain values to store with them."""


class JoinOperator(TwoInputOperator, BufferingStep):
    """Base of operators that join two keyed inputs. ``left_type`` and ``right_type`` are the types of their records.

    Snapshots need them, and ``key_type``, unless records and keys are plain Python values.
    """

    def __init__(
        self,
        into: JoinFunction,
        *,
        left_type: type[Any] | None = None,
        right_type: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        self._into: JoinFunction = FirstCall(self, "_into", into, "a join")
        self._left_codec = state_codec(left_type)
        self._right_codec = state_codec(right_type)
        self._key_type = key_type
        self._gradual: Final = GradualCaptures()

    #: The name of the buffered records for readers of the state.
    state_name = "records"

    def readable_state(self) -> ReadableState:
        return JoinState(self, self._key_codec, self.state_name)

    def stored_state(self, snapshot: OperatorSnapshot, context: OperatorContext) -> ReadableState:
        self.open(context)
        self.restore(snapshot)
        return self.readable_state()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._key_codec = key_group_codec(context, self._key_type)
        self._changed = ChangedKeys()
        #: The watermarks of key groups that a restore found ahead of this subtask.
        self._ahead = no_group_ahead(context)
        self._known_keys = CheckedKeys()

    def close(self) -> None:
        self._gradual.complete()

    def _on_expiry(self, keys: list[Hashable]) -> None:
        """Record that records of ``keys`` are about to be dropped."""
        if self._gradual:
            self._gradual.save(keys)
        self._changed.add(keys)

    def _save(self, keys: Sequence[Hashable]) -> None:
        """Collect the records of the keys of a batch, which may change now, for captures."""
        save_keys(self._gradual, keys)

    def _columns(
        self, batch: Batch[Any], side: str
    ) -> tuple[Sequence[Hashable], Sequence[Timestamp]]:
        """Return keys and timestamps of a batch. Raises ``OperatorError`` if its records have no timestamps."""
        if batch.timestamps is None:
            raise OperatorError(
                f"step {self.name!r} joins by event time, but the records of its {side} input have no timestamps; "
                f"call .event_time(…) before .key_by(…) on that stream",
                operator=self.name,
                record=batch.values[0],
            )
        return self.keys_of(batch), batch.timestamps

    def _pair_function(self) -> JoinFunction:
        """Return the function of pairs for one batch: with a policy it returns a ``_FailedPair`` if it raises."""
        if isinstance(self.on_error, Fail):
            return self._into

        def into(left: Any, right: Any) -> Any:
            try:
                return self._into(left, right)
            except RAISED as exc:
                if not is_of_record(exc):
                    raise
                return _FailedPair(exc, left, right)

        return into

    def _emit_pairs(self, values: list[Any], times: list[Timestamp]) -> None:
        """Emit the results of pairs; ``on_error`` applies to those for which the function failed."""
        if not isinstance(self.on_error, Fail):
            pairs = [
                pair for one in zip(values, times, strict=True) for pair in self._settled(*one)
            ]
            values, times = [value for value, _ in pairs], [at for _, at in pairs]
        self.emit_all(values, times)

    def _settled(self, value: Any, at: Timestamp) -> list[tuple[Any, Timestamp]]:
        if not isinstance(value, _FailedPair):
            return [(value, at)]
        left, right = value.left, value.right
        error = self._failed(value.cause, None, at, left, right)
        return [
            (replaced, at) for replaced in self.settle_record(value.cause, error, (left, right), at)
        ]

    def _join_pair(self, key: Hashable, at: Timestamp, left: object, right: object) -> Any:
        try:
            return self._pair_function()(left, right)
        except RAISED as exc:
            raise self._failed(exc, key, at, left, right) from exc

    def _failed(
        self, cause: BaseException, key: Hashable, at: Timestamp, left: object, right: object
    ) -> OperatorError:
        """Describe ``cause``, raised by the function for two records, one of which has timestamp ``at``."""
        return OperatorError(
            f"step {self.name!r} failed to join left record {shown(left)} with right record {shown(right)}, "
            f"key {shown(key)}, timestamp {at} ({readable(at)}): {described(cause)}",
            operator=self.name,
            record=(left, right),
            key=key,
            timestamp=at,
        )

    def _check_keys(self, batch: Batch[Any], keys: Sequence[Hashable]) -> None:
        """Raise ``OperatorError`` for a key of an unsupported type. Each key is checked when it is first seen."""
        known = self._known_keys
        try:
            for key in [key for key in set(keys) if key not in known]:
                known[key]
        except TypeError as exc:
            for index, key in enumerate(keys):
                if reason := unsupported(key):
                    raise self.failure_at(reason, batch, index) from exc
            raise

    # ------------------------------------------------------------------------------------- snapshots

    def capture(self, *, changes: bool) -> CapturedRows:
        """Return all records or the changes. Raises ``CheckpointError`` for a record that cannot be encoded."""
        self._gradual.complete()
        rows = self._rows(self._changed.take(changes=changes))
        if not self._identifies_changes(rows):
            rows = self._rows(None)
        known = self._ahead.stored(self.watermark, self.context.key_groups)
        return CapturedRows(self._key_codec, rows, operator=known)

    def restore_in_pieces(self, snapshot: OperatorSnapshot) -> Iterator[None]:
        """Restore the records, and continue at the smallest watermark of the former subtasks."""
        self.watermark, self._ahead = restored_watermarks(snapshot, self.watermark, self.context)
        yield from self._restore_rows(snapshot.keyed)
        self._changed.begin()

    def _identifies_changes(self, rows: KeyedRows) -> bool:
        """Return True if ``rows`` may be stored: they are complete, or their keys identify all changes."""
        return self._changed.trusted(rows)

    @abstractmethod
    def _rows(self, keys: set[Hashable] | None) -> KeyedRows:
        """Return the records of ``keys``, or of all keys, if there are as many changes too."""

    @abstractmethod
    def _restore_rows(self, keyed: Keyed) -> Iterator[None]:
        """Restore the records of the keys of this subtask, in pieces."""

    def _encoded(self, records: Iterable[KeyRecords], codec: Codec[Any], side: str) -> RowColumns:
        keys: list[Hashable] = []
        rows: list[bytes] = []
        for key, times, values, *more in records:
            keys.append(key)
            try:
                rows.append(encoded(times, values, codec, *more))
            except CodecError as exc:
                raise UnstorableState(
                    f"step {self.name!r} cannot store the {side} records of key {shown(key)}: {exc}"
                ) from exc
        return RowColumns(keys, rows)

    def _decoded(
        self, keyed: Keyed, name: str, codec: Codec[Any], side: str
    ) -> Iterator[tuple[Hashable, list[Timestamp], list[Any], list[Any]]]:
        """Yield key, timestamps, values, and the plain values that were stored with them. Raises ``RestoreError``."""
        for keys, stored in self._key_codec.read_in_pieces(keyed, name):
            self._changed.observe(keys)
            for key, data in zip(keys, stored, strict=True):
                try:
                    yield key, *decoded(data, codec)
                except CodecError as exc:
                    raise RestoreError(
                        f"step {self.name!r} cannot read the stored {side} records of key {shown(key)}: {exc}"
                    ) from exc
