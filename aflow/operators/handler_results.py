"""What a process function may return: any iterable of results, or None."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from types import GeneratorType
from typing import Any, Final, TypeGuard

from aflow.errors import shown

#: Taken unseen. All else is looked at by ``iterable``.
TAKEN: Final = frozenset({list, tuple, GeneratorType})


def iterable(results: object) -> Iterable[Any]:
    """``results``, unless iterating over it is surely not meant. Raises ``TypeError`` that says what to return."""
    if isinstance(results, Coroutine):
        results.close()
        raise TypeError("returned a coroutine; a process function is a plain function")
    if _is_many(results):
        return results
    raise TypeError(
        f"returned {shown(results)}, not a list of results; return [result] for a single one"
    )


def _is_many(results: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(results, Iterable) and not isinstance(results, str | bytes | dict)
