"""The writers of ``NatsSink``: with checkpoints exactly once, else at once."""

from __future__ import annotations

from typing import Generic, TypeVar

from aflow.connect import Batch, Committable, SinkError, Writer
from aflow_connectors.commit_errors import repeated_checkpoint, uncovered_records
from aflow_connectors.nats.client import JetStreamError, NatsLink
from aflow_connectors.nats.epochs import EpochPublisher, PreparedPublications, packed_messages
from aflow_connectors.nats.output import PublicationMapper
from aflow_connectors.nats.publications import publish

T = TypeVar("T")


class PublishingWriter(Writer[T], Generic[T]):
    """Publishes each batch at once."""

    def __init__(self, link: NatsLink, mapper: PublicationMapper[T]) -> None:
        self._link = link
        self._mapper = mapper

    async def write(self, batch: Batch[T]) -> None:
        messages = await self._mapper.of(batch.values)
        try:
            # A batch whose connection was lost is published again: at least once.
            await self._link.run(lambda session: publish(session, messages))
        except JetStreamError as exc:
            raise self._link.error(f"a message is refused: {exc}") from exc

    async def close(self) -> None:
        await self._link.close()


class PublicationWriter(Writer[T], Generic[T]):
    """Keeps the messages of a checkpoint, which ``commit`` publishes."""

    def __init__(
        self,
        sink: str,
        link: NatsLink,
        mapper: PublicationMapper[T],
        publisher: EpochPublisher,
    ) -> None:
        self._sink = sink
        self._link = link
        self._mapper = mapper
        self._publisher = publisher
        self._blocks: list[bytes] = []
        assert publisher.progress is not None
        #: The last prepared checkpoint with messages.
        self._last = publisher.progress.checkpoint
        #: Prepared checkpoints with messages that wait for their commit.
        self._pending: set[int] = set()

    async def write(self, batch: Batch[T]) -> None:
        self._blocks.append(packed_messages(await self._mapper.of(batch.values)))

    async def prepare(self, checkpoint: int) -> Committable:
        blocks, self._blocks = tuple(self._blocks), []
        if checkpoint <= self._last:
            raise repeated_checkpoint(self._sink, self._last, checkpoint)
        publisher = self._publisher
        # Also without messages: it tells a resumed job from a fresh one.
        epoch = PreparedPublications(
            publisher.stream.progress,
            publisher.owner,
            publisher.writer,
            publisher.stream.name,
            checkpoint,
            self._last,
            blocks,
        )
        if blocks:
            self._pending.add(checkpoint)
            self._last = checkpoint
        return epoch.stored()

    async def commit(self, committable: Committable) -> None:
        epoch = PreparedPublications.of(committable, sink=self._sink)
        publisher = self._publisher
        if (epoch.owner, epoch.writer) != (publisher.owner, publisher.writer):
            raise SinkError(
                f"sink {self._sink!r}: checkpoint {epoch.checkpoint} has messages of writer "
                f"{epoch.owner}-{epoch.writer}, not of this one ({publisher.owner}-{publisher.writer})"
            )
        if epoch.blocks:
            await publisher.commit(epoch)
        self._pending.discard(epoch.checkpoint)

    async def flush(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._blocks or self._pending:
            raise uncovered_records(self._sink)

    async def close(self) -> None:
        await self._link.close()
