"""Classes of a user's script or notebook, so that their instances can go from executor to executor.

What is defined in ``__main__`` is sent to executors by value, since there ``__main__`` is another module. Its instances
are not: they name their class, and state does so as well. So the classes go along with the code, and get their names
back in the ``__main__`` of the executor's process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

from aflow.backfill.exchange import forget_classes


def classes_of_main(dumps: Callable[[object], bytes]) -> dict[str, type]:
    """The classes that were defined in ``__main__``, and inside of these, as far as ``dumps`` can pickle them."""
    main = sys.modules.get("__main__")
    found = [one for name, one in vars(main).items() if _is_named(one, name)]
    return {
        one.__qualname__: one
        for outer in found
        if _pickles(outer, dumps)
        for one in _with_inner(outer)
    }


def adopt(classes: Mapping[str, type]) -> None:
    """Give ``classes`` their names in this process's ``__main__``: in an executor, not where they come from."""
    main = sys.modules["__main__"]
    new = False
    for name, one in classes.items():
        # What is defined inside of a class has lost the name of that on its way.
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
