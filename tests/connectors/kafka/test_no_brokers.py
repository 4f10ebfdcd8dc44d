"""A broker that has just started may name no brokers, itself included: the connection counts as lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aflow.connect import SinkError
from aflow_connectors.kafka import client
from aflow_connectors.kafka.client import LOST, Connection, abandon, aiokafka

CONNECTION = Connection(("localhost:9092",), {})


@pytest.fixture(autouse=True)
def no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server answers, and names no brokers."""

    async def answer(self: Any) -> None:
        return None

    monkeypatch.setattr(aiokafka.AIOKafkaClient, "bootstrap", answer)
    monkeypatch.setattr(aiokafka.AIOKafkaClient, "force_metadata_update", answer)
    monkeypatch.setattr(client, "PATIENCE", 0.01)


@pytest.mark.asyncio
async def test_a_producer_without_brokers_has_lost_its_connection() -> None:
    producer = aiokafka.AIOKafkaProducer(**CONNECTION.options(), transactional_id="writer")

    with pytest.raises(LOST):
        await CONNECTION.start(producer, SinkError)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "create",
    [
        lambda: aiokafka.AIOKafkaConsumer(**CONNECTION.options(), group_id="writer"),
        lambda: aiokafka.AIOKafkaProducer(**CONNECTION.options()),
    ],
    ids=["consumer", "producer"],
)
async def test_a_client_finds_its_coordinator_once_a_broker_is_known(
    create: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(self: Any, kind: int, key: str) -> int:
        assert self.cluster.brokers(), "aiokafka does not ask without brokers"
        return 7

    monkeypatch.setattr(aiokafka.AIOKafkaClient, "coordinator_lookup", find)
    one = create()
    await CONNECTION.start(one, SinkError)
    inner = one.client if isinstance(one, aiokafka.AIOKafkaProducer) else one._client

    with pytest.raises(LOST):
        await inner.coordinator_lookup(0, "writer")
    inner.cluster.brokers = lambda: {object()}
    assert await inner.coordinator_lookup(0, "writer") == 7

    await abandon(one)
