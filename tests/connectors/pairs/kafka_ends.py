"""Kafka as an end of a pair."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aflow_connectors.kafka import KafkaSink, KafkaSource
from tests.connectors.kafka.broker import Broker, Cluster
from tests.connectors.pairs.pair import QUICK, Pair, Result, parts_of, result_of


def connect(pair: Pair) -> Broker:
    """Let the job connect to Kafka through a proxy, and the run kill the broker."""
    broker = pair.servers.kafka
    host, port = pair.proxied("127.0.0.1", broker.proxied, listen=pair.servers.kafka_proxy)
    pair.settings["kafka"] = f"{host}:{port}"
    pair.killable.append(broker)
    return broker


def create_topic(broker: Broker, partitions: int) -> str:
    """Create a topic, and return its name."""
    return asyncio.run(Cluster(broker.servers).create(partitions=partitions))


async def _produce(cluster: Cluster, topic: str, numbers: range) -> None:
    for partition, part in enumerate(parts_of(numbers)):
        values = [b"%d" % number for number in part]
        await cluster.produce(topic, values, partition=partition, timestamps=part)


def produce(broker: Broker, topic: str, numbers: range) -> None:
    """Append numbers to the partitions of a topic."""
    asyncio.run(_produce(Cluster(broker.servers), topic, numbers))


def results(broker: Broker, topic: str) -> list[Result]:
    """Return the results that a ``read_committed`` reader sees."""
    messages: list[Any] = asyncio.run(Cluster(broker.servers).contents(topic))
    return [result_of(json.loads(message.value)) for message in messages]


def source(settings: Mapping[str, str]) -> KafkaSource[int]:
    return KafkaSource(settings["kafka"], settings["in"], of=int, idle_after=None, reconnect=QUICK)


def sink(settings: Mapping[str, str]) -> KafkaSink[dict[str, int]]:
    return KafkaSink(
        settings["kafka"], settings["out"], key=lambda one: str(one["key"]), reconnect=QUICK
    )
