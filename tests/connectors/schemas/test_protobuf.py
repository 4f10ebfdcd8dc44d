"""Protobuf: messages of generated classes, or records of declared types with their fields, become bytes and back."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from importlib import import_module
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow_connectors.formats import FormatError
from aflow_connectors.schemas import Protobuf, RegistryError, SchemaRegistry, topic_record_name
from aflow_connectors.schemas.proto_files import names_in
from aflow_connectors.schemas.wire import packed_path, read_path
from tests.connectors.schemas.fake_registry import FakeRegistry
from tests.connectors.schemas.messages import decoded, encoded
from tests.connectors.schemas.proto_classes import classes, proto_file

# Protobuf has no types.
timestamp_pb2: Any = import_module("google.protobuf.timestamp_pb2")

asyncio_test = pytest.mark.asyncio


class Colour(Enum):
    UNKNOWN = "UNKNOWN"
    RED = "RED"


class Level(Enum):
    LOW = 0
    HIGH = 1


class Item(msgspec.Struct, frozen=True):
    sku: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: UUID
    amount: Decimal
    number: int
    big: int
    share: float
    paid: bool
    data: bytes
    colour: Colour
    level: Level
    at: datetime
    took: timedelta | None
    limit: int | None
    items: list[Item]
    by_name: dict[str, Item]
    tags: frozenset[str]
    first: Item | None
    maybe: str | None
    note: str = "none"
    more: list[int] = field(default_factory=list)


ORDER_FILE = proto_file(
    "shop/order.proto",
    {
        "Item": {"sku": "string", "count": "int64"},
        "Order": {
            "id": "string",
            "amount": "string",
            "number": "int64",
            "big": "uint64",
            "share": "double",
            "paid": "bool",
            "data": "bytes",
            "colour": "enum .shop.Colour",
            "level": "enum .shop.Level",
            "at": ".google.protobuf.Timestamp",
            "took": ".google.protobuf.Duration",
            "limit": ".google.protobuf.Int64Value",
            "items": "repeated .shop.Item",
            "by_name": "map .shop.Item",
            "tags": "repeated string",
            "first": ".shop.Item",
            "maybe": "optional string",
            "note": "optional string",
            "more": "repeated int64",
            "unread": "string",
        },
    },
    enums={"Colour": ["UNKNOWN", "RED"], "Level": ["LOW", "HIGH"]},
    imports=(
        "google/protobuf/timestamp.proto",
        "google/protobuf/duration.proto",
        "google/protobuf/wrappers.proto",
    ),
)
CLASSES = classes(ORDER_FILE)
OrderMessage = CLASSES["shop.Order"]
ItemMessage = CLASSES["shop.Item"]

whole = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec="utf-8"))
items = st.builds(Item, text, whole)
orders = st.builds(
    Order,
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
    whole,
    st.integers(0, 2**64 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(),
    st.sampled_from(Colour),
    st.sampled_from(Level),
    st.datetimes(timezones=st.just(UTC)),
    st.none() | st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
    st.none() | whole,
    st.lists(items, max_size=3),
    st.dictionaries(text, items, max_size=3),
    st.frozensets(text, max_size=3),
    st.none() | items,
    st.none() | text,
    text,
    st.lists(whole, max_size=3),
)
NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
OF_ORDERS = Protobuf(OrderMessage, of=Order)


@settings(max_examples=30)
@given(orders)
def test_a_record_of_a_declared_type_is_decoded_as_it_was_encoded(order: Order) -> None:
    assert OF_ORDERS.decode(OF_ORDERS.encode(order)) == order


@settings(max_examples=10)
@given(orders)
def test_what_protobuf_alone_writes_is_read_and_the_reverse(order: Order) -> None:
    message = OrderMessage.FromString(OF_ORDERS.encode(order))

    assert message.number == order.number
    assert message.HasField("first") == (order.first is not None)
    assert message.at.ToDatetime(tzinfo=UTC) == order.at
    assert OF_ORDERS.decode(message.SerializeToString()) == order
    assert Protobuf(OrderMessage).decode(message.SerializeToString()) == message
    assert Protobuf(OrderMessage).encode(message) == message.SerializeToString()


def test_fields_that_are_not_set_are_none_or_the_declared_default() -> None:
    message = OrderMessage(id=str(UUID(int=1)), amount="1.50")
    message.at.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))

    order = OF_ORDERS.decode(message.SerializeToString())

    assert (order.took, order.limit, order.first, order.maybe) == (None, None, None, None)
    assert (order.note, order.number, order.items, order.colour) == ("none", 0, [], Colour.UNKNOWN)
    assert order.amount == Decimal("1.50")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"number": "x"}, "field number"),
        ({"number": 2**63}, "field number"),
        ({"nothing": 1}, "no field 'nothing'"),
        ({"colour": "BLUE"}, "enum shop.Colour has no value 'BLUE'"),
        ({"at": NAIVE}, "with time zone"),
        ({"took": 5}, "a Duration is a timedelta"),
        ({"items": "ab"}, "field items"),
        ({"items": [5]}, "int has no named fields"),
        ({"by_name": []}, "not a dict"),
        ({"tags": "ab"}, "not a list"),
        ({"first": {"sku": 5}}, "field first.sku"),
        (5, "int has no named fields"),
    ],
    ids=[
        "type",
        "size",
        "unknown",
        "enum",
        "naive",
        "duration",
        "text",
        "item",
        "map",
        "tags",
        "nested",
        "int",
    ],
)
def test_a_record_that_the_message_cannot_hold_is_refused(record: Any, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        OF_ORDERS.encode(record)

    assert reason in str(raised.value)


def test_a_message_of_another_class_is_refused() -> None:
    other: Any = ItemMessage(sku="a")
    with pytest.raises(FormatError, match=r"a message shop\.Item, not shop\.Order"):
        Protobuf(OrderMessage).encode(other)


def test_bytes_that_are_no_message_or_not_of_the_declared_type_are_a_format_error() -> None:
    with pytest.raises(FormatError, match=r"not a message shop\.Order"):
        OF_ORDERS.decode(b"\xff\xff")
    with pytest.raises(FormatError, match="not of the declared type"):
        OF_ORDERS.decode(OrderMessage(id="no uuid", amount="1").SerializeToString())
    with pytest.raises(FormatError, match="no value 9"):
        OF_ORDERS.decode(OrderMessage(colour=9).SerializeToString())


@dataclass
class Missing:
    id: str
    nowhere: int


@dataclass
class Holder:
    value: int


HOLDER = classes(
    proto_file(
        "holder.proto",
        {"Holder": {"value": ".google.protobuf.Value"}},
        imports=("google/protobuf/struct.proto",),
    )
)["shop.Holder"]


def test_a_type_that_does_not_fit_the_message_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"shop\.Order has no field 'nowhere'"):
        Protobuf(OrderMessage, of=Missing)
    with pytest.raises(FlowDefinitionError, match="a class with fields"):
        Protobuf(OrderMessage, of=int)
    with pytest.raises(FlowDefinitionError, match="message class"):
        Protobuf(Order)
    with pytest.raises(FlowDefinitionError, match=r"google\.protobuf\.Value has no declared type"):
        Protobuf(HOLDER, of=Holder)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=4).map(tuple))
def test_paths_to_messages_are_read_as_they_were_written(path: tuple[int, ...]) -> None:
    data = b"12345" + packed_path(path) + b"rest"

    found, at = read_path(data)

    assert (found, data[at:]) == (path, b"rest")


@given(st.binary(max_size=12))
def test_a_damaged_path_is_a_format_error(data: bytes) -> None:
    try:
        path, at = read_path(b"12345" + data)
    except FormatError:
        return
    assert path
    assert at <= 5 + len(data)


PROTO_TEXT = """
syntax = "proto3"; // message Comment {
package shop.v1;
import "a{.proto";
/* message Other { */
option java_package = "x;message Y {";
message First {
  message Inner { string a = 1; message Deep {} }
  enum Kind { A = 0; }
  oneof one { string b = 2; int32 c = 3; }
  map<string, Inner> d = 4;
  message Second {}
}
service S { rpc Call(First) returns (First) {} }
message Last { option (x) = { message: 1 }; reserved 2; }
"""


def test_the_names_of_messages_are_read_from_the_text_of_a_file() -> None:
    assert names_in(PROTO_TEXT) == {
        (0,): "shop.v1.First",
        (0, 0): "shop.v1.First.Inner",
        (0, 0, 0): "shop.v1.First.Inner.Deep",
        (0, 1): "shop.v1.First.Second",
        (1,): "shop.v1.Last",
    }
    with pytest.raises(FormatError, match="brace"):
        names_in("message A {")


# With the registry.


NESTED_FILE = proto_file(
    "shop/nested.proto",
    {
        "Outer": {"named": "map string"},
        "Outer.One": {"a": "string"},
        "Outer.Two": {"b": "string"},
    },
)
NESTED = classes(NESTED_FILE)


@asyncio_test
async def test_a_message_is_zero_the_id_the_path_and_the_data(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    item = ItemMessage(sku="a", count=2)
    cls = NESTED["shop.Outer.Two"]
    two = cls(b="x")

    (first,) = await encoded(Protobuf(ItemMessage, registry=registry).for_topic("items"), item)
    (nested,) = await encoded(Protobuf(cls, registry=registry).for_topic("two"), two)

    assert first == struct.pack(">bI", 0, 1) + b"\0" + item.SerializeToString()
    # The entry of the map is no message in the text of the file: the path is [0, 1].
    assert nested == struct.pack(">bI", 0, 2) + b"\4\0\2" + two.SerializeToString()
    assert await decoded(Protobuf(ItemMessage, registry=registry), first) == [item]
    assert await decoded(Protobuf(cls, registry=registry), nested) == [two]
    assert fake.subjects == ["items-value", "two-value"]


@asyncio_test
async def test_another_message_of_the_same_file_is_a_bad_record(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    cls = NESTED["shop.Outer.One"]
    one = cls(a="x")
    (message,) = await encoded(Protobuf(cls, registry=registry).for_topic("a"), one)

    with pytest.raises(FormatError, match=r"a message shop\.Outer\.One, not shop\.Outer\.Two"):
        await decoded(Protobuf(NESTED["shop.Outer.Two"], registry=registry), message)
    with pytest.raises(FormatError, match=r"no message at \[7\]"):
        await decoded(
            Protobuf(cls, registry=registry), message[:5] + packed_path((7,)) + message[8:]
        )


@asyncio_test
async def test_a_schema_that_is_text_is_read_too(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    text = 'syntax = "proto3"; package shop; message Item { string sku = 1; int64 count = 2; }'
    number = fake.add("items-value", text, "PROTOBUF")
    item = ItemMessage(sku="a", count=2)
    data = struct.pack(">bI", 0, number) + b"\0" + item.SerializeToString()

    assert await decoded(Protobuf(ItemMessage, of=Item, registry=registry), data) == [Item("a", 2)]


OLD = classes(
    proto_file("order.proto", {"Paid": {"id": "int64", "number": "string", "gone": "string"}})
)
NEW = classes(
    proto_file(
        "order.proto", {"Paid": {"id": "int64", "card": "string", "note=4": "optional string"}}
    )
)


@dataclass
class Paid:
    id: int
    card: str
    note: str | None = "new"


@asyncio_test
async def test_an_older_message_gets_added_fields_loses_removed_ones_and_keeps_renamed_ones(
    registry: SchemaRegistry,
) -> None:
    old = Protobuf(OLD["shop.Paid"], registry=registry).for_topic("paid")
    (message,) = await encoded(old, {"id": 1, "number": "4711", "gone": "x"})
    form = Protobuf(NEW["shop.Paid"], of=Paid, registry=registry)

    (newer,) = await encoded(form.for_topic("paid"), Paid(2, "42", "a"))

    assert await decoded(form, message, newer) == [Paid(1, "4711"), Paid(2, "42", "a")]
    (back,) = await decoded(old, newer)
    assert (back.id, back.number, back.gone) == (2, "42", "")


PARTS_FILE = proto_file("shop/part.proto", {"Part": {"name": "string"}})
CAR_FILE = proto_file(
    "shop/car.proto",
    {"Car": {"parts": "repeated .shop.Part", "at": ".google.protobuf.Timestamp"}},
    imports=("shop/part.proto", "google/protobuf/timestamp.proto"),
)
CAR = classes(PARTS_FILE, CAR_FILE)["shop.Car"]


@asyncio_test
async def test_imported_files_are_registered_under_their_names(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    strict = Protobuf(CAR, registry=registry, auto_register=False, subject=topic_record_name)
    with pytest.raises(RegistryError, match=r"subject 'shop/part\.proto'"):
        await encoded(strict.for_topic("cars"), CAR())

    form = Protobuf(CAR, registry=registry, subject=topic_record_name).for_topic("cars")
    car = CAR(parts=[{"name": "door"}])
    car.at.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    (message,) = await encoded(form, car)

    assert fake.subjects == ["cars-shop.Car", "shop/part.proto"]
    assert await decoded(form, message) == [car]
    assert await encoded(strict.for_topic("cars"), car) == [message]


@asyncio_test
async def test_a_protobuf_format_can_be_pickled(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    form = Protobuf(timestamp_pb2.Timestamp, registry=registry).for_topic("a")
    again = pickle.loads(pickle.dumps(form))

    assert await decoded(again, *await encoded(again, timestamp_pb2.Timestamp(seconds=5))) == [
        timestamp_pb2.Timestamp(seconds=5)
    ]
    assert fake.subjects == ["a-value"]
