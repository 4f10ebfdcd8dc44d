"""``check_sink`` finds breaches of the contract of sinks for brokers and services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from aflow.connect import Batch, Committable, Delivery, Sink, SinkError, Writer, WriterContext
from aflow.testing import check_sink
from aflow.testing.virtual_time import virtual_time

RECORDS = [*"abcdefgh"]
SECRET = "s3cret"

_logger = logging.getLogger("aflow.connectors")


@dataclass
class Wire:
    """The connection of all sinks of a test."""

    number: int = 0

    def cut(self) -> None:
        self.number += 1

    async def cut_later(self) -> None:
        self.number += 1


@dataclass
class Service(Sink[str]):
    """Rows of a service, which has them when a write returns. ``fault`` changes one effect."""

    wire: Wire = field(default_factory=Wire)
    fault: str = ""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    rows: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Service({SECRET if self.fault == 'repr' else ''})"

    async def writer(self, context: WriterContext) -> Writer[str]:
        if self.fault == "log":
            _logger.debug("connected as %s", SECRET)
        return RowWriter(self)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        if self.fault == "error" and committables:
            raise SinkError(f"foreign output in https://ada:{SECRET}@host")


class RowWriter(Writer[str]):
    def __init__(self, service: Service) -> None:
        self._service = service
        self._wire = service.wire.number

    async def write(self, batch: Batch[str]) -> None:
        service = self._service
        rows = list(batch.values)
        await asyncio.sleep(0.01)
        if self._wire != service.wire.number:
            self._wire = service.wire.number
            match service.fault:
                case "fails":
                    raise SinkError("connection reset")
                case "loses":
                    rows = rows[1:]
                case _:
                    rows = rows * 2  # it is not known if the service has them: at least once
        service.rows += rows

    async def prepare(self, checkpoint: int) -> Committable | None:
        return f"https://ada:{SECRET}@host" if self._service.fault == "committable" else None


async def check(fault: str = "", **options: Any) -> None:
    wire = Wire()
    await check_sink(lambda: Service(wire, fault), lambda sink: sink.rows, RECORDS, **options)


@virtual_time
async def test_a_sink_that_connects_again_passes_while_connections_are_cut() -> None:
    for cut in (Wire.cut, Wire.cut_later):
        wire = Wire()
        await check_sink(
            lambda wire=wire: Service(wire),  # type: ignore[misc]
            lambda sink: sink.rows,
            RECORDS,
            disturb=lambda cut=cut, wire=wire: cut(wire),  # type: ignore[misc]
        )
        assert wire.number >= 8


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("fails", "with cut connections it fails .connection reset. instead of waiting"),
        ("loses", "while connections were cut, .* was written, and .* is visible"),
    ],
)
@virtual_time
async def test_a_sink_that_does_not_survive_lost_connections_is_found(
    fault: str, reason: str
) -> None:
    wire = Wire()
    with pytest.raises(AssertionError, match=reason):
        await check_sink(
            lambda: Service(wire, fault), lambda sink: sink.rows, RECORDS, disturb=wire.cut
        )


@virtual_time
async def test_duplicates_after_lost_connections_are_a_breach_unless_they_were_declared() -> None:
    wire = Wire()
    with pytest.raises(AssertionError, match="while connections were cut"):
        await check_sink(lambda: Unique(wire), lambda sink: sink.shown(), RECORDS, disturb=wire.cut)


class Unique(Service):
    """Claims to be idempotent, and is only while no connection is lost."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, delivery=Delivery.IDEMPOTENT)

    def shown(self) -> list[str]:
        if self.wire.number:
            return self.rows
        return list(dict.fromkeys(self.rows))


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        ("repr", "repr() of the sink"),
        ("log", "a log record"),
        ("error", "the text of a SinkError"),
        ("committable", "a committable"),
    ],
)
@virtual_time
async def test_a_secret_that_a_sink_shows_is_found_and_not_shown_again(
    fault: str, where: str
) -> None:
    with pytest.raises(AssertionError) as raised:
        await check(fault, secrets=[SECRET])

    assert f"Service shows secrets[0]: {where}" in str(raised.value)
    assert SECRET not in str(raised.value)


@virtual_time
async def test_a_sink_that_hides_its_secrets_passes() -> None:
    await check(secrets=[SECRET])
