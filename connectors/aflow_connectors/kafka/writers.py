"""The writers of ``KafkaSink``: with checkpoints in transactions, else at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from aflow.connect import Batch, Committable, SinkError, Writer
from aflow.errors import described, shown
from aflow_connectors.commit_errors import repeated_checkpoint, uncovered_records
from aflow_connectors.kafka.client import LOST, Connection, abandon, aiokafka, errors
from aflow_connectors.kafka.output import PRODUCER, Output, explained, send
from aflow_connectors.kafka.transactions import EpochCommitter, PreparedMessages, packed
from aflow_connectors.messages import MessageEncoder, RawMessage
from aflow_connectors.reconnect import Reconnect, Retries

T = TypeVar("T")

#: Bytes of a message on the wire beside its key, value and headers, at most.
_OVERHEAD: Final = 100

#: Default of aiokafka.
_LARGEST: Final = 1_048_576


@dataclass(frozen=True)
class OutputMapper(Generic[T]):
    """Maps records to messages, and refuses those that Kafka cannot take: at a commit it would be too late."""

    sink: str
    connection: Connection
    encoder: MessageEncoder[T]
    topic: str | Callable[[T], str]
    timestamps: bool
    #: Topics that exist.
    known: set[str]

    async def of(self, batch: Batch[T]) -> list[Output]:
        """Return the messages. Raises ``SinkError`` with the record for one that is none."""
        times = batch.timestamps if self.timestamps else None
        topics = await self._topics(batch.values)
        one_topic = self.topic if isinstance(self.topic, str) else topics
        messages = await self.encoder.encode(batch.values, times, topics=one_topic)
        largest: int = self.connection.settings.get("max_request_size", _LARGEST)
        found: list[Output] = []
        for record, topic, message in zip(batch.values, topics, messages, strict=True):
            time = message.timestamp if self.timestamps else None
            value, key, headers = message.value, message.key, message.headers
            if (key is None and value is None) or (time is not None and time < 0):
                raise self._refused(record, topic, message)
            size = len(value or b"") + len(key or b"") + _OVERHEAD
            size += sum(len(name) + len(data) + _OVERHEAD for name, data in headers)
            if size > largest:
                raise SinkError(
                    f"sink {self.sink!r}: record {shown(record)} is a message of {size:,} bytes, and max_request_size "
                    f"is {largest:,}; raise it in client=, and max.message.bytes of topic {topic!r}"
                )
            found.append((topic, value, key, time, headers))
        return found

    async def check(self, topic: str) -> None:
        """Raise ``SinkError`` unless ``topic`` exists."""
        if topic in self.known:
            return
        self.known.update(await self.connection.topics(SinkError))
        if topic not in self.known:
            raise SinkError(
                f"sink {self.sink!r}: Kafka at {self.connection.place} has no topic {topic!r}, or the user of client= "
                f"may not see it; create it first"
            )

    async def _topics(self, values: Sequence[T]) -> Sequence[str]:
        if isinstance(self.topic, str):
            return [self.topic] * len(values)
        try:
            topics = [self.topic(value) for value in values]
        except Exception as exc:
            raise SinkError(f"sink {self.sink!r}: topic failed: {described(exc)}") from exc
        for topic in set(topics):
            await self.check(topic)
        return topics

    def _refused(self, record: T, topic: str, message: RawMessage) -> SinkError:
        reason = "has neither key nor value, and a tombstone needs a key"
        if message.timestamp is not None and message.timestamp < 0:
            reason = "is older than 1970, which Kafka cannot store; timestamps=False leaves it out"
        return SinkError(f"sink {self.sink!r}, topic {topic!r}: record {shown(record)} {reason}")


class TransactionWriter(Writer[T]):
    """Keeps the messages of a checkpoint, which ``commit`` writes in a transaction."""

    def __init__(self, mapper: OutputMapper[T], committer: EpochCommitter) -> None:
        self._mapper = mapper
        self._committer = committer
        self._blocks: list[bytes] = []
        #: Prepared checkpoints with messages that wait for their commit.
        self._pending: set[int] = set()

    async def write(self, batch: Batch[T]) -> None:
        self._blocks.append(packed(await self._mapper.of(batch)))

    async def prepare(self, checkpoint: int) -> Committable:
        blocks, self._blocks = tuple(self._blocks), []
        last = self._committer.last
        if last is not None and checkpoint <= last:
            raise repeated_checkpoint(self._mapper.sink, last, checkpoint)
        if blocks:
            self._pending.add(checkpoint)
        # Also without messages: it tells a resumed job from a fresh one.
        return PreparedMessages(self._committer.id, checkpoint, blocks).stored()

    async def commit(self, committable: Committable) -> None:
        epoch = PreparedMessages.of(committable, sink=self._mapper.sink)
        if epoch.id != self._committer.id:
            raise SinkError(
                f"sink {self._mapper.sink!r}: checkpoint {epoch.checkpoint} has messages of {epoch.id.name!r}, not of "
                f"this writer ({self._committer.id.name!r})"
            )
        if epoch.blocks:
            await self._committer.commit(epoch)
        else:
            await self._committer.refresh()
        self._pending.discard(epoch.checkpoint)

    async def flush(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._blocks or self._pending:
            raise uncovered_records(self._mapper.sink)

    async def close(self) -> None:
        await self._committer.close()


class SendingWriter(Writer[T]):
    """Sends each batch at once, and waits until all replicas in sync have it."""

    def __init__(self, mapper: OutputMapper[T], reconnect: Reconnect) -> None:
        self._mapper = mapper
        self._place = f"sink {mapper.sink!r}, {mapper.connection.place}"
        # A producer that is no longer sure of the order of its messages is replaced too.
        lost = (*LOST, errors.OutOfOrderSequenceNumber, errors.UnknownProducerId)
        self._retries = Retries(self._place, reconnect, lost=lost, failed=SinkError)
        self._producer: Any = None

    async def open(self) -> None:
        """Connect. Raises ``SinkError``."""
        await self._retries.run(self._open)

    async def write(self, batch: Batch[T]) -> None:
        messages = await self._mapper.of(batch)
        # What was sent before a connection was lost is sent again: at least once.
        await self._retries.run(partial(self._send, messages), renew=self._open)

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer)

    async def _open(self) -> None:
        await self.close()
        connection = self._mapper.connection
        # Without its repetitions, a request whose answer is lost would be written twice, or out of order.
        producer = aiokafka.AIOKafkaProducer(
            **{**PRODUCER, **connection.options()}, enable_idempotence=True
        )
        await connection.start(producer, SinkError)
        self._producer = producer

    async def _send(self, messages: Sequence[Output]) -> None:
        try:
            await send(self._producer, messages)
        except LOST:
            raise
        except errors.KafkaError as exc:
            raise SinkError(f"{self._place}: {explained(exc)}") from exc
