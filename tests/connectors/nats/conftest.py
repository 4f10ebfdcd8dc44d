"""A NATS server for the tests of this folder: that of AFLOW_TEST_NATS, or one that they start."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator

import pytest

from tests.connectors.nats.server import ADDRESS, NatsServer, nats_program, running_nats
from tests.connectors.skips import skip_or_fail


@pytest.fixture(scope="session")
def nats_server() -> Generator[NatsServer]:
    """A server of this test process, or the one that ``AFLOW_TEST_NATS`` names."""
    named = os.environ.get(ADDRESS)
    if named:
        yield NatsServer(named)
        return
    program = nats_program()
    if program is None:
        skip_or_fail(f"no NATS server is installed: scripts/have-nats, or {ADDRESS}=nats://…")
        return
    with running_nats(program) as server:
        yield server


@pytest.fixture
def own_nats(nats_server: NatsServer) -> NatsServer:
    """The server, which the test may kill, and whose users are known."""
    if nats_server.process is None:
        pytest.skip(f"{ADDRESS} names a server, which this test would kill")
    return nats_server


@pytest.fixture
def stream() -> str:
    """The name of a new stream."""
    return f"aflow-test-{uuid.uuid4().hex}"
