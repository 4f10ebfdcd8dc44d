"""Names of parameters that are the same in each process, which tests that run in several at once need."""

from __future__ import annotations

import re
from typing import Final, cast

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def stable(value: object) -> str:
    """``repr(value)`` without addresses; of a frozenset, the elements in the order of their names."""
    if isinstance(value, frozenset):
        elements = cast("frozenset[object]", value)
        return f"frozenset({sorted(map(repr, elements))})"
    return _ADDRESS.sub("", repr(value))
