"""Classes of a user's script or notebook, so that their instances can go from executor to executor.

What is defined in ``__main__`` is sent to executors by value, since there ``__main__`` is another module. Its instances
are not: they name their class, and state does so as well. So the classes go along with the code, and get their names
back in the ``__main__`` of the executor's process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from aflow.backfill.exchange import forget_classes


def classes_of_main(dumps: Callable[[object], bytes]) -> tuple[type, ...]:
    """The classes at the top of ``__main__`` that were defined there, as far as ``dumps`` can pickle them."""
    main = sys.modules.get("__main__")
    found = [
        value
        for name, value in vars(main).items()
        if isinstance(value, type) and value.__module__ == "__main__" and value.__qualname__ == name
    ]
    return tuple(one for one in found if _pickles(one, dumps))


def adopt(classes: tuple[type, ...]) -> None:
    """Give ``classes`` their names in this process's ``__main__``: in an executor, not where they come from."""
    main = sys.modules["__main__"]
    new = [one for one in classes if getattr(main, one.__qualname__, None) is not one]
    for one in new:
        setattr(main, one.__qualname__, one)
    if new:
        forget_classes()


def _pickles(value: object, dumps: Callable[[object], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True
