"""Whether equal keys of one step may have been stored as different bytes.

Theory. ``1``, ``1.0`` and ``True`` are one key, and a snapshot stores each as what it is. In a complete snapshot that
does no harm. Changes do not fit together any more: what an older one says of ``1``, a newer one does not replace by
saying it of ``True``. To remember for each key how it was first stored would take memory for every key, so this watches
the *kinds* of keys instead. Keys are of one *family* if some of theirs may be equal; as long as a family has one kind,
equal keys of it have equal bytes. Nearly every step has keys of one kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Iterable
from datetime import date, datetime
from enum import Enum
from itertools import chain
from typing import Any, Final, cast
from uuid import UUID

#: Types whose equal values are the same in all that is stored, and their families.
_SIMPLE: Final[dict[type, object]] = {
    **{kind: kind for kind in (str, bytes, type(None), UUID, date)},
    **dict.fromkeys((int, bool, float), "number"),
}


class KeyKinds:
    """The kinds of keys that were seen."""

    __slots__ = ("_kinds", "mixed")

    def __init__(self) -> None:
        #: The kind of each family.
        self._kinds: dict[object, object] = {}
        self.mixed: bool = False
        """Whether equal keys may have been stored as different bytes; once it is true it stays so."""

    def see(self, keys: Collection[Hashable]) -> None:
        """Take note of ``keys``: nearly nothing for each, if they are numbers or text."""
        if self.mixed:
            return
        types = set(map(type, keys))
        if float in types and any(key == 0 for key in keys if type(key) is float):
            self.mixed = True  # 0.0 and -0.0
        for kind in types & _SIMPLE.keys():
            self._note(_SIMPLE[kind], kind)
        if tuple in types and not self._flat(key for key in keys if type(key) is tuple):
            types.add(object)  # look closely
        if not types <= _SIMPLE.keys() | {tuple}:
            self._look_closely(key for key in keys if type(key) not in _SIMPLE)

    def _flat(self, keys: Iterable[Hashable]) -> bool:
        """True if tuples are of text alone, of whatever length: equal ones are stored alike."""
        parts = cast("Iterable[tuple[object, ...]]", keys)
        return set(map(type, chain.from_iterable(parts))) <= {str}

    def _look_closely(self, keys: Iterable[Hashable]) -> None:
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
    """The family and the kind of ``key``; None if even keys of one kind may be equal and stored differently."""
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
    """The fields of a dataclass, or of a struct, all of which its equality compares."""
    fields: dict[str, dataclasses.Field[Any]] = getattr(kind, "__dataclass_fields__", {})
    if fields:
        return fields if all(field.compare for field in fields.values()) else None
    return cast("tuple[str, ...] | None", getattr(kind, "__struct_fields__", None))


def _of_simple(part: object) -> bool:
    return isinstance(part, Enum) and isinstance(part, tuple(_SIMPLE))


def _shape_of_parts(
    of: type, kind: object, parts: Iterable[object]
) -> tuple[object, object] | None:
    # An enum of text inside a tuple could equal plain text there, which `_flat` has not noted.
    shapes = [None if _of_simple(part) else _shape(part) for part in parts]
    if None in shapes:
        return None
    known = cast("list[tuple[object, object]]", shapes)
    return (of, *(family for family, _ in known)), (kind, *(own for _, own in known))
