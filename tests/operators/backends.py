"""Harnesses of which the state is in the backend of the test module: in memory, or a tiny cache above a database."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeVar
from weakref import WeakSet

import pytest

from aflow.errors import AflowError
from aflow.operators.base import Operator
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk, StateBackend
from aflow.state.disk import ranged_rows
from aflow.state.disk.rocksdb import rocksdb_installed
from aflow.state.disk.timer_database import NEAR
from aflow.testing import Mode, OperatorHarness
from aflow.testing.step_harness import StepHarness
from tests.sorted_store import sorted_stores

T = TypeVar("T")
U = TypeVar("U")

#: On disk with a database of the tests. With one resident row nearly every batch evicts rows.
BACKENDS = [pytest.param("memory"), pytest.param("disk")]

#: On disk with each database.
ENGINES = [
    pytest.param(DiskEngine.SQLITE, id="sqlite"),
    pytest.param(
        DiskEngine.ROCKSDB,
        id="rocksdb",
        marks=pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict"),
    ),
]

_IN_MEMORY: Final[StateBackend] = InMemory()
_CURRENT: Final[ContextVar[StateBackend]] = ContextVar("backend", default=_IN_MEMORY)


def backend() -> StateBackend:
    """Return the backend of the test."""
    return _CURRENT.get()


#: Harnesses of this test, so that their databases are not closed by the garbage collector at any time, as while it
#: runs inside `ast.parse` (CPython 3.11 fails then).
_HARNESSES: Final[WeakSet[StepHarness[Any, Any]]] = WeakSet()


def created(harness: StepHarness[Any, Any]) -> None:
    """Close ``harness`` at the end of the test if its state is on disk."""
    if isinstance(backend(), OnDisk):
        _HARNESSES.add(harness)


def close_unused(harness: StepHarness[Any, Any]) -> None:
    """Close a harness that is deleted, before the garbage collector deletes its operator."""
    if not hasattr(harness, "operator"):
        return  # it could not be created
    if isinstance(harness.operator.context.backend, OnDisk):
        with suppress(AflowError):
            harness.close()


def close_harnesses() -> None:
    """Close the harnesses of a test."""
    for harness in list(_HARNESSES):
        with suppress(AflowError):
            harness.close()
    _HARNESSES.clear()


@contextmanager
def using(
    kind: Literal["memory", "disk"] | DiskEngine, resident: int = 1
) -> Generator[StateBackend]:
    """Let new harnesses keep their state in the backend of ``kind``: see ``BACKENDS`` and ``ENGINES``.

    On disk they have up to ``resident`` timers of windows in memory.
    """
    with ExitStack() as end:
        chosen: StateBackend = _IN_MEMORY
        if kind != "memory":
            folder = end.enter_context(TemporaryDirectory(prefix="aflow-test-"))
            engine = kind if isinstance(kind, DiskEngine) else end.enter_context(sorted_stores())
            chosen = OnDisk(engine, Path(folder), resident)
        token = _CURRENT.set(chosen)
        end.callback(_CURRENT.reset, token)
        patch = end.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(ranged_rows, "NEAR", min(resident, NEAR))
        yield chosen


class BackendHarness(OperatorHarness[T, U]):
    """A harness whose state is in the backend of the test."""

    def __init__(
        self,
        factory: Callable[[], Operator],
        *,
        key: Callable[[T], Hashable] | None = None,
        mode: Mode = Mode.STRAIGHT,
        **options: Any,
    ) -> None:
        options.setdefault("backend", backend())
        super().__init__(factory, key=key, mode=mode, **options)
        created(self)

    def __del__(self) -> None:
        close_unused(self)
