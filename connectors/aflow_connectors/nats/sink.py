"""``NatsSink``: streams of NATS JetStream as a destination."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from aflow.connect import Committable, Delivery, Sink, SinkError, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.broker_arguments import (
    checked_format,
    checked_function,
    checked_optional_name,
)
from aflow_connectors.commit_errors import check_one_owner
from aflow_connectors.formats import Format, Json
from aflow_connectors.messages import HeadersOf, MessageEncoder
from aflow_connectors.nats.client import TIMEOUT, NatsLink, NatsServers
from aflow_connectors.nats.epochs import (
    EpochPublisher,
    OutputStream,
    PreparedPublications,
    recover_writers,
)
from aflow_connectors.nats.output import PublicationMapper, StreamLimits, look_up, progress_stream
from aflow_connectors.nats.writers import PublicationWriter, PublishingWriter
from aflow_connectors.owners import new_owner
from aflow_connectors.plain_key import PlainKey
from aflow_connectors.reconnect import Reconnect

T = TypeVar("T")

_PROGRESS: Final = "aflow-progress"


class NatsSink(Sink[T], Generic[T]):
    """Publish each record as a message with ``subject``: a name, or a function of the record.

    ``servers`` are like "nats://user:password@host:4222", several in a list or with commas. A stream of JetStream must
    capture the subjects; ``stream`` names it, and is required with a function. Records are encoded as JSON, or in
    another ``format``. ``headers`` maps a record to the headers of its message. A ``Message`` brings its own.

    With checkpoints each record is published exactly once, once its checkpoint is complete: until then records are kept
    in memory and in the checkpoint. Each message has an id (``Nats-Msg-Id``), and the stream ``progress`` has the
    number of the last checkpoint of each writer; it is created if it does not exist. The stream of the output must keep
    messages by its limits alone, and longer than the job may be down. Without checkpoints, or with
    ``exactly_once=False``, messages are visible at once, and published again after a restart.

    A server that does not answer for ``timeout`` is away. ``client`` are arguments of ``nats.connect``. Raises
    ``SinkError`` for wrong credentials, subjects without stream and records that are no message; a lost connection is
    renewed (``reconnect``).
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        subject: str | Callable[[T], str],
        *,
        format: Format[Any] | None = None,
        headers: HeadersOf[T] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        exactly_once: bool = True,
        stream: str | None = None,
        progress: str = _PROGRESS,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "NatsSink"
        self.delivery = Delivery.TRANSACTIONAL if exactly_once else Delivery.AT_LEAST_ONCE
        self._servers = NatsServers(owner, servers, client, reconnect, timeout)
        self._subject = _checked_subject(owner, subject)
        self._format = checked_format(owner, "format", format, Json())
        self._headers = checked_function(owner, "headers", headers)
        self._exactly_once = exactly_once
        self._stream = checked_optional_name(owner, "stream", stream)
        if self._stream is None and not isinstance(subject, str):
            raise FlowDefinitionError(
                f"{owner}: with a function as subject, stream= must name the stream that captures the subjects"
            )
        self._progress = _checked_progress(owner, progress)
        #: The owner of the output and the run, by the name of the sink in its flow.
        self._runs: dict[str, tuple[str, str]] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        link = self._link(context.name)
        try:
            limits = await self._looked_up(link)
            mapper = self._mapper(context.name, limits)
            if not (self._exactly_once and context.checkpoints):
                return PublishingWriter(link, mapper)
            output = await self._output(link, limits)
            owner, run = self._runs.setdefault(context.name, (new_owner(), new_owner()))
            publisher = EpochPublisher(context.name, link, output, owner, context.subtask, run)
            await publisher.open_run()
            return PublicationWriter(context.name, link, mapper, publisher)
        except BaseException:
            await link.close()
            raise

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Recover as ``Sink.recover``. Raises ``RestoreError``, and ``SinkError`` if the stream is ahead of the
        checkpoint.
        """
        if not (self._exactly_once or committables):
            return  # output that an earlier run has prepared is written in any case
        epochs = [PreparedPublications.of(one, sink=name) for one in committables]
        places = {(epoch.owner, epoch.stream, epoch.progress) for epoch in epochs}
        check_one_owner(name, places)
        run = new_owner()
        if epochs:
            link = self._link(name)
            try:
                limits = await look_up(link, self._subject, epochs[0].stream)
                output = await self._output(link, limits, epochs[0].progress)
                await recover_writers(name, link, output, epochs, run)
            finally:
                await link.close()
        self._runs[name] = (epochs[0].owner if epochs else new_owner(), run)

    async def _looked_up(self, link: NatsLink) -> StreamLimits:
        limits = await look_up(link, self._subject, self._stream)
        if self._exactly_once:
            limits.check_exactly_once(link)
        return limits

    async def _output(
        self, link: NatsLink, limits: StreamLimits, progress: str | None = None
    ) -> OutputStream:
        name = self._progress if progress is None else progress
        await progress_stream(link, name, replicas=limits.replicas)
        return OutputStream(limits.name, limits.window, name)

    def _mapper(self, name: str, limits: StreamLimits) -> PublicationMapper[T]:
        place = f"sink {name!r}"
        encoder = MessageEncoder[T](
            place, self._format, key_format=PlainKey(), key=_no_key, headers=self._headers
        )
        return PublicationMapper(place, encoder, self._subject, limits)

    def _link(self, name: str) -> NatsLink:
        return NatsLink(self._servers, f"sink {name!r}", SinkError)


def _no_key(record: object) -> None:
    """The key of a ``Message`` of NATS is its subject, which the sink chooses."""
    return None


def _checked_subject(owner: str, subject: Any) -> Any:
    if callable(subject) or (isinstance(subject, str) and re.fullmatch(r"[^\s*>]+", subject)):
        return subject
    raise FlowDefinitionError(
        f"{owner}: the subject must be a name without wildcards, or a function of the record, not {shown(subject)}"
    )


def _checked_progress(owner: str, name: object) -> str:
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name):
        return name
    raise FlowDefinitionError(
        f"{owner}: progress= must be the name of a stream of letters, digits, '_' or '-', not {shown(name)}"
    )
