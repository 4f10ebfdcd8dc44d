"""Steps that are closed at the end of each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aflow.operators.calls.async_process import (
    AsyncKeyedProcess,
)
from aflow.state.disk import backend
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.calls.handlers.processes import Start
from tests.operators.calls.harness import CallHarness


@pytest.fixture(autouse=True, scope="module")
def few_timers_in_memory() -> Iterator[None]:
    """Keep all but two timers of a backend on disk in its database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "NEAR", 2)
        yield


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[CallHarness] = []

    def begin(
        function: AsyncKeyedProcess[Any, Any, Any],
        restored: OperatorSnapshot | None = None,
        **options: Any,
    ) -> CallHarness:
        started.append(CallHarness(handlers=function, restored=restored, **options))
        return started[-1]

    yield begin
    for one in started:
        one.close()
