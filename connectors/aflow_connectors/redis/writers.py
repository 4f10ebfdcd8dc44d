"""The writers of the sinks of Redis: with checkpoints exactly once, else at once."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from aflow.connect import Batch, Committable, SinkError, Writer
from aflow_connectors.commit_errors import repeated_checkpoint, uncovered_records
from aflow_connectors.redis.client import RedisLink
from aflow_connectors.redis.epochs import (
    EpochCommands,
    PreparedCommands,
    RedisCommand,
    packed_commands,
    run_commands,
)

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")

#: Maximum number of records, and roughly of bytes, of a block, which the server writes without anything in between.
BLOCK_RECORDS: Final = 1000
BLOCK_BYTES: Final = 1 << 20

_NO_STATE: Final = ("", "", "", "")


class CommandsOf(Protocol[T_contra]):
    """Maps records to commands; those of one record stay together."""

    #: The type of the keys.
    kind: str

    def of(self, values: Sequence[T_contra], /) -> Awaitable[list[list[RedisCommand]]]:
        """Return the commands of each record. Raises ``SinkError`` for a record without."""
        ...


@dataclass
class _Block:
    """Commands that are written together."""

    commands: list[RedisCommand]
    records: int = 0
    bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.records >= BLOCK_RECORDS or self.bytes >= BLOCK_BYTES

    def add(self, commands: Sequence[RedisCommand]) -> None:
        self.commands += commands
        self.records += 1
        for _, parts in commands:
            self.bytes += sum(map(len, parts))


class ImmediateWriter(Writer[T], Generic[T]):
    """Writes each batch at once. ``state`` is the name of a key that no command uses."""

    def __init__(self, link: RedisLink, commands: CommandsOf[T], state: str) -> None:
        self._link = link
        self._commands = commands
        self._state = state

    async def write(self, batch: Batch[T]) -> None:
        # A block whose answer was lost is written again: at least once.
        for block in _blocks(await self._commands.of(batch.values)):
            await run_commands(
                self._link, self._state, _NO_STATE, block.commands, kind=self._commands.kind
            )

    async def close(self) -> None:
        await self._link.close()


class BlockWriter(Writer[T], Generic[T]):
    """Keeps the commands of a checkpoint, which ``commit`` runs."""

    def __init__(
        self, sink: str, link: RedisLink, commands: CommandsOf[T], committer: EpochCommands
    ) -> None:
        self._sink = sink
        self._link = link
        self._commands = commands
        self._committer = committer
        self._open = _Block([])
        self._blocks: list[bytes] = []
        #: The progress once all prepared epochs are written.
        self._after = committer.progress
        #: Prepared checkpoints with output that wait for their commit.
        self._pending: set[int] = set()

    async def write(self, batch: Batch[T]) -> None:
        for commands in await self._commands.of(batch.values):
            self._open.add(commands)
            if self._open.is_full:
                self._seal()

    async def prepare(self, checkpoint: int) -> Committable:
        if self._open.records:
            self._seal()
        blocks, self._blocks = tuple(self._blocks), []
        if checkpoint <= self._after.checkpoint:
            raise repeated_checkpoint(self._sink, self._after.checkpoint, checkpoint)
        committer = self._committer
        output = committer.output
        # Also without output: it tells a resumed job from a fresh one.
        epoch = PreparedCommands(
            output.key,
            output.owner,
            committer.writer,
            committer.kind,
            checkpoint,
            self._after,
            blocks,
        )
        self._after = epoch.progress
        if blocks:
            self._pending.add(checkpoint)
        return epoch.stored()

    async def commit(self, committable: Committable) -> None:
        epoch = PreparedCommands.of(committable, sink=self._sink)
        committer = self._committer
        if (epoch.state, epoch.writer) != (committer.output.key, committer.writer):
            raise SinkError(
                f"sink {self._sink!r}: checkpoint {epoch.checkpoint} has output of writer {epoch.writer} of "
                f"{epoch.state!r}, not of this one ({committer.writer} of {committer.output.key!r})"
            )
        if epoch.blocks:
            await committer.commit(epoch)
        self._pending.discard(epoch.checkpoint)

    async def flush(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._open.records or self._blocks or self._pending:
            raise uncovered_records(self._sink)

    async def close(self) -> None:
        await self._link.close()

    def _seal(self) -> None:
        self._blocks.append(packed_commands(self._open.commands))
        self._open = _Block([])


def _blocks(records: Sequence[Sequence[RedisCommand]]) -> Iterator[_Block]:
    block = _Block([])
    for commands in records:
        block.add(commands)
        if block.is_full:
            yield block
            block = _Block([])
    if block.records:
        yield block
