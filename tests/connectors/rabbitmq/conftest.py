"""A RabbitMQ server for the tests of this folder: that of AFLOW_TEST_RABBITMQ, or one that they start."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conftest import IN_CI
from tests.connectors.rabbitmq.server import ADDRESS, Rabbit, RabbitServer, program, running


@pytest.fixture(scope="session")
def own_rabbit() -> Iterator[RabbitServer]:
    """A server that a test may kill, and must start again."""
    if os.environ.get(ADDRESS):
        pytest.skip(f"this test needs a server of its own; {ADDRESS} names another one")
    if program() is None:
        reason = f"no RabbitMQ server is installed: scripts/have-rabbitmq, or {ADDRESS}=amqp://…"
        if IN_CI:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def rabbit(request: pytest.FixtureRequest) -> Rabbit:
    """The server of the tests."""
    if named := os.environ.get(ADDRESS):
        return Rabbit(named)
    server: RabbitServer = request.getfixturevalue("own_rabbit")
    return Rabbit(server.url)
