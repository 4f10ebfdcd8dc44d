"""Exactly-once output: the records of a checkpoint are written in one transaction, after the checkpoint is complete.

**Protocol.** A writer keeps the encoded records since the last barrier. ``prepare`` puts them into the committable, so
they are stored with the checkpoint, and a restored job can write them. ``commit`` begins a transaction, sends them,
adds the number of the checkpoint as the offset of a private consumer group, and commits. Records and number become
visible together or not at all, so the number tells whether a committable was written.

**Ids.** A writer's transactional id and group are both ``<prefix><owner>-<writer>``; the owner is a random id that the
checkpoints carry from run to run (``owners.py``). The offset belongs to partition 0 of the topic. A new writer stores 0
there. So a number that is missing later means that it was lost (offsets of unused groups expire after a week by
default), or that this is another cluster. Then it cannot be known what was written, and recovery refuses. A writer
without output stores its number again every hour, so neither the number nor the transactional id expires.

**Fencing.** A producer that starts with a transactional id ends the transaction of its predecessor, and makes it fail
("fenced"). Recovery starts one for each writer of the checkpoint, and only then reads the number: no process of an
earlier run can write after it. Two jobs that resume from the same checkpoint have the same ids, and the second one
fences the first. A writer whose connection was lost needs a new producer, which would fence the successor in turn. So
each run has a token of its own, stored as the metadata of the offset: a writer that finds another one is fenced.

**In doubt.** If the connection is lost during a commit, a new producer with the same id ends the transaction in one way
or the other, and the number tells which.

The price: records are in each checkpoint, and visible only some milliseconds after it. In return no transaction stays
open between checkpoints: none expires while a job is down, and readers of ``read_committed`` never wait for one. See
docs/decisions/065.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import msgspec

from aflow.connect import Committable, SinkError
from aflow.errors import RestoreError
from aflow_connectors.commit_errors import FENCED, foreign_committable
from aflow_connectors.kafka.client import (
    LOST,
    Connection,
    abandon,
    aiokafka,
    committed_offset,
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

#: Time (s) after which a number is stored again.
_REFRESH: Final = 3600.0

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
        self, sink: str, connection: Connection, id: WriterId, run: str, reconnect: Reconnect
    ) -> None:
        self._sink = sink
        self._connection = connection
        self.id = id
        self._run = run
        place = f"sink {sink!r}, {connection.place}, transactional id {id.name!r}"
        self._place = place
        self._retries = Retries(place, reconnect, lost=_RENEWED, failed=SinkError)
        self._producer: Any = None
        #: The number of the last checkpoint whose output was written; None: unknown.
        self.last: int | None = None
        #: True once the token of this run is stored.
        self._has_begun = False
        #: Loop time at which the number was stored.
        self._stored_at = 0.0

    async def open(self) -> None:
        """Fence all earlier producers of this id, and read ``last``. Raises ``SinkError``."""
        await self._retries.run(self._open)
        self._stored_at = asyncio.get_running_loop().time()

    async def begin(self) -> None:
        """Store the token of this run, and 0 as ``last`` if nothing is stored: a new writer. Raises ``SinkError``."""
        if not self._has_begun:
            await self._retries.run(self._begin, renew=self._open)

    async def refresh(self) -> None:
        """Store ``last`` again if that was not done for long, or it would expire. Raises ``SinkError``."""
        if asyncio.get_running_loop().time() - self._stored_at >= _REFRESH:
            await self._retries.run(self._refresh, renew=self._open)

    async def commit(self, epoch: PreparedMessages) -> None:
        """Write the messages of ``epoch``, unless that was done before. Raises ``SinkError``."""
        await self._retries.run(partial(self._write_epoch, epoch), renew=self._open)

    async def close(self) -> None:
        """Close the producer. A transaction that is under way is aborted by the next one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer)

    async def _begin(self) -> None:
        await self._write(0 if self.last is None else self.last, ())

    async def _refresh(self) -> None:
        if self._producer is None:
            await self._open()
        if self.last is not None:  # else it has expired already: the next commit says so
            await self._write(self.last, ())

    async def _open(self) -> None:
        await self.close()
        if self._has_begun:
            await self._read_stored()  # if another run has begun, it must not be fenced
        producer = aiokafka.AIOKafkaProducer(
            **{"retry_backoff_ms": _BACKOFF_MS, **PRODUCER, **self._connection.options()},
            transactional_id=self.id.name,
        )
        try:
            # It gets its producer id, for which a transaction of its predecessor must have ended.
            await self._connection.start(producer, SinkError)
            await self._read_stored()
        except errors.KafkaError as exc:
            await abandon(producer)
            raise self._explained(exc) from exc
        except BaseException:
            await abandon(producer)
            raise
        self._producer = producer

    async def _read_stored(self) -> None:
        """Read ``last``. Raises ``SinkError`` if another run has begun since this one."""
        consumer = aiokafka.AIOKafkaConsumer(
            **{"retry_backoff_ms": _BACKOFF_MS, **self._connection.common_options()},
            group_id=self.id.name,
            enable_auto_commit=False,
        )
        await self._connection.start(consumer, SinkError)
        try:
            marker = aiokafka.TopicPartition(self.id.topic, 0)
            stored = await patient(committed_offset(consumer, marker))
        except errors.KafkaError as exc:
            raise self._explained(exc) from exc
        finally:
            await abandon(consumer)
        self.last, run = (None, "") if stored is None else stored
        if self._has_begun and run not in ("", self._run):  # it may have been reset by hand
            raise SinkError(f"{self._place}: {FENCED}")
        self._has_begun = run == self._run

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
        offset = aiokafka.OffsetAndMetadata(checkpoint, self._run)
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
        self.last, self._has_begun = checkpoint, True
        self._stored_at = asyncio.get_running_loop().time()

    def _explained(self, exc: Exception) -> Exception:
        """Return ``exc``, or a ``SinkError`` if no further attempt can help."""
        if isinstance(exc, _FENCED):
            timeout = self._connection.settings.get("transaction_timeout_ms", 60_000)
            return SinkError(
                f"{self._place}: {FENCED}, or a transaction took longer than transaction_timeout_ms ({timeout}; see "
                f"client=)"
            )
        is_lost = isinstance(exc, _RENEWED)
        return exc if is_lost else SinkError(f"{self._place}: {explained(exc)}")
