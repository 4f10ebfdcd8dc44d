"""The check of keys in asynchronous steps, once for each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aflow.model.keys import UnsupportedKey, check_key

#: The number of checked keys after which all are forgotten, so that memory stays bounded.
_MOST: Final = 65_536


class ValidKeys:
    """Remembers valid keys: at most ``_MOST`` and those of one batch."""

    def __init__(self) -> None:
        self._known: set[Any] = set()

    def first_invalid(self, keys: Sequence[Any]) -> tuple[int, UnsupportedKey] | None:
        """Return the index and the error of the first key that keyed steps do not support; None if all are valid."""
        known = self._known
        try:
            if known.issuperset(keys):
                return None
        except TypeError:
            pass  # a key cannot be hashed: the check names it
        for index, key in enumerate(keys):
            try:
                check_key(key)
            except UnsupportedKey as exc:
                return index, exc
            known.add(key)
        if len(known) > _MOST:
            known.clear()
        return None
