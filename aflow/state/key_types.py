"""Declared types of keys: the keys that they exclude, and their classes for messages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints


def classes_of(declared: object) -> frozenset[type] | None:
    """Return the classes of the values of a type; None if they are not known."""
    if declared is Any:
        return None  # a class since Python 3.11
    if declared is None:
        return frozenset({NoneType})
    declared = getattr(declared, "__supertype__", declared)  # of NewType
    origin = get_origin(declared)
    if origin is Annotated:
        return classes_of(get_args(declared)[0])
    if origin is Literal:
        return frozenset(map(type, get_args(declared)))
    if origin in (Union, UnionType):
        parts = [classes_of(one) for one in get_args(declared)]
        known = [one for one in parts if one is not None]
        return frozenset[type]().union(*known) if len(known) == len(parts) else None
    kind = origin or declared
    return frozenset({kind}) if isinstance(kind, type) else None


def never_begins(declared: object, prefix: str | tuple[Hashable, ...]) -> bool:
    """Return True if no key of the type ``declared`` can begin with ``prefix``; False also if that is not known."""
    if isinstance(prefix, str):
        return not _admits(declared, str)
    if not _admits(declared, tuple):
        return True
    return any(map(_excludes, _parts(declared), prefix))


def _admits(declared: object, base: type) -> bool:
    """Return True if a value of the type may be an instance of ``base``."""
    classes = classes_of(declared)
    return classes is None or any(issubclass(one, base) or issubclass(base, one) for one in classes)


def _excludes(declared: object, part: Hashable) -> bool:
    """Return True if no value of the type equals ``part``: one of them is text and the other is not."""
    if isinstance(part, str):
        return not _admits(declared, str)
    classes = classes_of(declared)
    return classes is not None and all(issubclass(one, str) for one in classes)


def _parts(declared: object) -> Sequence[object]:
    """Return the types of the first parts of keys that are tuples, as far as they are known."""
    kind: Any = getattr(declared, "__supertype__", declared)
    if get_origin(kind) is tuple:
        return [one for one in get_args(kind) if one is not Ellipsis]
    names = cast("Sequence[str]", getattr(kind, "_fields", ()))  # of a named tuple
    if not names:
        return ()
    try:
        hints = get_type_hints(kind)
    except Exception:  # a name that is not defined where the class is
        return ()
    return [hints.get(name, Any) for name in names]
