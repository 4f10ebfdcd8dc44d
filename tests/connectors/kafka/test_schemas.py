"""Avro and Protobuf messages of a schema registry through Kafka."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord
from aflow.testing import CollectSink
from aflow_connectors.kafka import KafkaSink, KafkaSource
from aflow_connectors.schemas import Avro, Protobuf, SchemaRegistry
from tests.connectors.kafka.broker import Cluster
from tests.connectors.schemas.fake_registry import FakeRegistry
from tests.connectors.schemas.proto_classes import classes, proto_file


@dataclass(frozen=True)
class Order:
    id: int
    card: str


TOTALS = classes(proto_file("total.proto", {"Total": {"card": "string", "sum": "int64"}}))


def no_orders() -> dict[str, Any]:
    return {"sum": 0}


@pytest.mark.asyncio
async def test_avro_orders_become_protobuf_totals_and_an_unknown_schema_a_dead_letter(
    kafka: Cluster, tmp_path: Path
) -> None:
    orders, totals = await kafka.create(partitions=2), await kafka.create()
    unknown = struct.pack(">bI", 0, 77) + b"\2"
    bad, found, read = CollectSink[BadRecord](), CollectSink[Any](), af.Tag[BadRecord]("bad")
    async with FakeRegistry() as fake:
        registry = SchemaRegistry(fake.url)
        avro = Avro(Order, name="shop.Order", registry=registry)
        of_totals = Protobuf(TOTALS["shop.Total"], registry=registry)
        of_cards = Avro(str, registry=registry)

        flow = af.Flow("write")
        flow.source([Order(n, f"card {n % 3}") for n in range(30)], name="orders").to(
            KafkaSink[Order](
                kafka.servers, orders, format=avro, key=lambda one: one.card, key_format=of_cards
            ),
            name="out",
        )
        await flow.run(checkpointing=af.Checkpointing(storage=tmp_path / "write"))
        await kafka.produce(orders, [unknown])

        flow = af.Flow("totals")
        source = flow.source(
            KafkaSource(kafka.servers, orders, format=avro, until="now", dead_letters=read),
            name="in",
        )
        source.side(read).to(bad, name="bad")
        source.key_by(lambda one: one.card).fold(
            no_orders,
            lambda total, one: {"card": one.card, "sum": total["sum"] + one.id},
            name="sum",
        ).to(
            KafkaSink[Any](
                kafka.servers,
                totals,
                format=of_totals,
                key=lambda one: one["card"],
                key_format=of_cards,
            ),
            name="out",
        )
        await flow.run(checkpointing=af.Checkpointing(storage=tmp_path / "totals"))

        flow = af.Flow("read")
        flow.source(
            KafkaSource(
                kafka.servers,
                totals,
                format=of_totals,
                messages=True,
                key_format=of_cards,
                until="now",
            ),
            name="in",
        ).to(found, name="out")
        await flow.run()

    last = {one.key: one.value.sum for one in found.values}
    assert last == {f"card {n}": sum(range(n, 30, 3)) for n in range(3)}
    assert [one.raw for one in bad.values] == [unknown]
    assert fake.subjects == sorted(
        f"{one}-{part}" for one in (orders, totals) for part in ("key", "value")
    )
    # Ids are looked up once for each reader, not for each message.
    assert sum(fake.requests.values()) <= 4 + 2 * 4
