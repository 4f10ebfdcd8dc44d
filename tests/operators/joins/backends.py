"""Operators with a backend of their own, for harnesses, whose backend is in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from aflow.operators.base import Operator, OperatorContext
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk
from aflow.state.disk.rocksdb import rocksdb_installed

O = TypeVar("O", bound=Operator)  # noqa: E741 - as in aflow.testing

ENGINES = [
    pytest.param(engine, id=engine.value)
    for engine in DiskEngine
    if engine is DiskEngine.SQLITE or rocksdb_installed()
]

every_engine = pytest.mark.parametrize("engine", ENGINES)


def with_backend(operator: O, backend: InMemory | OnDisk) -> O:
    """Return ``operator``, which keeps its state in ``backend``."""
    opened = operator.open

    def open_with(context: OperatorContext) -> None:
        opened(replace(context, backend=backend))

    operator.open = open_with  # type: ignore[method-assign]
    return operator


def memory_and(engine: DiskEngine) -> list[InMemory | OnDisk]:
    """Return a backend in memory, and one on disk with as few resident keys as possible."""
    return [InMemory(), OnDisk(engine, resident=1)]
