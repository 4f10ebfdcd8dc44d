"""Every test of an operator runs straight, with snapshot and restore after each step, and with captured changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aflow.operators.base import Operator
from aflow.testing import Mode
from tests.operators.backends import close_harnesses
from tests.operators.driver import Drive, Driver


@pytest.fixture(autouse=True)
def closed_harnesses() -> Iterator[None]:
    """Close the databases of harnesses at the end of each test."""
    yield
    close_harnesses()


@pytest.fixture(params=Mode)
def drive(request: pytest.FixtureRequest) -> Drive:
    mode: Mode = request.param

    def start(make: Callable[[], Operator], /) -> Driver:
        return Driver(make, mode=mode)

    return start
