"""The keys of an operator that have changed, for operators that keep the state of keys in dicts of their own.

Equal keys of different types (``1`` and ``True``) are stored as different keys, and a change of one is no change of the
other. As soon as there may be such keys, all state is captured each time (see ``KeyKinds``).

Nothing is recorded before the first capture, which is complete in any case, so a job without checkpoints has no cost.
From then on the cost is one update of a set for each batch, and none for a record.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence, Sized
from typing import Any, Final

from aflow.operators.base import unsupported
from aflow.operators.pieces import CHUNK
from aflow.state.gradual_capture import GradualCaptures, ObservedRows
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import CombinedRows, KeyedRows, KeyRow

#: Maximum of recorded keys; beyond it the next capture is complete. It bounds the memory of a job that was restored
#: and takes no checkpoints.
_MOST: Final = 1 << 20

#: Number of rows of which a complete capture takes a few milliseconds.
_SMALL: Final = 20_000
#: Number of complete captures before changes are recorded again.
_REST: Final = 16

#: Number of keys of which changes are always captured alone.
_FEW: Final = 256


class ChangedKeys:
    """The keys that have changed since the last capture, or since a restore."""

    __slots__ = ("_keys", "_kinds", "_resting")

    def __init__(self) -> None:
        self._kinds = KeyKinds()
        #: None: nothing is recorded, since no capture wants changes, or there were too many.
        self._keys: set[Hashable] | None = None
        #: Remaining complete captures, for which nothing is recorded.
        self._resting = 0

    @property
    def noted(self) -> bool:
        """True if changes are recorded; if not, the next capture must be complete."""
        return self._keys is not None

    @property
    def kinds(self) -> KeyKinds:
        """The kinds of the keys that were observed, for others that store the same keys."""
        return self._kinds

    def add(self, keys: Iterable[Hashable]) -> None:
        """Record that the state of ``keys`` may have changed. Raises ``TypeError`` for unhashable keys."""
        # Hot path: once for each batch of a keyed step.
        if self._keys is not None:
            self._keys.update(keys)
            if len(self._keys) > _MOST:
                self._keys = None

    def discarded(self, entries: dict[Hashable, Any]) -> Iterator[int]:
        """Clear ``entries``, in pieces, and record that their keys have changed."""
        while entries:
            keys = [entries.popitem()[0] for _ in range(min(CHUNK, len(entries)))]
            self.add(keys)
            yield 0

    def begin(self) -> None:
        """Record changes from now on. All present keys must have been observed."""
        self._keys = set()

    def observe(self, keys: Collection[Hashable]) -> None:
        """Observe ``keys`` that are restored."""
        self._kinds.see(keys)

    def known_by_name(self, keys: Collection[Hashable]) -> bool:
        """Return True if changes can be identified by key, with ``keys`` among the stored ones. False is final."""
        self._kinds.see(keys)
        return not self._kinds.mixed

    def trusted(self, captured: KeyedRows) -> bool:
        """Return True if ``captured`` may be stored: it is complete, or its keys identify all changes."""
        keys = [key for rows in captured.rows.values() for key in _keys_at_once(rows)]
        return self.known_by_name(keys) or captured.keys is None

    def take(self, *, changes: bool) -> set[Hashable] | None:
        """Return the changed keys if ``changes`` are wanted and known; None: the capture must be complete."""
        keys = self._keys
        self._keys = None if self._resting else set()
        self._resting = max(0, self._resting - 1)
        return keys if changes and self.known_by_name(keys or ()) else None

    def rest(self, rows: int) -> None:
        """Stop recording for some captures if ``rows``, most of which change, are few: recording costs more."""
        if rows <= _SMALL:
            self._keys, self._resting = None, _REST


def _keys_at_once(rows: Iterable[KeyRow]) -> Iterator[Hashable]:
    """Return the keys of rows, without those that are observed otherwise.

    The keys of rows on disk are observed when they are loaded. A gradual capture observes the keys of its rows.
    """
    if isinstance(rows, CombinedRows):
        rows = rows.resident
    return iter(()) if isinstance(rows, ObservedRows) else (key for key, _ in rows)


def save_keys(captures: GradualCaptures, keys: Sequence[Hashable]) -> None:
    """Collect the rows of the keys of a batch, which may change now. Raises ``CheckpointError``."""
    try:
        captures.save(keys)
    except TypeError:  # of a key that cannot be hashed, whose record fails later
        captures.save([key for key in keys if unsupported(key) is None])


def too_many(keys: Sized, rows: int, all_rows: int) -> bool:
    """Return True if changed ``keys`` with ``rows`` rows are more than half of ``all_rows``: then capture all.

    A complete capture costs little more then, and a restore need not read earlier ones.
    """
    return len(keys) > _FEW and rows + max(rows, len(keys)) > all_rows
