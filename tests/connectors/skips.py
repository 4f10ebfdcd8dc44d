"""Skips of tests whose server is not installed."""

from __future__ import annotations

import pytest

from tests.conftest import IN_CI


def skip_or_fail(reason: str) -> None:
    """Skip the test with ``reason``; fail in CI."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
