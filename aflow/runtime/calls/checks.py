"""Check the functions that users pass to async methods when the flow is built, not at the first record.

Otherwise ``Drop()`` would drop each record for a mistake in the definition.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.calls.on_error import Fallback
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallSettings
from aflow.runtime.calls.result_lists import gives_one_by_one

#: Arguments of each method besides ``CallOptions``.
_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "map_async": ("using", "into", "name"),
    "flat_map_async": ("using", "name"),
    "filter_async": ("using", "name"),
    "map_batch_async": ("size", "delay", "using", "into", "name"),
}


def check_names(method: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Raises ``TypeError``, as Python does, for an option that there is not."""
    names = (*known, *_OWN.get(method, ("name",)))
    for name in options:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise TypeError(
                f"{method}() has no argument {name!r}{hint}; it takes {', '.join(names)}"
            )


def check_called(method: str, fn: object, *, with_resource: bool) -> None:
    """Refuse a function that could not be called for any record. Raises ``FlowDefinitionError``."""
    if inspect.iscoroutine(fn):
        raise FlowDefinitionError(
            f"{method}() takes an async function, and {shown(fn)} is what calling one gave; hand over the function "
            f"itself: {method}({fn.__name__}), not {method}({fn.__name__}(…))"
        )
    if not callable(fn):
        raise FlowDefinitionError(f"{method}() takes an async function, not {shown(fn)}")
    if method != "flat_map_async" and gives_one_by_one(fn):
        raise FlowDefinitionError(
            f"{method}() takes a function that returns once, and {shown(fn)} is an async generator function; "
            f"flat_map_async() takes what yields any number of results"
        )
    _check_arguments(method, fn, with_resource=with_resource)


def _check_arguments(method: str, fn: Callable[..., Any], *, with_resource: bool) -> None:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # builtins that do not say what they take
    value = "a list of values" if method == "map_batch_async" else "the value"
    try:
        signature.bind(*(object() for _ in range(2 if with_resource else 1)))
    except TypeError as exc:
        given = f"{value} and what its Resource has opened" if with_resource else f"{value} alone"
        hint = (
            "take the resource as the second argument, or leave using= out"
            if with_resource
            else "what it needs besides comes second with using=Resource(…), or is bound by functools.partial"
        )
        raise FlowDefinitionError(
            f"{method}() calls its function with {given}, and {shown(fn)} takes {signature}: {exc}; {hint}"
        ) from exc


def check_plain(method: str, settings: CallSettings) -> None:
    """Refuse async functions where results are not awaited. Raises ``FlowDefinitionError``."""
    for where, fn in _plain_functions(settings):
        if is_async(fn):
            raise FlowDefinitionError(
                f"{method}({where}) takes a plain function, which is called and not awaited, and {shown(fn)} is a "
                f"coroutine function; what is to be awaited belongs in the function of the step"
            )


def _plain_functions(settings: CallSettings) -> Iterator[tuple[str, object]]:
    yield "into=…", settings.into
    yield "deadline=…", settings.deadline
    if isinstance(settings.on_error, Fallback):
        yield "on_error=Fallback(…)", settings.on_error.result
    retry, rate, cache = settings.retry, settings.rate, settings.cache
    if isinstance(retry, Retry):
        yield "retry=Retry(on=…)", retry.on
        yield "retry=Retry(on_result=…)", retry.on_result
    elif retry is not None:
        yield f"retry={type(retry).__name__}", retry.again
    if rate is not None:
        yield "rate=RateLimit(cost=…)", rate.cost
    if cache is not None:
        yield "cache=Cache(key=…)", cache.key
        yield "cache=Cache(negative=…)", cache.negative


def is_async(fn: object) -> bool:
    """True for ``async def`` functions and methods, async generators, and objects whose ``__call__`` is one."""
    call = fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
    inner = getattr(fn, "func", call)  # functools.partial
    return any(
        inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
        for one in (fn, call, inner)
    )
