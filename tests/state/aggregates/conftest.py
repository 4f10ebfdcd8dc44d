"""Fixtures of tests of sketches."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def sketches(require: Callable[[str, str], None]) -> None:
    """Skip if ``datasketches`` is not installed."""
    if sys.version_info >= (3, 14):
        pytest.skip("there are no wheels of datasketches for Python 3.14")
    require("datasketches", "pip install 'aflow-streams[sketch]'")
