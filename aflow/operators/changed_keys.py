"""Which keys of an operator have changed, for the operators that keep what they know of keys in dicts of their own.

Equal keys of different types (``1`` and ``True``) are stored as what they are, and then changes of the one are no
changes of the other: as soon as there may be such keys, all is captured each time (see ``KeyKinds``).

Nothing is noted before the first capture, which is complete in any case, so a job without checkpoints pays nothing.
From then on it is one update of a set for each batch, and never anything for a record.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sized
from typing import Final

from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyedRows

#: So many changed keys are not told apart any more: all is captured next. It bounds what a job notes that was restored
#: and takes no checkpoints.
_MOST: Final = 1 << 20

#: Rows that are captured in a few milliseconds, all of them.
_SMALL: Final = 20_000
#: Captures until it is tried again whether changes are fewer.
_REST: Final = 16

#: Changes of so few keys are never too many to be captured alone.
_FEW: Final = 256


class ChangedKeys:
    """The keys that have changed since the last capture, or since a restore."""

    __slots__ = ("_keys", "_kinds", "_resting")

    def __init__(self) -> None:
        self._kinds = KeyKinds()
        #: None: nothing is noted, as nobody asks for changes, or because there were too many.
        self._keys: set[Hashable] | None = None
        #: Captures for which nothing is noted: all is captured, as was seen to be best.
        self._resting = 0

    @property
    def noted(self) -> bool:
        """Whether it is known what has changed; if not, all is to be captured."""
        return self._keys is not None

    def add(self, keys: Iterable[Hashable]) -> None:
        """What is known of ``keys`` has changed, or may have. Raises ``TypeError`` for keys that cannot be hashed."""
        # Hot path: once for each batch of a keyed step.
        if self._keys is not None:
            self._keys.update(keys)
            if len(self._keys) > _MOST:
                self._keys = None

    def begin(self, keys: Collection[Hashable]) -> None:
        """Note what changes from here on, where ``keys`` are those there are."""
        self._keys = set()
        self._kinds.see(keys)

    def known_by_name(self, keys: Collection[Hashable]) -> bool:
        """Whether changes can be told by key, with ``keys`` among those that are stored; once not, never again."""
        self._kinds.see(keys)
        return not self._kinds.mixed

    def trusted(self, captured: KeyedRows) -> bool:
        """Whether ``captured`` may be stored: it is complete, or its keys tell all changes."""
        keys = [key for rows in captured.rows.values() for key, _ in rows]
        return self.known_by_name(keys) or captured.keys is None

    def take(self, *, changes: bool) -> set[Hashable] | None:
        """The keys that have changed, if ``changes`` are asked for and known; None: all is to be captured."""
        keys = self._keys
        self._keys = None if self._resting else set()
        self._resting = max(0, self._resting - 1)
        return keys if changes and self.known_by_name(keys or ()) else None

    def rest(self, rows: int) -> None:
        """Most of ``rows`` change from capture to capture: where they are few, noting costs more than it saves."""
        if rows <= _SMALL:
            self._keys, self._resting = None, _REST


def too_many(keys: Sized, rows: int, all_rows: int) -> bool:
    """True if changed ``keys`` with so many ``rows`` are more than half of ``all_rows``, so that those are captured.

    Then it takes little more, and a restore need not read what was captured before.
    """
    return len(keys) > _FEW and rows + max(rows, len(keys)) > all_rows
