"""A Redis server for the tests of this folder: that of AFLOW_TEST_REDIS, or one that they start."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator

import pytest

from tests.connectors.redis.server import ADDRESS, TestServer, redis_program, running_redis
from tests.connectors.skips import skip_or_fail


@pytest.fixture(scope="session")
def redis_server() -> Generator[TestServer]:
    """A server of this test process, or the one that ``AFLOW_TEST_REDIS`` names."""
    named = os.environ.get(ADDRESS)
    if named:
        yield TestServer(named)
        return
    program = redis_program()
    if program is None:
        skip_or_fail(f"no Redis server is installed: scripts/have-redis, or {ADDRESS}=redis://…")
        return
    with running_redis(program) as server:
        yield server


@pytest.fixture
def own_redis(redis_server: TestServer) -> TestServer:
    """The server, which the test may kill or change."""
    if redis_server.process is None:
        pytest.skip(f"{ADDRESS} names a server, which this test would kill")
    return redis_server


@pytest.fixture
def stream() -> str:
    """The name of a new stream."""
    return f"aflow-test-{uuid.uuid4().hex}"
