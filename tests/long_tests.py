"""Tests that are too long for each run of the suite: they run if ``AFLOW_LONG_TESTS`` is set."""

from __future__ import annotations

import os
from typing import Final

import pytest

#: Mark of these tests.
LONG: Final = pytest.mark.skipif(
    "AFLOW_LONG_TESTS" not in os.environ,
    reason="AFLOW_LONG_TESTS is not set: this test is too long for each run of the suite",
)
