"""Exactly-once output: the records of a checkpoint are written in one transaction, after the checkpoint is complete.

**Protocol.** A writer keeps the encoded records since the last barrier. ``prepare`` puts them into the committable, so
they are stored with the checkpoint, and a restored job can write them. ``commit`` begins a transaction, sends them,
adds the number of the checkpoint as the offset of a private consumer group, and commits. Records and number become
visible together or not at all, so the number tells whether a committable was written.

**Ids.** A writer's transactional id and group are both ``<prefix><owner>-<writer>``; the owner is a random id that the
checkpoints carry from run to run (``owners.py``). The offset belongs to partition 0 of the topic. A new writer stores 0
there. So a number that is missing later means that it was lost (offsets of unused groups expire after a week by
default), or that this is another cluster. Then it cannot be known what was written, and recovery refuses.

**Fencing.** A producer that starts with a transactional id ends the transaction of its predecessor, and makes it fail
("fenced"). Recovery starts one for each writer of the checkpoint, and only then reads the number: no process of an
earlier run can write after it. Two jobs that resume from the same checkpoint have the same ids, and the second one
fences the first.

**In doubt.** If the connection is lost during a commit, a new producer with the same id ends the transaction in one way
or the other, and the number tells which.

The price: records are in each checkpoint, and visible only some milliseconds after it. In return no transaction stays
open between checkpoints: none expires while a job is down, and readers of ``read_committed`` never wait for one. See
docs/decisions/065.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import msgspec

from aflow.connect import Committable, SinkError
from aflow.errors import RestoreError
from aflow_connectors.commit_errors import foreign_committable
from aflow_connectors.kafka.client import (
    LOST,
    Connection,
    abandon,
    aiokafka,
    errors,
    patient,
)
from aflow_connectors.kafka.output import PRODUCER, Output, explained, send
from aflow_connectors.owners import is_owner
from aflow_connectors.reconnect import Reconnect, Retries

_DECODER: Final = msgspec.msgpack.Decoder(list[Output])
_ENCODER: Final = msgspec.msgpack.Encoder()

#: Delay (ms) of attempts that the broker refuses while it completes the transaction before: a few are usual at each
#: start of a writer. aiokafka waits 100.
_BACKOFF_MS: Final = 20

#: Errors after which a new producer with the same id continues.
_RENEWED: Final = (
    *LOST,
    errors.InvalidProducerIdMapping,
    errors.InvalidTxnState,
    errors.ConcurrentTransactions,
    errors.OutOfOrderSequenceNumber,
    errors.UnknownProducerId,
)

_FENCED: Final = (
    errors.ProducerFenced,
    errors.InvalidProducerEpoch,
    errors.TransactionCoordinatorFenced,
)


def packed(messages: Sequence[Output]) -> bytes:
    """Return ``messages`` as they are in a committable."""
    return _ENCODER.encode(messages)


@dataclass(frozen=True, slots=True)
class WriterId:
    """The writer of one subtask in all runs of a job."""

    prefix: str
    owner: str
    writer: int
    topic: str
    """The offset of its group belongs to partition 0 of this topic."""

    @property
    def name(self) -> str:
        """The transactional id, and the name of the group."""
        return f"{self.prefix}{self.owner}-{self.writer}"


@dataclass(frozen=True, slots=True)
class PreparedMessages:
    """The output of one writer between two checkpoints, as a committable."""

    id: WriterId
    checkpoint: int
    blocks: tuple[bytes, ...]
    """Packed messages."""

    def stored(self) -> Committable:
        one = self.id
        return {
            "prefix": one.prefix,
            "owner": one.owner,
            "writer": one.writer,
            "topic": one.topic,
            "checkpoint": self.checkpoint,
            "messages": list(self.blocks),
        }

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> PreparedMessages:
        """Return the decoded committable. Raises ``RestoreError`` unless a ``KafkaSink`` prepared it."""
        try:
            fields = cast("dict[str, object]", committable)
            prefix, owner, topic = (
                cast(str, fields[name]) for name in ("prefix", "owner", "topic")
            )
            writer, checkpoint = (cast(int, fields[name]) for name in ("writer", "checkpoint"))
            blocks = tuple(cast("list[bytes]", fields["messages"]))
            is_plain = {type(one) for one in (prefix, owner, topic)} == {str}
            is_plain = is_plain and {type(one) for one in (writer, checkpoint)} == {int}
            is_plain = is_plain and {type(one) for one in blocks} <= {bytes}
            if is_plain and is_owner(owner) and writer >= 0:
                return cls(WriterId(prefix, owner, writer, topic), checkpoint, blocks)
        except (AttributeError, KeyError, TypeError):
            pass  # of another kind: refused below
        raise foreign_committable(sink, committable)

    def messages(self) -> Iterable[Output]:
        """Return the messages. Raises ``RestoreError`` if the checkpoint is damaged."""
        for block in self.blocks:
            try:
                yield from _DECODER.decode(block)
            except msgspec.DecodeError as exc:
                raise RestoreError(
                    f"checkpoint {self.checkpoint} has damaged messages of writer {self.id.name!r}: {exc}"
                ) from exc


class EpochCommitter:
    """Writes the epochs of one writer, each once. See the theory at the top of the module."""

    def __init__(
        self, sink: str, connection: Connection, id: WriterId, reconnect: Reconnect
    ) -> None:
        self._sink = sink
        self._connection = connection
        self.id = id
        place = f"sink {sink!r}, {connection.place}, transactional id {id.name!r}"
        self._place = place
        self._retries = Retries(place, reconnect, lost=_RENEWED, failed=SinkError)
        self._producer: Any = None
        #: The number of the last checkpoint whose output was written; None: unknown.
        self.last: int | None = None

    async def open(self) -> None:
        """Fence all earlier producers of this id, and read ``last``. Raises ``SinkError``."""
        await self._retries.run(self._open)

    async def begin(self) -> None:
        """Store 0 as ``last``, if nothing is stored: a new writer. Raises ``SinkError``."""
        if self.last is None:
            await self._retries.run(partial(self._write, 0, ()), renew=self._open)

    async def commit(self, epoch: PreparedMessages) -> None:
        """Write the messages of ``epoch``, unless that was done before. Raises ``SinkError``."""
        await self._retries.run(partial(self._write_epoch, epoch), renew=self._open)

    async def close(self) -> None:
        """Close the producer. A transaction that is under way is aborted by the next one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer)

    async def _open(self) -> None:
        await self.close()
        producer = aiokafka.AIOKafkaProducer(
            **{"retry_backoff_ms": _BACKOFF_MS, **PRODUCER, **self._connection.options()},
            transactional_id=self.id.name,
        )
        try:
            # It gets its producer id, for which a transaction of its predecessor must have ended.
            await self._connection.start(producer, SinkError)
            self._producer = producer
            self.last = await self._stored()
        except errors.KafkaError as exc:
            raise self._explained(exc) from exc

    async def _stored(self) -> int | None:
        consumer = aiokafka.AIOKafkaConsumer(
            **{"retry_backoff_ms": _BACKOFF_MS, **self._connection.common_options()},
            group_id=self.id.name,
            enable_auto_commit=False,
        )
        await self._connection.start(consumer, SinkError)
        try:
            marker = aiokafka.TopicPartition(self.id.topic, 0)
            return cast("int | None", await patient(consumer.committed(marker)))
        finally:
            await abandon(consumer)

    async def _write_epoch(self, epoch: PreparedMessages) -> None:
        if self._producer is None:
            await self._open()
        last = self.last
        if last is None:
            raise RestoreError(
                f"{self._place}: the cluster does not know which checkpoints were written, so that of "
                f"{epoch.checkpoint} may be or not. Is it another cluster, or was the job down for longer than "
                f"offsets.retention.minutes? Start fresh (restore='fresh'), or say which checkpoint was written last: "
                f"kafka-consumer-groups.sh --group {self.id.name} --topic {self.id.topic}:0 --reset-offsets "
                f"--to-offset NUMBER --execute"
            )
        if epoch.checkpoint > last:
            await self._write(epoch.checkpoint, epoch.messages())

    async def _write(self, checkpoint: int, messages: Iterable[Output]) -> None:
        producer = self._producer
        marker = aiokafka.TopicPartition(self.id.topic, 0)
        offset = aiokafka.OffsetAndMetadata(checkpoint, "")
        try:
            await patient(producer.begin_transaction())
            await send(producer, messages)
            await patient(producer.send_offsets_to_transaction({marker: offset}, self.id.name))
            await patient(producer.commit_transaction())
        except errors.KafkaError as exc:
            raise self._explained(exc) from exc
        except BaseException:
            await self.close()  # cancelled within a transaction, or damaged messages
            raise
        self.last = checkpoint

    def _explained(self, exc: Exception) -> Exception:
        """Return ``exc``, or a ``SinkError`` if no further attempt can help."""
        if isinstance(exc, _FENCED):
            timeout = self._connection.settings.get("transaction_timeout_ms", 60_000)
            return SinkError(
                f"{self._place}: fenced: another job has resumed from a checkpoint of this one and writes now, or a "
                f"transaction took longer than transaction_timeout_ms ({timeout}; see client=)"
            )
        is_lost = isinstance(exc, _RENEWED)
        return exc if is_lost else SinkError(f"{self._place}: {explained(exc)}")
