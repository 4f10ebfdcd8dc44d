"""Lookup of the reader of a key in a keyed exchange."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from aflow.errors import OperatorError
from aflow.model.batch import Batch
from aflow.model.key_groups import key_group, subtask_of
from aflow.operators.base import unsupported

#: The most keys that are cached.
_MOST: Final = 65_536


class KeyOwners:
    """The index of the reader of each key, by key group. ``step`` is the sending step, for errors."""

    def __init__(self, step: str, key_groups: int, readers: int) -> None:
        self._step = step
        self._key_groups = key_groups
        self._readers = readers
        #: Readers by key, for recent keys. A plain ``dict``, since CPython looks up in those a third faster than in a
        #: subclass that fills itself.
        self.known: dict[Hashable, int] = {}

    def learn(self, batch: Batch[Any], keys: Sequence[Hashable]) -> None:
        """Find the owners of ``keys``. All others are forgotten once there are many, which limits the memory.

        Raises ``OperatorError`` for an invalid key.
        """
        if len(self.known) >= _MOST:
            self.known.clear()
        for index, key in enumerate(keys):
            try:
                if key not in self.known:
                    self.known[key] = self._owner(key)
            except (
                TypeError
            ) as exc:  # an UnsupportedKey, or the error of a dict for an unhashable key
                cause = unsupported(key) or exc
                raise OperatorError.of(
                    self._step, cause, record=batch.values[index], key=key
                ) from cause

    def _owner(self, key: Hashable) -> int:
        group = key_group(key, self._key_groups)
        return subtask_of(group, self._key_groups, self._readers)
