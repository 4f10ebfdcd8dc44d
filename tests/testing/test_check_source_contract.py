"""``check_source`` and ``check_discovery`` find breaches of the contract of sources for brokers and services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord, Chunk, Position, Reader, Source, SourceError, Split
from aflow.errors import FlowDefinitionError
from aflow.testing import check_discovery, check_source
from aflow.testing.virtual_time import virtual_time

VALUES = [*range(11)]
SECRET = "s3cret"

_logger = logging.getLogger("aflow.connectors")


@dataclass
class Broker:
    """A queue that keeps records until they are acknowledged; the connection to it can be cut."""

    records: list[Any] = field(default_factory=lambda: [*VALUES])
    acknowledged: int = 0
    cuts: int = 0
    connection: int = 0

    def cut(self) -> None:
        self.connection += 1
        self.cuts += 1


@dataclass(kw_only=True)
class Faults:
    """The faults of a source; the defaults are none."""

    read: Callable[[Broker, int], None] = lambda broker, after: None
    close: Callable[[Broker, int], None] = lambda broker, after: None
    notice: Callable[[Broker, int, int], None] = lambda broker, position, after: setattr(
        broker, "acknowledged", max(position, broker.acknowledged)
    )
    lost: Callable[[], Exception | None] = lambda: None
    bad: Callable[[int], BadRecord] = lambda n: BadRecord("queue, record 3", "negative", b"-3")
    position: Callable[[int], Any] = lambda after: after
    foreign: str = "a position of another source"
    log: str = "connected"
    id: str = "queue"
    shown: str = "Queue()"


BAD = af.Tag[BadRecord]("bad")


class Queue(Source[int]):
    """Records of a broker, as for AMQP: those that are not acknowledged are delivered again to a new reader."""

    replayable = False
    needs_checkpoints = True
    dead_letters = BAD

    def __init__(self, broker: Broker, faults: Faults | None = None) -> None:
        self.broker = broker
        self.faults = faults or Faults()

    def __repr__(self) -> str:
        return self.faults.shown

    async def splits(self) -> Sequence[Split]:
        return [Split(self.faults.id)]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        if isinstance(position, dict):
            raise SourceError(self.faults.foreign)
        _logger.info(self.faults.log)
        return QueueReader(self.broker, self.faults)


class QueueReader(Reader[int]):
    def __init__(self, broker: Broker, faults: Faults) -> None:
        self.broker = broker
        self.faults = faults
        self.at = broker.acknowledged
        self.connection = broker.connection

    async def read(self, limit: int) -> Chunk[int] | None:
        await asyncio.sleep(0.01)
        if self.connection != self.broker.connection:
            self.connection = self.broker.connection
            if error := self.faults.lost():
                raise error
        records = self.broker.records[self.at : self.at + limit]
        if not records:
            return None
        self.at += len(records)
        self.faults.read(self.broker, self.at)
        bad = [self.faults.bad(one) for one in records if one < 0]
        good = [one for one in records if one >= 0]
        return Chunk(good, self.faults.position(self.at), rejected=bad)

    async def on_checkpoint_completed(self, position: Position) -> None:
        assert isinstance(position, int)
        self.faults.notice(self.broker, position, self.at)

    async def close(self) -> None:
        self.faults.close(self.broker, self.at)


def acknowledge(broker: Broker, after: int) -> None:
    broker.acknowledged = max(broker.acknowledged, after)


def acknowledged_by(source: Queue) -> int:
    return source.broker.acknowledged


async def check(faults: Faults | None = None, **options: Any) -> None:
    await check_source(lambda: Queue(Broker(), faults), expected=VALUES, **options)


@pytest.mark.parametrize("hook", [None, acknowledged_by], ids=["no", "hook"])
@virtual_time
async def test_a_queue_that_keeps_the_contract_passes(hook: Any) -> None:
    await check(acknowledged=hook)


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("when", ["read", "close"])
@virtual_time
async def test_an_acknowledgement_before_a_checkpoint_is_found(when: str, hook: bool) -> None:
    faults: Any = {when: acknowledge}
    options: dict[str, Any] = {"acknowledged": acknowledged_by} if hook else {}

    with pytest.raises(AssertionError) as raised:
        await check(Faults(**faults), **options)

    text = (
        "read() or close() has acknowledged 11 records"
        if hook
        else "(does read() or close() acknowledge?)"
    )
    assert text in str(raised.value)


@virtual_time
async def test_an_acknowledgement_of_more_than_the_checkpoint_covers_is_found() -> None:
    def all_that_was_read(broker: Broker, position: int, after: int) -> None:
        acknowledge(broker, after + 1)

    with pytest.raises(
        AssertionError, match="after a crash that followed the checkpoint at position 2"
    ):
        await check(Faults(notice=all_that_was_read))
    with pytest.raises(
        AssertionError, match="3 records are acknowledged, and the completed checkpoint"
    ):
        await check(Faults(notice=all_that_was_read), acknowledged=acknowledged_by)


@virtual_time
async def test_records_that_are_never_acknowledged_are_found() -> None:
    async def acknowledged(source: Queue) -> int:
        return source.broker.acknowledged

    def the_first_two(broker: Broker, position: int, after: int) -> None:
        acknowledge(broker, min(position, 2))

    with pytest.raises(
        AssertionError, match="2 records are acknowledged after the checkpoint at the"
    ):
        await check(Faults(notice=the_first_two), acknowledged=acknowledged)


@virtual_time
async def test_a_source_that_connects_again_passes_while_connections_are_cut() -> None:
    broker = Broker()

    await check_source(lambda: Queue(broker_again(broker)), expected=VALUES, disturb=broker.cut)

    assert broker.cuts >= 3


def broker_again(broker: Broker) -> Broker:
    broker.acknowledged = 0
    return broker


@virtual_time
async def test_a_source_that_fails_at_a_lost_connection_is_found() -> None:
    broker = Broker()
    faults = Faults(lost=lambda: SourceError("connection reset"))

    with pytest.raises(
        AssertionError, match=r"with cut connections it fails \(connection reset\) instead of"
    ):
        await check_source(lambda: Queue(broker_again(broker), faults), disturb=broker.cut)


@virtual_time
async def test_a_source_that_loses_records_with_its_connection_is_found() -> None:
    broker = Broker()

    def forget() -> None:
        broker.records.pop()

    with pytest.raises(AssertionError, match="while connections are cut, split 'queue' gives"):
        await check_source(
            lambda: Queue(broker_again(broker), Faults(lost=forget)), disturb=broker.cut
        )


WITH_BAD = [1, 2, -3, 4, 5]


@virtual_time
async def test_bad_records_are_compared_with_their_data() -> None:
    await check_source(
        lambda: Queue(Broker(WITH_BAD)),
        expected=[1, 2, 4, 5],
        rejected=[b"-3"],
        acknowledged=acknowledged_by,
    )

    with pytest.raises(AssertionError, match=r"the bad records are .* instead of \[\]"):
        await check_source(lambda: Queue(Broker(WITH_BAD)), rejected=[])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (BadRecord("", "negative", b"-3"), "place of a BadRecord"),
        (BadRecord("here", "", b"-3"), "reason of a BadRecord"),
        (BadRecord("here", "negative", b"x" * 4097), "at most 4096"),
        ("-3", "rejected records are BadRecord"),
    ],
    ids=["place", "reason", "raw", "type"],
)
@virtual_time
async def test_a_bad_record_without_place_reason_or_data_is_found(bad: Any, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        await check_source(lambda: Queue(Broker(WITH_BAD), Faults(bad=lambda _: bad)))


def with_secret(after: int) -> tuple[int, str]:
    return after, SECRET


def bad_with_secret(number: int) -> BadRecord:
    return BadRecord(f"host?{SECRET}", "negative", b"-3")


@pytest.mark.parametrize(
    ("faults", "where"),
    [
        ({"position": with_secret}, "a position"),
        ({"foreign": f"no login as {SECRET}"}, "the text of a SourceError"),
        ({"log": f"connected to ada:{SECRET}@host"}, "a log record"),
        ({"id": f"ada:{SECRET}@host"}, "the id of a split"),
        ({"shown": f"Queue({SECRET!r})"}, "repr"),
        ({"bad": bad_with_secret}, "place of a BadRecord"),
    ],
    ids=["position", "error", "log", "split", "repr", "place"],
)
@virtual_time
async def test_a_secret_that_is_shown_is_found_and_not_shown_again(
    faults: dict[str, Any], where: str
) -> None:
    records = WITH_BAD if "bad" in faults else VALUES

    with pytest.raises(AssertionError) as raised:
        await check_source(lambda: Queue(Broker([*records]), Faults(**faults)), secrets=[SECRET])

    assert "Queue shows secrets[0]" in str(raised.value)
    assert where in str(raised.value)
    assert SECRET not in str(raised.value)


@virtual_time
async def test_a_source_that_hides_its_secrets_passes() -> None:
    await check(secrets=[SECRET])


@virtual_time
async def test_a_secret_that_could_occur_by_chance_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="at least four characters"):
        await check(secrets=["a"])


class Topics(Source[int]):
    """A topic of several partitions, which may get more."""

    bounded = False
    discover_every: timedelta | None = timedelta(seconds=1)

    def __init__(self) -> None:
        self.partitions = [[1, 2], [3]]
        #: Changes the listed ids.
        self.listed: Callable[[list[str]], list[str]] = list
        self.skip = 0

    async def splits(self) -> Sequence[Split]:
        return [Split(one) for one in self.listed([str(n) for n in range(len(self.partitions))])]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return PartitionOfTopic(self.partitions[int(split.id)][self.skip :])


class PartitionOfTopic(Reader[int]):
    def __init__(self, records: list[int]) -> None:
        self.records = records
        self.at = 0

    async def read(self, limit: int) -> Chunk[int] | None:
        if self.at == len(self.records):
            await asyncio.Event().wait()
        records = self.records[self.at : self.at + limit]
        self.at += len(records)
        return Chunk(records, self.at)


def grow(source: Topics) -> list[int]:
    source.partitions.append([7, 8, 9])
    return [7, 8, 9]


async def grow_and_skip(source: Topics) -> list[int]:
    source.skip = 1
    return grow(source)


def grow_and_rename(source: Topics) -> list[int]:
    source.listed = lambda ids: [f"{one}0" for one in ids]
    return grow(source)


def grow_unseen(source: Topics) -> list[int]:
    source.listed = lambda ids: ids[:2]
    return grow(source)


@virtual_time
async def test_a_source_that_finds_new_splits_passes() -> None:
    await check_discovery(Topics, grow)


@pytest.mark.parametrize(
    ("growing", "reason"),
    [
        (grow_and_skip, "instead of"),
        (grow_and_rename, r"splits \['0', '1'\] are missing"),
        (grow_unseen, "after a split was created"),
    ],
    ids=["skips", "renames", "unseen"],
)
@virtual_time
async def test_new_splits_that_are_not_found_or_not_read_from_their_start_are_found(
    growing: Any, reason: str
) -> None:
    with pytest.raises(AssertionError, match=reason):
        await check_discovery(Topics, growing, patience=timedelta(seconds=1))


@virtual_time
async def test_a_source_that_lists_its_splits_once_is_found() -> None:
    class Once(Topics):
        discover_every = None

    with pytest.raises(AssertionError, match="declares no discover_every"):
        await check_discovery(Once, grow)
