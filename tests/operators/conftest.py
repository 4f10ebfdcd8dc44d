"""Every test of an operator runs twice: straight, and with snapshot and restore after each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aflow.operators.base import Operator
from tests.operators.driver import Drive, Driver


@pytest.fixture(params=["straight", "restored after each step"])
def drive(request: pytest.FixtureRequest) -> Drive:
    restoring = request.param != "straight"

    def start(make: Callable[[], Operator], /) -> Driver:
        return Driver(make, restoring=restoring)

    return start
