"""Steps that are closed at the end of each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aflow.operators.calls.async_process import (
    AsyncKeyedProcess,
)
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.calls.handlers.processes import Start
from tests.operators.calls.harness import CallHarness


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
