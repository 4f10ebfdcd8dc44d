"""Tests of windows run with each backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators.backends import BACKENDS, using


@pytest.fixture(autouse=True, scope="module", params=BACKENDS)
def backend_of_windows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the state of all harnesses in one backend."""
    with using(request.param):
        yield
