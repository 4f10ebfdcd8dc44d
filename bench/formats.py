"""``formats``: Avro and Protobuf with a registry, beside fastavro, protobuf and msgspec alone.

The programs by hand do the same conversions to and from a dataclass, but check nothing when they encode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import BytesIO
from typing import Any, Final

import msgspec

from aflow_connectors.formats import Format
from aflow_connectors.schemas import Avro, Protobuf, SchemaRegistry
from bench.harness import Budget, Measurement, compare, run_async
from tests.connectors.schemas.fake_registry import FakeRegistry
from tests.connectors.schemas.proto_classes import classes, proto_file

# fastavro has no complete types.
fastavro: Any = import_module("fastavro")

START: Final = datetime(2026, 1, 1, tzinfo=UTC)

#: Bytes in front of the data: of Avro, and of Protobuf.
AVRO_HEADER: Final = 5
PROTOBUF_HEADER: Final = 6


@dataclass(frozen=True)
class Order:
    """A record of some fields."""

    id: int
    card: str
    amount: float
    at: datetime
    items: list[str]
    note: str | None = None


def measure(records: int, rounds: int) -> Measurement:
    """Measure both formats in both directions."""
    figures: dict[str, float | int | bool | str] = {"records": records}
    for one in _measured(records, rounds):
        for figure in ("records_per_s", "baseline_records_per_s", "ratio"):
            figures[f"{one.name}_{figure}"] = one.figures[figure]
    for direction in ("decode", "encode"):
        ratios = [float(figures[f"{name}_{direction}_ratio"]) for name in ("avro", "protobuf")]
        figures[f"{direction}_ratio"] = min(ratios)
    figures |= {"rounds": rounds, "verified": True}
    budgets = [Budget("decode_ratio", at_least=0.6), Budget("encode_ratio", at_least=0.4)]
    return Measurement("formats", figures, budgets)


def _measured(records: int, rounds: int) -> Iterator[Measurement]:
    orders = [
        Order(n, f"card {n % 1000}", n / 7, START + timedelta(milliseconds=n), ["a", "b", "c"])
        for n in range(records)
    ]
    yield from _avro(orders, rounds)
    yield from _protobuf(orders, rounds)


def _avro(orders: list[Order], rounds: int) -> Iterator[Measurement]:
    form, messages = run_async(_ready(lambda one: Avro(Order, registry=one), orders))
    schema = fastavro.parse_schema(msgspec.json.decode(form.schema))
    read, write = fastavro.schemaless_reader, fastavro.schemaless_writer
    head = messages[0][:AVRO_HEADER]

    def read_by_hand() -> list[Order]:
        found: list[Order] = []
        for message in messages:
            body = BytesIO(message)
            body.seek(AVRO_HEADER)
            found.append(msgspec.convert(read(body, schema, None), Order))
        return found

    def write_by_hand() -> list[bytes]:
        found: list[bytes] = []
        for order in orders:
            body = BytesIO()
            body.write(head)
            write(body, schema, msgspec.to_builtins(order, builtin_types=(datetime,)))
            found.append(body.getvalue())
        return found

    yield _compared("avro_decode", lambda: list(map(form.decode, messages)), read_by_hand, rounds)
    yield _compared("avro_encode", lambda: list(map(form.encode, orders)), write_by_hand, rounds)


def _protobuf(orders: list[Order], rounds: int) -> Iterator[Measurement]:
    fields = {
        "id": "int64",
        "card": "string",
        "amount": "double",
        "at": ".google.protobuf.Timestamp",
        "items": "repeated string",
        "note": "optional string",
    }
    imports = ("google/protobuf/timestamp.proto",)
    cls = classes(proto_file("order.proto", {"Order": fields}, imports=imports))["shop.Order"]
    form, messages = run_async(_ready(lambda one: Protobuf(cls, of=Order, registry=one), orders))
    head = messages[0][:PROTOBUF_HEADER]

    def read_by_hand() -> list[Order]:
        found: list[Order] = []
        for message in messages:
            one = cls.FromString(message[PROTOBUF_HEADER:])
            fields = {
                "id": one.id,
                "card": one.card,
                "amount": one.amount,
                "at": one.at.ToDatetime(tzinfo=UTC),
                "items": list(one.items),
            }
            if one.HasField("note"):
                fields["note"] = one.note
            found.append(msgspec.convert(fields, Order))
        return found

    def write_by_hand() -> list[bytes]:
        found: list[bytes] = []
        for order in orders:
            one = cls(id=order.id, card=order.card, amount=order.amount, items=order.items)
            one.at.FromDatetime(order.at)
            found.append(head + one.SerializeToString())
        return found

    yield _compared(
        "protobuf_decode", lambda: [form.decode(one) for one in messages], read_by_hand, rounds
    )
    yield _compared(
        "protobuf_encode", lambda: [form.encode(one) for one in orders], write_by_hand, rounds
    )


async def _ready(
    make: Callable[[SchemaRegistry], Any], orders: list[Order]
) -> tuple[Any, list[bytes]]:
    """Return a format with its schemas, and the messages of ``orders``."""
    async with FakeRegistry() as fake:
        form: Format[Order] = make(SchemaRegistry(fake.url)).for_topic("orders")
        await form.before_encoding(orders)
        messages = [form.encode(order) for order in orders]
        await form.before_decoding(messages)
    return form, messages


def _compared(
    name: str, aflow: Callable[[], list[Any]], by_hand: Callable[[], list[Any]], rounds: int
) -> Measurement:
    return compare(name, len(aflow()), aflow, by_hand, at_least=0.6, rounds=rounds)
