"""Steps that are closed at the end of each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aflow.machines.calls.on_error import OnError
from aflow.machines.calls.retry import RetryPolicy
from aflow.operators.calls.async_process import (
    AsyncKeyedProcess,
)
from aflow.state.backend_choice import StateBackend
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.calls.handlers.harness import Awaiting, settings
from tests.operators.calls.handlers.processes import Start


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Awaiting] = []

    def begin(
        function: AsyncKeyedProcess[Any, Any, Any],
        restored: OperatorSnapshot | None = None,
        *,
        backend: StateBackend | None = None,
        capacity: int = 100,
        timeout: int | None = None,
        retry: RetryPolicy | None = None,
        on_error: OnError[Any] | None = None,
    ) -> Awaiting:
        how = settings(function, capacity=capacity, timeout=timeout, retry=retry, on_error=on_error)
        started.append(Awaiting(function, how, restored=restored, backend=backend))
        return started[-1]

    yield begin
    for one in started:
        one.close()
