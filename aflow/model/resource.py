"""What async calls need besides their record, an HTTP session or a pool of connections, and who shares it."""

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
    """Something that is opened when the job begins, handed to the calls of a step, and closed after the last of them.

    ``open`` is called without arguments and gives an async context manager; a class whose objects are such managers
    is one such function::

        sessions = af.Resource(aiohttp.ClientSession)
        pools = af.Resource(lambda: asyncpg.create_pool(dsn), shared="database")

    Without ``shared`` each subtask of the step has its own. With it there is one in the whole job, for all steps that
    were given this very ``Resource``. It is opened anew whenever the job is started again, and always closed as at a
    normal end: it is not told whether the job has failed. ``name`` is what errors call it.

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
        """What errors call it: its name, else what it is shared as, else the name of the function that opens it."""
        function: object = getattr(self.open, "__name__", type(self.open).__name__)
        return self.name or self.shared or str(function)


def _check_open(given: object) -> None:
    if not callable(given):
        raise FlowDefinitionError(
            f"Resource() takes a function that gives an async context manager, not {shown(given)}: it is opened anew "
            f"each time the job is started; write Resource(lambda: …)"
        )
    if inspect.isasyncgenfunction(given):
        raise FlowDefinitionError(
            f"Resource() takes a function that gives an async context manager, and {shown(given)} is an async "
            f"generator function; decorate it with contextlib.asynccontextmanager"
        )
    if inspect.iscoroutinefunction(given):
        raise FlowDefinitionError(
            f"Resource() takes a function that gives an async context manager, and {shown(given)} is a coroutine "
            f"function; make it an async generator function with one yield, decorated with "
            f"contextlib.asynccontextmanager"
        )


def _check_text(value: object, what: str) -> None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise FlowDefinitionError(
            f"Resource({what}=…) takes a non-empty string, not {shown(value)}"
        )
