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
        if self.fault == "logged error":
            cause = ValueError(SECRET)
            error = SinkError("no connection")
            error.__cause__ = cause
            _logger.warning("connecting again", exc_info=error)
        return RowWriter(self)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        if self.fault == "error" and committables:
            raise SinkError(f"foreign output in https://ada:{SECRET}@host")
        if self.fault == "context" and committables:
            try:
                raise ValueError(SECRET)
            except ValueError:
                raise SinkError("foreign output")  # noqa: B904  # its traceback shows both


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


@virtual_time
async def test_records_of_a_disturbed_sink_may_have_no_hash() -> None:
    wire = Wire()
    records = [{"n": n} for n in range(6)]

    await check_sink(lambda: Service(wire), lambda sink: sink.rows, records, disturb=wire.cut)


@virtual_time
async def test_output_that_is_lost_with_a_connection_during_a_commit_is_found() -> None:
    wire = Wire()
    with pytest.raises(AssertionError, match=r"while connections were cut, .* is visible"):
        await check_sink(lambda: HeldBack(wire), lambda sink: sink.rows, RECORDS, disturb=wire.cut)


class HeldBack(Service):
    """Shows rows of a checkpoint when it is committed, unless the connection is lost meanwhile."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, delivery=Delivery.TRANSACTIONAL)
        self.committed: set[tuple[int, int]] = set()

    async def writer(self, context: WriterContext) -> Writer[str]:
        return HeldBackWriter(self, context.subtask, is_held=context.checkpoints)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        writer = HeldBackWriter(self, 0, is_held=True)
        for one in committables:
            await writer.commit(one)


class HeldBackWriter(Writer[str]):
    def __init__(self, service: HeldBack, subtask: int, *, is_held: bool) -> None:
        self._service = service
        self._subtask = subtask
        self._is_held = is_held
        self._rows: list[str] = []

    async def write(self, batch: Batch[str]) -> None:
        (self._rows if self._is_held else self._service.rows).extend(batch.values)

    async def prepare(self, checkpoint: int) -> Committable | None:
        rows, self._rows = self._rows, []
        return ["held", self._subtask, checkpoint, rows]

    async def commit(self, committable: Committable) -> None:
        given: Any = committable
        if not isinstance(committable, list) or given[:1] != ["held"]:
            raise SinkError("not a commit of this sink")
        _, subtask, checkpoint, rows = given
        epoch = subtask, checkpoint
        service = self._service
        wire = service.wire.number
        await asyncio.sleep(0.01)
        if epoch not in service.committed and wire == service.wire.number:
            service.rows += rows
        service.committed.add(epoch)


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
        ("logged error", "a log record"),
        ("error", "the text of a SinkError"),
        ("context", "the text of a ValueError"),
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
