"""Exactly-once output: messages of a checkpoint, and the progress of each writer in a stream of its own.

JetStream has no transactions. It drops a message whose id it has seen, but forgets ids after the stream's duplicate
window (two minutes by default), so ids alone do not survive a long outage.

**Protocol.** A writer keeps the encoded messages since the last barrier; ``prepare`` puts them into the committable.
``commit`` does three things:

1. *begin*: write ``(run, checkpoint, begun, sequence)`` as progress, with the last sequence of the output stream;
2. publish the messages, each with the id ``<owner>-<writer>-<checkpoint>-<number>``, and await all acknowledgements;
3. *end*: write ``(run, checkpoint, ended)`` as progress.

**In doubt.** After a crash, or a lost connection, between begin and end, the messages that the output stream has got
after the sequence are read. Those whose ids are there are not published again. So it makes no difference how long the
outage was. If the stream has discarded messages after that sequence meanwhile, it is unknown, and recovery refuses. The
duplicate window only has to cover what is still under way when a connection was lost.

**Progress.** The last message of the subject ``<progress>.<owner>.<writer>`` of the stream ``<progress>``, which keeps
one message for each subject. Each write expects the sequence of the one before
(``Nats-Expected-Last-Subject-Sequence``), so of two writers one fails.

**Fencing.** ``recover`` writes the progress of each writer with a new run. A process of an earlier run that still lives
fails at its next begin, before it publishes anything. One that is frozen between begin and the end of its publications
for longer than half of the duplicate window looks up what is there before it continues.

See docs/decisions/069.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
import orjson

from aflow.connect import Committable, ConnectorError, SinkError
from aflow.errors import RestoreError
from aflow_connectors.commit_errors import FENCED, foreign_committable
from aflow_connectors.nats.client import (
    NOT_FOUND,
    JetStreamError,
    NatsLink,
    NatsSession,
)
from aflow_connectors.nats.publications import NatsMessage, ids_after, publish
from aflow_connectors.owners import is_owner

T = TypeVar("T")

_DECODER: Final = msgspec.msgpack.Decoder(list[NatsMessage])
_ENCODER: Final = msgspec.msgpack.Encoder()

#: Number of the error for another sequence than the expected one.
_WRONG_SEQUENCE: Final = 10071

_ID: Final = "Nats-Msg-Id"
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_STREAM: Final = "Nats-Expected-Stream"


def packed_messages(messages: Sequence[NatsMessage]) -> bytes:
    """Return ``messages`` as they are in a committable."""
    return _ENCODER.encode(messages)


@dataclass(frozen=True, slots=True)
class OutputStream:
    """The stream that gets the messages, and the one with the progress."""

    name: str
    window: float
    """The duplicate window in seconds."""
    progress: str


class WriterProgress(NamedTuple):
    """The progress of a writer, and the sequence of the message that has it."""

    run: str
    checkpoint: int = 0
    after: int | None = None
    """The last sequence of the output stream at the begin; None: the checkpoint has ended."""
    sequence: int = 0

    def encoded(self) -> bytes:
        return orjson.dumps({"run": self.run, "checkpoint": self.checkpoint, "after": self.after})


@dataclass(frozen=True, slots=True)
class PreparedPublications:
    """The output of one writer between two checkpoints, as a committable."""

    progress: str
    owner: str
    writer: int
    stream: str
    checkpoint: int
    previous: int
    """The checkpoint before it that has messages of this writer; 0 for none."""
    blocks: tuple[bytes, ...]
    """Packed messages."""

    def stored(self) -> Committable:
        return {
            "progress": self.progress,
            "owner": self.owner,
            "writer": self.writer,
            "stream": self.stream,
            "checkpoint": self.checkpoint,
            "previous": self.previous,
            "messages": list(self.blocks),
        }

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> PreparedPublications:
        """Return the decoded committable. Raises ``RestoreError`` unless a ``NatsSink`` prepared it."""
        try:
            fields = cast("dict[str, Any]", committable)
            texts = [cast(str, fields[name]) for name in ("progress", "owner", "stream")]
            numbers = [cast(int, fields[name]) for name in ("writer", "checkpoint", "previous")]
            blocks = tuple(cast("list[bytes]", fields["messages"]))
            is_plain = {type(one) for one in texts} == {str}
            is_plain = is_plain and {type(one) for one in numbers} == {int} and min(numbers) >= 0
            is_plain = is_plain and {type(one) for one in blocks} <= {bytes}
            if is_plain and is_owner(texts[1]):
                progress, owner, stream = texts
                writer, checkpoint, previous = numbers
                return cls(progress, owner, writer, stream, checkpoint, previous, blocks)
        except (AttributeError, KeyError, TypeError):
            pass  # of another kind: refused below
        raise foreign_committable(sink, committable)

    def messages(self) -> list[NatsMessage]:
        """Return the messages with their ids. Raises ``RestoreError`` if the checkpoint is damaged."""
        found: list[NatsMessage] = []
        for block in self.blocks:
            try:
                found += _DECODER.decode(block)
            except msgspec.DecodeError as exc:
                raise RestoreError(
                    f"checkpoint {self.checkpoint} has damaged messages of writer {self.owner}-{self.writer}: {exc}"
                ) from exc
        prefix = f"{self.owner}-{self.writer}-{self.checkpoint}-"
        return [
            (subject, data, {**headers, _ID: f"{prefix}{number}", _EXPECTED_STREAM: self.stream})
            for number, (subject, data, headers) in enumerate(found)
        ]


class EpochPublisher:
    """Publishes the epochs of one writer, each once. See the theory at the top of the module."""

    def __init__(
        self, sink: str, link: NatsLink, stream: OutputStream, owner: str, writer: int, run: str
    ) -> None:
        self._sink = sink
        self._link = link
        self.stream = stream
        self.owner = owner
        self.writer = writer
        self._run = run
        self._subject = f"{stream.progress}.{owner}.{writer}"
        #: None until ``open``, and if the server has none.
        self.progress: WriterProgress | None = None

    async def open(self) -> None:
        """Read the progress. Raises ``SinkError``."""
        self.progress = await self._stored()

    async def open_run(self) -> None:
        """Read the progress, and begin it for a new writer. Raises ``SinkError``."""
        await self.open()
        if self.progress is None:
            await self.begin_run()
        elif self.progress.run != self._run:
            raise self._fenced()

    async def begin_run(self) -> None:
        """Write the progress with the run of this publisher, which fences those of earlier runs."""
        old = self.progress or WriterProgress("")
        await self._advance(old._replace(run=self._run))

    async def commit(self, epoch: PreparedPublications) -> None:
        """Publish the messages of ``epoch``, unless that was done before. Raises ``SinkError``."""
        progress = self.progress
        assert progress is not None
        if progress.checkpoint < epoch.previous:
            raise self._lost(epoch, progress)
        if epoch.checkpoint < progress.checkpoint or not epoch.blocks:
            return
        is_begun = epoch.checkpoint == progress.checkpoint
        if is_begun and progress.after is None:
            return
        if not is_begun:
            progress = WriterProgress(self._run, epoch.checkpoint, await self._end_of_stream())
            await self._advance(progress)
        await self._publish(epoch, in_doubt=is_begun)
        await self._advance(WriterProgress(self._run, epoch.checkpoint))

    async def _publish(self, epoch: PreparedPublications, *, in_doubt: bool) -> None:
        left = epoch.messages()
        loop = asyncio.get_running_loop()
        attempts = 0

        async def attempt(session: NatsSession) -> None:
            nonlocal left, attempts
            attempts += 1
            if in_doubt or attempts > 1:
                left = await self._unpublished(session, left, epoch)
            patience = self.stream.window / 2
            while left:
                begun = loop.time()
                acknowledged = await publish(session, left, until=begun + patience)
                left = left[acknowledged:]
                if left:
                    left = await self._unpublished(session, left, epoch)

        await self._run_request(attempt, f"checkpoint {epoch.checkpoint} cannot be published")

    async def _unpublished(
        self, session: NatsSession, messages: Sequence[NatsMessage], epoch: PreparedPublications
    ) -> list[NatsMessage]:
        """Return those of ``messages`` that the stream does not have."""
        assert self.progress is not None
        after = self.progress.after
        assert after is not None
        info = await session.request(f"STREAM.INFO.{self.stream.name}")
        first, last = int(info["state"]["first_seq"]), int(info["state"]["last_seq"])
        if last < after:
            raise self._error(
                f"stream {self.stream.name!r} ends at {last}, and it had {after} messages: the server has lost data. "
                f"Start fresh (restore='fresh')"
            )
        if last == after:
            return list(messages)
        if first > after + 1:
            raise RestoreError(
                f"sink {self._sink!r}: stream {self.stream.name!r} has discarded messages up to {first - 1} since "
                f"checkpoint {epoch.checkpoint} was begun at {after}, so it is not known which of its messages were "
                f"published. Keep messages longer than the job may be down, or start fresh (restore='fresh')"
            )
        found = await ids_after(session, self.stream.name, after, last)
        return [one for one in messages if one[2][_ID] not in found]

    async def _end_of_stream(self) -> int:
        async def look_up(session: NatsSession) -> int:
            info = await session.request(f"STREAM.INFO.{self.stream.name}")
            return int(info["state"]["last_seq"])

        return await self._run_request(look_up, f"stream {self.stream.name!r} cannot be looked up")

    async def _stored(self) -> WriterProgress | None:
        async def look_up(session: NatsSession) -> dict[str, Any] | None:
            try:
                return await session.request(
                    f"STREAM.MSG.GET.{self.stream.progress}", {"last_by_subj": self._subject}
                )
            except JetStreamError as exc:
                if exc.code == NOT_FOUND:
                    return None
                raise

        answer = await self._run_request(
            look_up, f"the progress in {self._subject!r} cannot be read"
        )
        if answer is None:
            return None
        message = answer["message"]
        try:
            fields = orjson.loads(b64decode(message["data"]))
            run, checkpoint, after = fields["run"], fields["checkpoint"], fields["after"]
            return WriterProgress(str(run), int(checkpoint), after, int(message["seq"]))
        except (KeyError, TypeError, ValueError) as exc:
            raise self._error(f"the progress in {self._subject!r} is damaged: {message}") from exc

    async def _advance(self, progress: WriterProgress) -> None:
        """Write ``progress``. Raises ``SinkError`` if another process has written it."""
        expected = 0 if self.progress is None else self.progress.sequence
        data = progress.encoded()
        headers: Mapping[str, str] = {
            _EXPECTED: str(expected),
            _EXPECTED_STREAM: self.stream.progress,
        }

        async def attempt(session: NatsSession) -> int:
            return await session.publish_acknowledged(self._subject, data, headers)

        try:
            sequence = await self._link.run(attempt)
        except JetStreamError as exc:
            found = await self._stored() if exc.number == _WRONG_SEQUENCE else None
            if found is None or found[:3] != progress[:3]:
                if exc.number == _WRONG_SEQUENCE:
                    raise self._fenced() from exc
                raise self._error(
                    f"the progress in {self._subject!r} cannot be written: {exc}"
                ) from exc
            sequence = found.sequence  # the answer to an earlier attempt was lost
        self.progress = progress._replace(sequence=sequence)

    async def _run_request(self, operation: Callable[[NatsSession], Awaitable[T]], what: str) -> T:
        try:
            return await self._link.run(operation)
        except JetStreamError as exc:
            raise self._error(f"{what}: {exc}") from exc

    def _lost(self, epoch: PreparedPublications, found: WriterProgress) -> ConnectorError:
        return self._error(
            f"the progress of writer {self.writer} is lost: it had published checkpoint {epoch.previous} before "
            f"{epoch.checkpoint}, and the server has {found.checkpoint}. It was restarted with older data, or stream "
            f"{self.stream.progress!r} was changed. Resume from checkpoint {found.checkpoint} if it is kept, or start "
            f"fresh (restore='fresh')"
        )

    def _fenced(self) -> ConnectorError:
        return self._error(FENCED)

    def _error(self, reason: str) -> ConnectorError:
        return self._link.error(reason)


async def recover_writers(
    sink: str,
    link: NatsLink,
    stream: OutputStream,
    epochs: Sequence[PreparedPublications],
    run: str,
) -> None:
    """Fence earlier runs, and publish ``epochs``, which are those of a checkpoint.

    Raises ``RestoreError`` if the server does not know the output, and ``SinkError`` if it is newer than the
    checkpoint.
    """
    newest = max(epoch.checkpoint for epoch in epochs)
    owner = epochs[0].owner
    known = sorted({epoch.writer for epoch in epochs})
    publisher = partial(EpochPublisher, sink, link, stream, owner, run=run)
    for writer in known:
        await _recover_writer(
            sink, publisher(writer), [one for one in epochs if one.writer == writer], newest
        )
    # Writers of a later checkpoint, with more subtasks: their output would be published again.
    number = known[-1]
    while True:
        number += 1
        if not await _recover_writer(sink, publisher(number), (), newest):
            return


async def _recover_writer(
    sink: str, publisher: EpochPublisher, epochs: Sequence[PreparedPublications], newest: int
) -> bool:
    """Recover one writer. Return True if the server knows it."""
    await publisher.open()
    progress = publisher.progress
    if progress is None:
        if any(epoch.blocks or epoch.previous for epoch in epochs):
            raise RestoreError(
                f"sink {sink!r}: the server has no progress of writer {publisher.writer} in stream "
                f"{publisher.stream.progress!r}, so it is not known which checkpoints were published. Is it another "
                f"server, or was the stream removed? Start fresh (restore='fresh')"
            )
        if not epochs:
            return False
    elif progress.checkpoint > newest:
        raise SinkError(
            f"sink {sink!r}: the job resumes from checkpoint {newest}, but the messages up to checkpoint "
            f"{progress.checkpoint} are in stream {publisher.stream.name!r} already and would be published again. "
            f"Resume from that checkpoint, or start fresh (restore='fresh')"
        )
    await publisher.begin_run()
    for epoch in sorted(epochs, key=lambda epoch: epoch.checkpoint):
        await publisher.commit(epoch)
    return progress is not None
