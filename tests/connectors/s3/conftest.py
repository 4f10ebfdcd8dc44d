"""Fixtures of a server of the S3 protocol: one for each test process, and a prefix for each test."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.connectors.s3.server import ADDRESS, S3Server, running
from tests.inline_threads import inline_threads

__all__ = ["inline_threads", "s3", "s3_endpoint"]


@pytest.fixture(scope="session")
def s3_endpoint() -> Generator[str]:
    """The endpoint of a server of this test process, or of the one that ``AFLOW_TEST_S3`` names."""
    named = os.environ.get(ADDRESS)
    if named:
        yield named
        return
    with running() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_endpoint: str) -> S3Server:
    """The server, with a prefix of its own in the bucket."""
    return S3Server(s3_endpoint)
