"""``KafkaSink``: topics of a Kafka cluster as a destination."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from aflow.connect import Committable, Delivery, Sink, SinkError, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.broker_arguments import checked_format, checked_function
from aflow_connectors.commit_errors import check_one_owner
from aflow_connectors.formats import Format, Json
from aflow_connectors.kafka.client import LOST, aiokafka, connection
from aflow_connectors.kafka.transactions import EpochCommitter, PreparedMessages, WriterId
from aflow_connectors.kafka.writers import OutputMapper, SendingWriter, TransactionWriter
from aflow_connectors.messages import HeadersOf, MessageEncoder
from aflow_connectors.owners import new_owner
from aflow_connectors.plain_key import PlainKey
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")

_PREFIX: Final = "aflow-"


class KafkaSink(Sink[T], Generic[T]):
    """Write each record as a message to ``topic``: a name, or a function of the record. Topics must exist.

    ``servers`` are "host:port", several in a list or with commas. Records are encoded as JSON, or in another
    ``format``. ``key`` maps a record to the key of its message (bytes or text, or what ``key_format`` encodes),
    ``headers`` to its headers. A ``Message`` brings its own key, headers and timestamp; one without value is a
    tombstone. Messages with equal keys are in one partition. The event time of a record is the timestamp of its
    message, unless ``timestamps`` is False.

    With checkpoints each record is visible exactly once to readers with ``read_committed``, once its checkpoint is
    complete: until then records are kept in memory and in the checkpoint. ``transactional_id_prefix`` begins the
    transactional ids and the names of the groups of this sink, which have a random part. With a function as ``topic``,
    ``offsets_topic`` names an existing topic for the number of the last checkpoint. Without checkpoints, or with
    ``exactly_once=False``, messages are visible at once, and written again after a restart.

    ``client`` are settings of ``AIOKafkaProducer``, as for TLS, SASL, and ``compression_type``. Raises ``SinkError``
    for wrong credentials, unknown topics and records that are no message; a lost connection is renewed (``reconnect``).
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        topic: str | Callable[[T], str],
        *,
        format: Format[Any] | None = None,
        key: Callable[[T], Any] | None = None,
        key_format: Format[Any] | None = None,
        headers: HeadersOf[T] | None = None,
        timestamps: bool = True,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        exactly_once: bool = True,
        transactional_id_prefix: str = _PREFIX,
        offsets_topic: str | None = None,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "KafkaSink"
        self.delivery = Delivery.TRANSACTIONAL if exactly_once else Delivery.AT_LEAST_ONCE
        self._exactly_once = exactly_once
        self._connection = connection(owner, servers, client, aiokafka.AIOKafkaProducer)
        self._topic = _checked_topic(owner, topic)
        self._format = checked_format(owner, "format", format, Json())
        self._key_format = checked_format(owner, "key_format", key_format, PlainKey())
        self._key = checked_function(owner, "key", key)
        self._headers = checked_function(owner, "headers", headers)
        self._timestamps = timestamps
        self._reconnect = checked_reconnect(owner, reconnect)
        self._prefix = _checked_prefix(owner, transactional_id_prefix)
        self._offsets_topic = self._checked_offsets_topic(owner, offsets_topic)
        #: The owner of the output and the run, by the name of the sink in its flow.
        self._runs: dict[str, tuple[str, str]] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        mapper = await self._mapper(context.name)
        if not (self._exactly_once and context.checkpoints):
            sending = SendingWriter(mapper, self._reconnect)
            await sending.open()
            return sending
        owner, run = self._runs.setdefault(context.name, (new_owner(), new_owner()))
        id = WriterId(self._prefix, owner, context.subtask, self._offsets_topic)
        committer = self._committer(context.name, id, run)
        try:
            await committer.open()
            await committer.begin()
        except BaseException:
            await committer.close()
            raise
        return TransactionWriter(mapper, committer)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Recover as ``Sink.recover``. Raises ``RestoreError``, and ``SinkError`` if the topic is ahead of the
        checkpoint.
        """
        if not (self._exactly_once or committables):
            return  # output that an earlier run has prepared is written in any case
        epochs = [PreparedMessages.of(one, sink=name) for one in committables]
        owners = {epoch.id.owner for epoch in epochs}
        check_one_owner(name, owners, output="messages")
        run = new_owner()
        if epochs:
            await self._recover(name, epochs, run)
        self._runs[name] = (owners.pop() if owners else new_owner(), run)

    async def _recover(self, name: str, epochs: Sequence[PreparedMessages], run: str) -> None:
        newest = max(epoch.checkpoint for epoch in epochs)
        known = {epoch.id: epoch for epoch in epochs}
        for id in known:
            mine = [epoch for epoch in epochs if epoch.id == id]
            await self._recover_writer(name, id, mine, newest, run)
        # Writers of a later checkpoint, with more subtasks: their output would be written again.
        last = max(known, key=lambda id: id.writer)
        number = last.writer
        while True:
            number += 1
            id = WriterId(last.prefix, last.owner, number, last.topic)
            if not await self._recover_writer(name, id, (), newest, run):
                return

    async def _recover_writer(
        self, name: str, id: WriterId, epochs: Sequence[PreparedMessages], newest: int, run: str
    ) -> bool:
        """Fence writer ``id``, and write its ``epochs``. Return True if the cluster knows it."""
        committer = self._committer(name, id, run)
        try:
            await committer.open()
            if committer.last is not None and committer.last > newest:
                raise SinkError(
                    f"sink {name!r}: the job resumes from checkpoint {newest}, but the messages up to checkpoint "
                    f"{committer.last} are in Kafka already and would be written again. Resume from that checkpoint, "
                    f"start fresh (restore='fresh'), or accept duplicates: kafka-consumer-groups.sh --group {id.name} "
                    f"--topic {id.topic}:0 --reset-offsets --to-offset {newest} --execute"
                )
            for epoch in sorted(epochs, key=lambda epoch: epoch.checkpoint):
                if epoch.blocks:
                    await committer.commit(epoch)
            if committer.last is not None:
                await committer.begin()
            return committer.last is not None
        finally:
            await committer.close()

    def _committer(self, name: str, id: WriterId, run: str) -> EpochCommitter:
        return EpochCommitter(name, self._connection, id, run, self._reconnect)

    async def _mapper(self, name: str) -> OutputMapper[T]:
        """Return the mapper of a writer. Raises ``SinkError`` if the topic does not exist."""
        place = f"sink {name!r}"
        encoder = MessageEncoder[T](
            place,
            self._format,
            key=self._key,
            key_format=self._key_format,
            headers=self._headers,
        )
        mapper = OutputMapper(name, self._connection, encoder, self._topic, self._timestamps, set())
        retries = Retries(
            f"{place}, {self._connection.place}", self._reconnect, lost=LOST, failed=SinkError
        )
        topics = {self._topic, self._offsets_topic} if self._exactly_once else {self._topic}
        for topic in topics:
            if isinstance(topic, str):
                await retries.run(partial(mapper.check, topic))
        return mapper

    def _checked_offsets_topic(self, owner: str, topic: object) -> str:
        if topic is not None and not (isinstance(topic, str) and topic):
            raise FlowDefinitionError(
                f"{owner}: offsets_topic= must be the name of a topic, not {shown(topic)}"
            )
        if isinstance(topic, str):
            return topic
        if isinstance(self._topic, str):
            return self._topic
        if self._exactly_once:
            raise FlowDefinitionError(
                f"{owner}: with a function as topic, offsets_topic= must name a topic that exists, for the number of "
                f"the last checkpoint; or use exactly_once=False"
            )
        return ""


def _checked_topic(owner: str, topic: Any) -> Any:
    if callable(topic) or (isinstance(topic, str) and topic):
        return topic
    raise FlowDefinitionError(
        f"{owner}: the topic must be a name or a function of the record, not {shown(topic)}"
    )


def _checked_prefix(owner: str, prefix: object) -> str:
    if isinstance(prefix, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,150}", prefix):
        return prefix
    raise FlowDefinitionError(
        f"{owner}: transactional_id_prefix= must be 1 to 150 letters, digits, '.', '_' or '-', not {shown(prefix)}"
    )
