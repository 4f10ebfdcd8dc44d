"""Results of a process function: any iterable, or None."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from types import GeneratorType
from typing import Any, Final, TypeGuard

from aflow.errors import shown
from aflow.operators.first_call import MisuseError

#: Types of results that are valid without a check by ``iterable``.
TAKEN: Final = frozenset({list, tuple, GeneratorType})


def iterable(results: object) -> Iterable[Any]:
    """Return ``results`` if it is meant to be iterated over. Raises ``MisuseError`` for a string, a dict and others."""
    if isinstance(results, Coroutine):
        results.close()
        raise MisuseError("returned a coroutine; a process function is a plain function")
    if _is_many(results):
        return results
    raise MisuseError(
        f"returned {shown(results)}, not a list of results; return [result] for a single one"
    )


def _is_many(results: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(results, Iterable) and not isinstance(results, str | bytes | dict)
