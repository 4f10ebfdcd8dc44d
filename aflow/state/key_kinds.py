"""Detection of equal keys with different bytes.

Theory. ``1``, ``1.0`` and ``True`` are one key, but have different bytes in a snapshot. A complete snapshot is correct
nevertheless. Changes are not: a row of ``True`` in a newer snapshot does not replace that of ``1`` in an older one. The
bytes of each key at its first snapshot would take memory for all keys, so the *kinds* of keys are observed instead.
Kinds whose keys may be equal are a *family*. As long as keys of a family are of one kind, equal keys have equal bytes.
Nearly all steps have keys of one kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Iterable
from datetime import date, datetime
from enum import Enum
from itertools import chain
from typing import Any, Final, cast
from uuid import UUID

#: Types whose equal values have equal bytes, and their families.
_SIMPLE: Final[dict[type, object]] = {
    **{kind: kind for kind in (str, bytes, type(None), UUID, date)},
    **dict.fromkeys((int, bool, float), "number"),
}


class KeyKinds:
    """The kinds of keys that were observed."""

    __slots__ = ("_kinds", "mixed")

    def __init__(self) -> None:
        #: The kind of each family.
        self._kinds: dict[object, object] = {}
        self.mixed: bool = False
        """True from the moment on when equal keys may have different bytes."""

    def see(self, keys: Collection[Hashable]) -> None:
        """Observe ``keys``. Numbers and text take nearly no time."""
        if self.mixed:
            return
        types = set(map(type, keys))
        if float in types and any(key == 0 for key in keys if type(key) is float):
            self.mixed = True  # 0.0 and -0.0
        for kind in types & _SIMPLE.keys():
            self._note(_SIMPLE[kind], kind)
        if tuple in types and not self._flat(key for key in keys if type(key) is tuple):
            types.add(object)  # to be examined
        if not types <= _SIMPLE.keys() | {tuple}:
            self._examine(key for key in keys if type(key) not in _SIMPLE)

    def _flat(self, keys: Iterable[Hashable]) -> bool:
        """Return True if tuples have text only, in any number: equal ones have equal bytes."""
        parts = cast("Iterable[tuple[object, ...]]", keys)
        return set(map(type, chain.from_iterable(parts))) <= {str}

    def _examine(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            shape = _shape(key)
            if shape is None:
                self.mixed = True
                return
            self._note(*shape)

    def _note(self, family: object, kind: object) -> None:
        if self._kinds.setdefault(family, kind) != kind:
            self.mixed = True


def _shape(key: Any) -> tuple[object, object] | None:
    """Return the family and the kind of ``key``; None if equal keys of its kind may have different bytes."""
    kind = cast("Any", type(key))
    if kind in _SIMPLE:
        return None if kind is float and key == 0 else (_SIMPLE[kind], kind)
    if issubclass(kind, tuple):
        return _shape_of_parts(tuple, cast("object", kind), key)
    if kind is datetime:
        return None if key.fold else (datetime, key.tzinfo)
    if issubclass(kind, Enum):
        return next((of for base, of in _SIMPLE.items() if issubclass(kind, base)), kind), kind
    names = _names(kind)
    return (
        None
        if names is None
        else _shape_of_parts(kind, kind, [getattr(key, name) for name in names])
    )


def _names(kind: Any) -> Collection[str] | None:
    """Return the fields of a dataclass or struct if its equality compares all of them, else None."""
    fields: dict[str, dataclasses.Field[Any]] = getattr(kind, "__dataclass_fields__", {})
    if fields:
        return fields if all(field.compare for field in fields.values()) else None
    return cast("tuple[str, ...] | None", getattr(kind, "__struct_fields__", None))


def _of_simple(part: object) -> bool:
    return isinstance(part, Enum) and isinstance(part, tuple(_SIMPLE))


def _shape_of_parts(
    of: type, kind: object, parts: Iterable[object]
) -> tuple[object, object] | None:
    # An enum of text in a tuple may equal plain text there, which `_flat` does not observe.
    shapes = [None if _of_simple(part) else _shape(part) for part in parts]
    if None in shapes:
        return None
    known = cast("list[tuple[object, object]]", shapes)
    return (of, *(family for family, _ in known)), (kind, *(own for _, own in known))
