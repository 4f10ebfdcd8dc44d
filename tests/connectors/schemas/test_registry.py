"""Schemas of a registry: messages are decoded with the schema of their writer, and encoded with a registered one."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import ssl
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import pytest

import aflow as af
from aflow.connect import BadRecord, ConnectorError, SinkError, SourceError
from aflow.errors import FlowDefinitionError
from aflow_connectors.formats import FormatError, Text
from aflow_connectors.message import Message
from aflow_connectors.messages import MessageDecoder, MessageEncoder, RawMessage
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.schemas import (
    Avro,
    RegistryError,
    SchemaRegistry,
    aliases,
    record_name,
    schema_cache,
    topic_name,
    topic_record_name,
)
from aflow_connectors.schemas.registry import SchemaText
from tests.connectors.schemas.fake_registry import FAST, FakeRegistry
from tests.connectors.schemas.messages import decoded, encoded

# fastavro has no complete types.
fastavro: Any = import_module("fastavro")

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True)
class Order:
    id: int
    card: str
    note: str | None = None


async def test_a_message_is_zero_the_id_of_its_schema_and_the_record(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    fake.add("other-value", '"long"')
    form = Avro(Order, registry=registry).for_topic("orders")

    (message,) = await encoded(form, Order(7, "4711"))

    assert fake.subjects == ["orders-value", "other-value"]
    magic, number = struct.unpack(">bI", message[:5])
    assert (magic, number) == (0, 2)
    schema = fastavro.parse_schema(json.loads(fake.text("orders-value")))
    assert fastavro.schemaless_reader(BytesIO(message[5:]), schema, None) == {
        "id": 7,
        "card": "4711",
        "note": None,
    }
    assert await decoded(Avro(Order, registry=registry), message) == [Order(7, "4711")]


async def test_the_schema_is_registered_once_for_all_batches_and_writers(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    form = Avro(Order, registry=registry)

    for _ in range(2):
        for topic in ("a", "a", "b"):
            await encoded(form.for_topic(topic), Order(1, "x"), Order(2, "y"))

    assert fake.requests == {
        "POST /subjects/a-value/versions": 1,
        "POST /subjects/b-value/versions": 1,
    }


async def test_the_schemas_of_a_chunk_are_fetched_once_each(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    writers = [Avro(Order, registry=registry), Avro(schema='"string"', registry=registry)]
    messages = [
        *await encoded(writers[0].for_topic("a"), *(Order(n, "x") for n in range(50))),
        *await encoded(writers[1].for_topic("b"), "text"),
    ]
    fake.requests.clear()
    form: Avro[Any] = Avro(registry=registry)

    await decoded(form, *messages)
    values = await decoded(form, *messages)

    assert values[0] == {"id": 0, "card": "x", "note": None}
    assert values[-1] == "text"
    assert fake.requests == {"GET /schemas/ids/1": 1, "GET /schemas/ids/2": 1}


def own_name(topic: str, record: str, is_key: bool) -> str:
    return "mine/ä"


@pytest.mark.parametrize(
    ("strategy", "value", "key"),
    [
        (topic_name, "orders-value", "orders-key"),
        (record_name, "com.acme.Order", "com.acme.Order"),
        (topic_record_name, "orders-com.acme.Order", "orders-com.acme.Order"),
        (own_name, "mine/ä", "mine/ä"),
    ],
    ids=["topic", "record", "topic-record", "own"],
)
async def test_the_subject_is_named_by_a_strategy(
    fake: FakeRegistry, registry: SchemaRegistry, strategy: Any, value: str, key: str
) -> None:
    form = Avro(Order, name="com.acme.Order", registry=registry, subject=strategy)

    await encoded(form.for_topic("orders"), Order(1, "x"))
    assert fake.subjects == [value]
    await encoded(form.for_topic("orders", is_key=True), Order(1, "x"))
    assert fake.subjects == sorted({key, value})


async def test_a_strategy_that_needs_a_topic_says_so(registry: SchemaRegistry) -> None:
    with pytest.raises(ConnectorError, match="the subject needs a topic"):
        await encoded(Avro(Order, registry=registry), Order(1, "x"))


async def test_without_auto_register_the_schema_is_looked_up(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    form = Avro(Order, registry=registry, auto_register=False).for_topic("orders")

    with pytest.raises(
        RegistryError, match="does not have this schema under subject 'orders-value'"
    ):
        await encoded(form, Order(1, "x"))
    assert fake.subjects == []
    number = fake.add("orders-value", form.schema)
    (message,) = await encoded(form, Order(1, "x"))

    assert message[:5] == struct.pack(">bI", 0, number)


async def test_an_incompatible_schema_is_an_error_that_names_the_subject(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    @dataclass
    class Changed:
        id: int
        total: float

    fake.add("orders-value", Avro(Order).schema)
    form = Avro(Changed, name="Order", registry=registry)
    encoder = MessageEncoder[Any]("sink 'out'", form, key_format=Text())

    with pytest.raises(SinkError) as raised:
        await encoder.encode([Changed(1, 2.0)], topics="orders")

    text = str(raised.value)
    assert "sink 'out'" in text
    assert "not compatible with those of subject 'orders-value'" in text
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in text


async def test_an_invalid_schema_is_an_error(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    fake.failures = [422]
    with pytest.raises(RegistryError, match="does not accept the schema for subject 'a-value'"):
        await encoded(Avro(Order, registry=registry).for_topic("a"), Order(1, "x"))


#: The schema of another program.
OLD_ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "number", "type": "string"},
        {"name": "gone", "type": "string"},
    ],
}


@dataclass(frozen=True)
class OrderV2:
    id: int
    card: Annotated[str, aliases("number")]
    amount: float = 1.5
    tags: tuple[str, ...] = ()
    note: str | None = None


async def test_an_older_record_gets_added_fields_loses_removed_ones_and_keeps_renamed_ones(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    old = Avro(schema=OLD_ORDER, registry=registry).for_topic("orders")
    (message,) = await encoded(old, {"id": 1, "number": "4711", "gone": "x"})

    form = Avro(OrderV2, name="Order", registry=registry)
    assert await decoded(form, message) == [OrderV2(1, "4711")]

    (newer,) = await encoded(form.for_topic("orders"), OrderV2(2, "42", 3.0, ("a",)))
    assert newer[:5] != message[:5]
    assert await decoded(form, message, newer) == [
        OrderV2(1, "4711"),
        OrderV2(2, "42", 3.0, ("a",)),
    ]


async def test_a_record_with_another_name_or_without_a_required_field_is_a_bad_record(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    other = Avro(schema={**OLD_ORDER, "name": "Refund"}, registry=registry)
    (message,) = await encoded(other.for_topic("a"), {"id": 1, "number": "4711", "gone": "x"})

    with pytest.raises(FormatError, match="Schema mismatch"):
        await decoded(Avro(OrderV2, name="Order", registry=registry), message)
    with pytest.raises(FormatError, match="card"):
        await decoded(Avro(Order, name="Refund", registry=registry), message)


async def test_a_schema_with_references_is_read_with_them(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "string"}]}
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "items", "type": {"type": "array", "items": "shop.Item"}}],
    }
    fake.add("item", json.dumps(item))
    number = fake.add(
        "order",
        json.dumps(order),
        references=[{"name": "shop.Item", "subject": "item", "version": 1}],
    )
    body = BytesIO(struct.pack(">bI", 0, number))
    body.seek(5)
    named: dict[str, Any] = {}
    fastavro.parse_schema(item, named_schemas=named)
    fastavro.schemaless_writer(
        body, fastavro.parse_schema(order, named_schemas=named), {"items": [{"sku": "a"}]}
    )

    assert await decoded(Avro(registry=registry), body.getvalue()) == [{"items": [{"sku": "a"}]}]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["shop.Order", "shop.Item"], {"sku": "a"}),
        ("shop.Order", {"items": [{"sku": "a"}], "then": {"items": [], "then": None}}),
        ({"type": "map", "values": "shop.Item"}, {"k": {"sku": "a"}}),
    ],
    ids=["union", "name", "map"],
)
async def test_a_schema_may_be_nothing_but_references(
    fake: FakeRegistry, registry: SchemaRegistry, schema: Any, value: object
) -> None:
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "string"}]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "items", "type": {"type": "array", "items": "Item"}},
            {"name": "then", "type": ["null", "Order"]},
        ],
    }
    places = [{"name": "shop.Item", "subject": "item", "version": 1}]
    fake.add("item", json.dumps(item))
    fake.add("order", json.dumps(order), references=places)
    both = [*places, {"name": "shop.Order", "subject": "order", "version": 1}]
    number = fake.add("all", json.dumps(schema), references=both)
    body = BytesIO()
    named: dict[str, Any] = {}
    for one in (item, order):
        fastavro.parse_schema(one, named_schemas=named)
    own = named["shop.Order" if "items" in value else "shop.Item"]  # type: ignore[operator]
    writer: Any = {"type": "map", "values": own} if isinstance(schema, dict) else own
    fastavro.schemaless_writer(body, fastavro.parse_schema(writer, named_schemas=named), value)
    branch = b"\2" if isinstance(schema, list) else b""
    message = struct.pack(">bI", 0, number) + branch + body.getvalue()

    assert await decoded(Avro(registry=registry), message) == [value]


async def test_an_unknown_id_is_a_dead_letter_with_its_bytes(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    form = Avro(Order, registry=registry)
    (good,) = await encoded(form.for_topic("a"), Order(1, "x"))
    unknown = struct.pack(">bI", 0, 99) + b"\2"
    bad = [unknown, b"{}", b"\0\0", b'{"id": 1}']
    decoder = MessageDecoder[Order]("a", form, dead_letters=af.Tag[BadRecord]("bad"))

    raw = [RawMessage(one, offset=n) for n, one in enumerate([*bad, good])]

    await decoder.decode(raw)
    found = await decoder.decode(raw)

    assert found.values == [Order(1, "x")]
    assert [one.raw for one in found.rejected] == bad
    assert f"{fake.url} has no schema with id 99" in found.rejected[0].reason
    assert "written without a registry" in found.rejected[1].reason
    assert fake.requests["GET /schemas/ids/99"] == 2  # a second time, in case a node is behind
    with pytest.raises(SourceError, match="id 99"):
        await MessageDecoder[Order]("a", form).decode([RawMessage(unknown)])


async def test_bytes_that_are_no_id_are_not_asked_for(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    with pytest.raises(FormatError, match="4,294,967,295 as the id"):
        await decoded(Avro(registry=registry), b"\0\xff\xff\xff\xffx")

    assert not fake.requests


async def test_many_unknown_ids_are_asked_for_again_after_one_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Empty(SchemaRegistry):
        async def schema(self, schema_id: int) -> SchemaText | None:
            asked.append(schema_id)
            return None

    monkeypatch.setattr(schema_cache, "_SECOND_ATTEMPT", 0.0)
    monkeypatch.setattr(schema_cache, "_MOST_UNKNOWN", 2)
    form = Avro[Any](registry=Empty("http://localhost"))
    messages = [struct.pack(">bI", 0, number) for number in (1, 2, 3)]

    await form.before_decoding(messages)
    await form.before_decoding(messages[1:])  # these are remembered

    assert asked == [1, 2, 3, 1, 2, 3]


async def test_a_schema_of_another_kind_is_a_bad_record(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    number = fake.add("a-value", "message A { string a = 1; }", "PROTOBUF")

    with pytest.raises(FormatError, match="is PROTOBUF and not AVRO"):
        await decoded(Avro(Order, registry=registry), struct.pack(">bI", 0, number) + b"\0")


async def test_while_the_registry_is_away_readers_and_writers_wait(
    fake: FakeRegistry, registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aflow.connectors")
    form = Avro(Order, registry=registry)
    fake.failures = [503, 500]
    (message,) = await encoded(form.for_topic("a"), Order(1, "x"))

    fake.is_away = True
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(decoded(Avro(Order, registry=registry), message))
        await fake.asked("GET /schemas/ids/1", 3)
        assert not reading.done()
        fake.is_away = False

    assert reading.result() == [Order(1, "x")]
    events = [getattr(one, "event", None) for one in caplog.records]
    assert events == ["connection_lost", "connection_back"] * 2


async def test_an_outage_that_does_not_end_fails_after_its_bound(fake: FakeRegistry) -> None:
    reconnect = Reconnect(
        delay=timedelta(milliseconds=1),
        most=timedelta(milliseconds=2),
        give_up_after=timedelta(milliseconds=30),
    )
    fake.is_away = True

    form = Avro(Order, registry=SchemaRegistry(fake.url, reconnect=reconnect))
    decoder = MessageDecoder[Any]("topic", form)

    with pytest.raises(SourceError, match=r"topic: .*no connection"):
        await decoder.decode([RawMessage(b"\0\0\0\0\1\2")])


@pytest.mark.parametrize(
    "options",
    [{"basic_auth": ("ada", "s3cret")}, {"bearer": "s3cret"}, {}],
    ids=["basic", "bearer", "url"],
)
async def test_credentials_are_sent_and_in_no_message(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    basic = "Basic YWRhOnMzY3JldA=="
    async with FakeRegistry(
        authorization="Bearer s3cret" if "bearer" in options else basic
    ) as fake:
        url = fake.url if options else fake.url.replace("//", "//ada:s3cret@")
        registry = SchemaRegistry(url, reconnect=FAST, **options)
        await encoded(Avro(Order, registry=registry).for_topic("a"), Order(1, "x"))
        wrong = SchemaRegistry(fake.url, reconnect=FAST, basic_auth=("ada", "s3cret?"))

        with pytest.raises(RegistryError) as raised:
            await encoded(Avro(Order, registry=wrong).for_topic("a"), Order(1, "x"))

    assert "refuses access" in str(raised.value)
    shown = [repr(registry), repr(wrong), registry.place, str(raised.value), caplog.text]
    assert not [text for text in shown if "s3cret" in text]


@pytest.fixture
def key_and_certificate(require: Callable[[str, str], None], tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that no authority has signed."""
    require("openssl", "apt-get install openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    options = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
    name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", *options.split(), *name], check=True, capture_output=True
    )
    return key, certificate


async def test_certificates_are_checked_with_the_context_that_is_given(
    key_and_certificate: tuple[Path, Path],
) -> None:
    key, certificate = key_and_certificate
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)

    async with FakeRegistry(tls=server) as fake:
        known = SchemaRegistry(fake.url, ssl=ssl.create_default_context(cafile=certificate))
        await encoded(Avro(Order, registry=known).for_topic("a"), Order(1, "x"))
        unknown = SchemaRegistry(fake.url)

        with pytest.raises(RegistryError, match="see ssl="):
            await encoded(Avro(Order, registry=unknown).for_topic("b"), Order(1, "x"))

    assert fake.subjects == ["a-value"]


async def test_a_server_that_is_no_registry_is_an_error(fake: FakeRegistry) -> None:
    registry = SchemaRegistry(f"{fake.url}/somewhere", reconnect=FAST)

    with pytest.raises(RegistryError, match="is this the URL of a schema registry"):
        await decoded(Avro(Order, registry=registry), b"\0\0\0\0\1\2")


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "localhost:8081"},
        {"url": "http://ada:s3cret@host:port"},
        {"url": 5},
        {"url": "http://h", "basic_auth": "ada:s3cret"},
        {"url": "http://h", "bearer": ""},
        {"url": "http://h", "bearer": "s3cret", "basic_auth": ("a", "s3cret")},
        {"url": "http://h", "timeout": 5},
        {"url": "http://h", "ssl": True},
        {"url": "http://h", "reconnect": 1},
    ],
    ids=["no scheme", "port", "type", "pair", "token", "both", "timeout", "ssl", "reconnect"],
)
async def test_wrong_arguments_are_refused_without_their_secrets(arguments: dict[str, Any]) -> None:
    with pytest.raises(FlowDefinitionError) as raised:
        SchemaRegistry(**arguments)

    assert "s3cret" not in str(raised.value)


async def test_a_sink_with_several_topics_has_a_schema_in_each(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    encoder = MessageEncoder[Any](
        "sink 'out'",
        Avro(Order, registry=registry),
        key_format=Avro(int, registry=registry),
    )
    records = [Message(n, Order(n, "x")) for n in range(3)]

    raw = await encoder.encode(records, topics=["a", "b", "a"])

    assert fake.subjects == ["a-key", "a-value", "b-key", "b-value"]
    decoder = MessageDecoder[Any](
        "a",
        Avro(Order, registry=registry),
        key_format=Avro(int, registry=registry),
        messages=True,
    )
    found = (await decoder.decode(raw)).values
    assert [(one.key, one.value) for one in found] == [(one.key, one.value) for one in records]


async def test_a_format_with_a_registry_can_be_pickled(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    form = pickle.loads(pickle.dumps(Avro(Order, registry=registry).for_topic("a")))

    assert await decoded(form, *await encoded(form, Order(1, "x"))) == [Order(1, "x")]
    assert fake.subjects == ["a-value"]


async def test_decoding_without_the_fetch_before_is_an_error_of_the_caller(
    registry: SchemaRegistry,
) -> None:
    with pytest.raises(ConnectorError, match="await before_decoding"):
        Avro(Order, registry=registry).decode(b"\0\0\0\0\1\2")
    with pytest.raises(ConnectorError, match="await before_encoding"):
        Avro(Order, registry=registry).encode(Order(1, "x"))
