"""Which keys of an operator have changed, for the operators that keep what they know of keys in dicts of their own.

Nothing is noted before the first capture, which is complete in any case, so a job without checkpoints pays nothing.
From then on it is one update of a set for each batch, and never anything for a record.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sized
from typing import Final

#: So many changed keys are not told apart any more: all is captured next. It bounds what a job notes that was restored
#: and takes no checkpoints.
_MOST: Final = 1 << 20

#: Changes of so few keys are never too many to be captured alone.
_FEW: Final = 256


class ChangedKeys:
    """The keys that have changed since the last capture, or since a restore."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        #: None: nothing is noted, as nobody asks for changes, or because there were too many.
        self._keys: set[Hashable] | None = None

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

    def begin(self) -> None:
        """Note what changes from here on."""
        self._keys = set()

    def take(self, *, changes: bool) -> set[Hashable] | None:
        """The keys that have changed, if ``changes`` are asked for and known; None: all is to be captured."""
        keys, self._keys = self._keys, set()
        return keys if changes else None


def too_many(keys: Sized, rows: int, all_rows: int) -> bool:
    """True if changed ``keys`` with so many ``rows`` are more than half of ``all_rows``, so that those are captured.

    Then it takes little more, and a restore need not read what was captured before.
    """
    return len(keys) > _FEW and rows + max(rows, len(keys)) > all_rows
