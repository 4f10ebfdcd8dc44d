"""Classes of a user's script or notebook, so that their instances can be sent between executors.

Classes defined in ``__main__`` are pickled by value, since ``__main__`` of an executor is another module. Instances and
stored state refer to their class by name. So the classes are sent with the code and registered under their names in
``__main__`` of the executor's process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

from aflow.backfill.exchange import forget_classes


def classes_of_main(dumps: Callable[[object], bytes]) -> dict[str, type]:
    """Return the classes defined in ``__main__``, nested ones included, that ``dumps`` can pickle."""
    main = sys.modules.get("__main__")
    found = [one for name, one in vars(main).items() if _is_named(one, name)]
    return {
        one.__qualname__: one
        for outer in found
        if _pickles(outer, dumps)
        for one in _with_inner(outer)
    }


def adopt(classes: Mapping[str, type]) -> None:
    """Register ``classes`` under their names in this process's ``__main__``; for executors only."""
    main = sys.modules["__main__"]
    new = False
    for name, one in classes.items():
        # Pickling by value loses the outer part of a nested class's name.
        if one.__qualname__ != name:
            one.__qualname__ = name
        if "." not in name and getattr(main, name, None) is not one:
            setattr(main, name, one)
            new = True
    if new:
        forget_classes()


def _with_inner(outer: type) -> Iterator[type]:
    yield outer
    for name, one in vars(outer).items():
        if _is_named(one, f"{outer.__qualname__}.{name}"):
            yield from _with_inner(one)


def _is_named(value: object, name: str) -> TypeGuard[type]:
    return isinstance(value, type) and value.__module__ == "__main__" and value.__qualname__ == name


def _pickles(value: object, dumps: Callable[[object], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True
