"""Tests of windows run in memory, in memory with gradual captures, and on disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aflow.testing import Mode
from tests.gradual import gradual_captures
from tests.operators.backends import BACKENDS, using


@pytest.fixture(autouse=True, scope="module", params=[*BACKENDS, "gradual"])
def backend_of_windows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the state of all harnesses in one backend."""
    if request.param == "gradual":
        with using("memory"), gradual_captures():
            yield
    else:
        with using(request.param):
            yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remove tests with gradual captures in the mode that captures nothing."""
    items[:] = [item for item in items if not _captures_nothing(item)]


def _captures_nothing(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return params.get("backend_of_windows") == "gradual" and Mode.STRAIGHT in params.values()
