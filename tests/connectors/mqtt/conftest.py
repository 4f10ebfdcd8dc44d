"""An MQTT broker for the tests of this folder: that of AFLOW_TEST_MQTT, or one that they start."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conftest import IN_CI
from tests.connectors.mqtt.server import ADDRESS, Mosquitto, Mqtt, program, running


@pytest.fixture(scope="session")
def own_broker() -> Iterator[Mosquitto]:
    """A broker that a test may kill, and must start again."""
    if os.environ.get(ADDRESS):
        pytest.skip(f"this test needs a broker of its own; {ADDRESS} names another one")
    if program("mosquitto") is None or program("mosquitto_passwd") is None:
        reason = f"no MQTT broker is installed: scripts/have-mosquitto, or {ADDRESS}=mqtt://…"
        if IN_CI:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with running() as broker:
        yield broker


@pytest.fixture(scope="session")
def mqtt(request: pytest.FixtureRequest) -> Mqtt:
    """The broker of the tests."""
    if named := os.environ.get(ADDRESS):
        return Mqtt(named)
    broker: Mosquitto = request.getfixturevalue("own_broker")
    return Mqtt(broker.url)
