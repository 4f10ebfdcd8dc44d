"""Resources of async calls, such as an HTTP session or a pool of connections, and the scope that shares them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from aflow.errors import FlowDefinitionError, shown

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Resource(Generic[R_co]):
    """A resource that is opened when the job starts, passed to the calls of a step, and closed after the last of them.

    ``open`` is called without arguments and returns an async context manager; a class of such managers is one such
    function::

        sessions = af.Resource(aiohttp.ClientSession)
        pools = af.Resource(lambda: asyncpg.create_pool(dsn), shared="database")

    Without ``shared`` each subtask of the step has its own. With it there is one in the whole job, for all steps with
    the same ``Resource`` object. It is opened anew at each restart of the job, and always closed as at a normal end,
    also if the job has failed. ``name`` is its name in errors.

    Raises ``FlowDefinitionError`` for arguments that make no sense.
    """

    open: Callable[[], AbstractAsyncContextManager[R_co]]
    shared: str | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_open(self.open)
        _check_text(self.shared, "shared")
        _check_text(self.name, "name")

    @property
    def label(self) -> str:
        """Its name in errors: ``name``, else ``shared``, else the name of the function ``open``."""
        function: object = getattr(self.open, "__name__", type(self.open).__name__)
        return self.name or self.shared or str(function)


def _check_open(given: object) -> None:
    if not callable(given):
        raise FlowDefinitionError(
            f"Resource() takes a function that returns an async context manager, not {shown(given)}: it is opened anew "
            f"at each start of the job; write Resource(lambda: …)"
        )
    if inspect.isasyncgenfunction(given):
        raise FlowDefinitionError(
            f"Resource() takes a function that returns an async context manager, and {shown(given)} is an async "
            f"generator function; decorate it with contextlib.asynccontextmanager"
        )
    if inspect.iscoroutinefunction(given):
        raise FlowDefinitionError(
            f"Resource() takes a function that returns an async context manager, and {shown(given)} is a coroutine "
            f"function; make it an async generator function with one yield, decorated with "
            f"contextlib.asynccontextmanager"
        )


def _check_text(value: object, what: str) -> None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise FlowDefinitionError(
            f"Resource({what}=…) takes a non-empty string, not {shown(value)}"
        )
