"""A check of the first result of a user function, at no cost for the others.

A function that returns a coroutine (``lambda p: ask(p)`` for an ``async def ask``) cannot be recognised before it is
called. ``FirstCall`` replaces it in an attribute of its operator and checks its result. When the first call has passed,
it puts the function itself into that attribute, so only the first batch has a check for each record.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any, Final

#: Advice by the method that the function was given to. Methods that are not listed need a result at once.
_CURES: Final = {
    "map()": "use map_async()",
    "filter()": "use filter_async()",
    "flat_map()": "use flat_map_async()",
    "map_batch()": "use map_batch_async()",
    "merge=": "make the call in a map_async() before or after this step",
    "into=": "make the call in a map_async() after this step",
    "Fallback()": "make the call in the function of the step, or in a map_async() after it",
    "Cache(key=…)": "return the key itself, for example a str",
    "a join": "return the pair, and make the call in a map_async() after the join",
    "a window": "return the values, and make the call in a map_async() after the window",
}


class MisuseError(TypeError):
    """A user function does not fit its step: a mistake in the pipeline, not in a record. No error policy applies."""


#: Messages name the class that users know.
MisuseError.__name__ = "TypeError"


def refuse_coroutine(result: object, method: str) -> None:
    """Raise ``MisuseError`` if a function given to ``method`` returned a coroutine. Closes the coroutine."""
    if isinstance(result, CoroutineType):
        result.close()  # so that Python does not report it as never awaited
        cure = _CURES.get(method, f"make the call in a map_async() before {method}")
        raise MisuseError(
            f"the function given to {method} returned a coroutine, which {method} does not await: {cure}"
        )


class FirstCall:
    """Replaces the function ``fn`` in attribute ``name`` of ``owner`` until a call of it has passed the check."""

    __slots__ = ("_fn", "_method", "_name", "_owner")

    def __init__(self, owner: object, name: str, fn: Callable[..., Any], method: str) -> None:
        self._owner = owner
        self._name = name
        self._fn = fn
        self._method = method

    def __call__(self, *arguments: Any) -> Any:
        result = self._fn(*arguments)
        refuse_coroutine(result, self._method)
        setattr(self._owner, self._name, self._fn)
        return result
