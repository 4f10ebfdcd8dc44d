"""Tests of windows run with each backend, and in memory also with gradual captures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.gradual import gradual_captures
from tests.operators.backends import BACKENDS, using

_GRADUAL: Final = "in memory, with gradual captures"


@pytest.fixture(
    autouse=True, scope="module", params=[*BACKENDS, pytest.param(_GRADUAL, id="gradual")]
)
def backend_of_windows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the state of all harnesses in one backend."""
    if request.param == _GRADUAL:
        with using(None), gradual_captures():
            yield
    else:
        with using(request.param):
            yield
