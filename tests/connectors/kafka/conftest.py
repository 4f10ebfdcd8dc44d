"""A Kafka broker for the tests of this folder: that of AFLOW_TEST_KAFKA, or one that they start."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.conftest import IN_CI
from tests.connectors.kafka.broker import PROJECT, Broker, Cluster
from tests.connectors.ports import free_port


def _missing(reason: str) -> None:
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def classpath() -> str:
    """The class path of Kafka. Skips, or fails in CI, where it is missing."""
    if shutil.which("java") is None:
        _missing("the broker of the tests needs Java: scripts/have-java installs it or says how")
    environment = {**os.environ, "AFLOW_TEST_KAFKA": ""}
    done = subprocess.run(
        [PROJECT / "scripts" / "have-kafka", "required"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        _missing(done.stderr.strip())
    return done.stdout.strip()


@pytest.fixture(scope="session")
def own_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that a test may kill, and must start again."""
    if os.environ.get("AFLOW_TEST_KAFKA"):
        pytest.skip("this test needs a broker of its own; AFLOW_TEST_KAFKA names another one")
    broker = Broker(
        request.getfixturevalue("classpath"),
        tmp_path_factory.mktemp("kafka"),
        advertised=free_port(),
    )
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Cluster:
    """The cluster of the tests."""
    if named := os.environ.get("AFLOW_TEST_KAFKA"):
        return Cluster(named)
    broker: Broker = request.getfixturevalue("own_broker")
    return Cluster(broker.servers)
