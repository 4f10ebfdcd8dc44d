"""Exactly-once output: the commands of a checkpoint, and the state of the output in the server.

**Protocol.** A writer keeps the commands since the last barrier, in blocks. ``prepare`` puts them into the committable,
so they are stored with the checkpoint, and a restored job can run them. ``commit`` runs each block as one script,
which also sets the progress of the writer: the number of the checkpoint, and that of its blocks that are written.
Commands and progress are written together or not at all, so the progress tells which blocks were written.

**State.** One hash for each owner, ``<prefix>{<tag>}:<owner>``, with the field ``run`` and one field for each writer.
The owner is a random id that the checkpoints carry from run to run (``owners.py``).

**Fencing.** Each ``recover`` stores a new ``run``. A script writes nothing for another one, so a process of an earlier
run that still lives cannot write.

**Lost data.** A server that restarts may have lost its last writes (``appendfsync``, failover to a replica). The state
goes back together with the output. A committable has the progress *before* it (``after``), and a script compares that
with the state, so a gap is an error and never silent.

Blocks are small, since the server runs nothing else meanwhile. See docs/decisions/068.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import msgspec

from aflow.connect import Committable, SinkError
from aflow.errors import RestoreError, shown
from aflow_connectors.commit_errors import FENCED, foreign_committable
from aflow_connectors.owners import is_owner, new_owner
from aflow_connectors.redis.client import RedisLink
from aflow_connectors.redis.scripts import BEGIN, WRITE

RedisCommand = tuple[str, list[str | bytes]]
"""The key of a command, and the command without its key: ``("orders", ["XADD", "*", "n", "1"])``."""

_DECODER: Final = msgspec.msgpack.Decoder()
_ENCODER: Final = msgspec.msgpack.Encoder()

_NEWEST: Final = 2**62

KINDS: Final = ("stream", "hash", "string")
"""Types of keys that the sinks write."""


def packed_commands(commands: Sequence[RedisCommand]) -> bytes:
    """Return ``commands`` as they are in a committable."""
    return _ENCODER.encode(commands)


class WrittenBlocks(NamedTuple):
    """The last written checkpoint of a writer, and the number of its written blocks."""

    checkpoint: int = 0
    blocks: int = 0

    def __str__(self) -> str:
        return f"{self.checkpoint} {self.blocks}"

    @classmethod
    def parse(cls, text: str) -> WrittenBlocks:
        """Return the progress in ``text``. Raises ``ValueError``."""
        checkpoint, blocks = text.split(" ")
        return cls(int(checkpoint), int(blocks))


@dataclass(frozen=True, slots=True)
class PreparedCommands:
    """The output of one writer between two checkpoints, as a committable."""

    state: str
    """The key of the hash."""
    owner: str
    writer: int
    kind: str
    """The type of the keys that are written."""
    checkpoint: int
    after: WrittenBlocks
    blocks: tuple[bytes, ...]
    """Packed commands."""

    @property
    def progress(self) -> WrittenBlocks:
        """The progress of the writer once this is written."""
        return WrittenBlocks(self.checkpoint, len(self.blocks)) if self.blocks else self.after

    def stored(self) -> Committable:
        return {
            "state": self.state,
            "owner": self.owner,
            "writer": self.writer,
            "kind": self.kind,
            "checkpoint": self.checkpoint,
            "after": tuple(self.after),
            "blocks": list(self.blocks),
        }

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> PreparedCommands:
        """Return the decoded committable. Raises ``RestoreError`` unless a sink of Redis prepared it."""
        try:
            fields = cast("dict[str, Any]", committable)
            state, owner, kind = (cast(str, fields[name]) for name in ("state", "owner", "kind"))
            writer, checkpoint = (cast(int, fields[name]) for name in ("writer", "checkpoint"))
            written, count = fields["after"]
            after = WrittenBlocks(written, count)
            blocks = tuple(cast("list[bytes]", fields["blocks"]))
            is_plain = {type(one) for one in (state, owner)} == {str} and kind in KINDS
            is_plain = is_plain and {type(one) for one in (writer, checkpoint, *after)} == {int}
            is_plain = is_plain and {type(one) for one in blocks} <= {bytes}
            if is_plain and is_owner(owner) and state.endswith(owner) and writer >= 0:
                return cls(state, owner, writer, kind, checkpoint, after, blocks)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # of another kind: refused below
        raise foreign_committable(sink, committable)


class OutputRun:
    """The output of one owner in one run. ``key`` is that of the hash; ``sink`` names it in messages."""

    def __init__(self, sink: str, link: RedisLink, key: str, owner: str, run: str) -> None:
        self._sink = sink
        self._link = link
        self.key = key
        self.owner = owner
        self.run = run

    async def begin(self) -> None:
        """Begin the run of a new owner. Raises ``SinkError``."""
        await self._link.script(BEGIN, [self.key], [self.run, "new", _NEWEST])

    async def resume(self, epochs: Sequence[PreparedCommands]) -> None:
        """Fence earlier runs, and write ``epochs``, which are those of a checkpoint.

        Raises ``RestoreError`` if the server does not know the output, and ``SinkError`` if the output is newer than
        the checkpoint, or was lost.
        """
        newest = max(epoch.checkpoint for epoch in epochs)
        mode = "continue" if any(epoch.progress != WrittenBlocks() for epoch in epochs) else "new"
        answer: Any = await self._link.script(BEGIN, [self.key], [self.run, mode, newest])
        pairs = iter([one.decode() for one in answer])
        found = dict(zip(pairs, pairs, strict=True))
        if not found and mode == "continue":
            raise RestoreError(
                f"sink {self._sink!r}: Redis at {self._link.server.place} has no key {self.key!r}, so it is not known "
                f"which checkpoints were written. Is it another server, was it flushed, or was the key evicted "
                f"(maxmemory-policy)? Start fresh (restore='fresh')"
            )
        ahead = [WrittenBlocks.parse(text) for name, text in found.items() if name != "run"]
        if ahead and max(ahead).checkpoint > newest:
            raise SinkError(
                f"sink {self._sink!r}: the job resumes from checkpoint {newest}, but the output up to checkpoint "
                f"{max(ahead).checkpoint} is in Redis already and would be written again. Resume from that checkpoint, "
                f"start fresh (restore='fresh'), or accept duplicates: HSET '{self.key}' with the old numbers"
            )
        for writer in sorted({epoch.writer for epoch in epochs}):
            committer = self.committer(writer, epochs[0].kind)
            await committer.open()
            mine = [epoch for epoch in epochs if epoch.writer == writer]
            for epoch in sorted(mine, key=lambda epoch: epoch.checkpoint):
                await committer.commit(epoch)

    def committer(self, writer: int, kind: str) -> EpochCommands:
        """Return the committer of writer ``writer``."""
        return EpochCommands(self._sink, self._link, self, writer, kind)


class EpochCommands:
    """Writes the epochs of one writer, each once. See the theory at the top of the module."""

    def __init__(
        self, sink: str, link: RedisLink, output: OutputRun, writer: int, kind: str
    ) -> None:
        self._sink = sink
        self._link = link
        self.output = output
        self.writer = writer
        self.kind = kind
        #: The progress that the server has, as far as it is known here.
        self.progress = WrittenBlocks()

    async def open(self) -> None:
        """Read the progress. Raises ``SinkError``."""
        field = str(self.writer)
        await self._link.command("HSETNX", self.output.key, field, str(WrittenBlocks()))
        found: Any = await self._link.command("HGET", self.output.key, field)
        try:
            self.progress = WrittenBlocks.parse(found.decode())
        except (AttributeError, ValueError) as exc:
            raise self._link.error(
                f"the hash {self.output.key!r} is damaged: writer {field} has {shown(found)}"
            ) from exc

    async def commit(self, epoch: PreparedCommands) -> None:
        """Write the blocks of ``epoch`` that are not written yet. Raises ``SinkError``."""
        if self.progress < epoch.after:
            raise self._lost(epoch, self.progress)
        expected = epoch.after
        for number, block in enumerate(epoch.blocks, start=1):
            target = WrittenBlocks(epoch.checkpoint, number)
            if self.progress < target:
                await self._write(epoch, block, expected, target)
            expected = target

    async def _write(
        self, epoch: PreparedCommands, block: bytes, expected: WrittenBlocks, target: WrittenBlocks
    ) -> None:
        try:
            commands = [(key, list(parts)) for key, parts in _DECODER.decode(block)]
        except (msgspec.DecodeError, TypeError, ValueError) as exc:
            raise RestoreError(
                f"checkpoint {epoch.checkpoint} has damaged output of sink {self._sink!r}: {exc}"
            ) from exc
        identity = [self.output.run, str(self.writer), str(expected), str(target)]
        answer = await run_commands(
            self._link, self.output.key, identity, commands, kind=epoch.kind
        )
        if answer == "fenced":
            raise self._link.error(FENCED)
        if answer != "done":
            # A script whose answer was lost has written it.
            progress = WrittenBlocks() if answer == "none" else WrittenBlocks.parse(answer)
            if progress < target:
                raise self._lost(epoch, progress)
        self.progress = target

    def _lost(self, epoch: PreparedCommands, found: WrittenBlocks) -> Exception:
        return self._link.error(
            f"the output of completed checkpoints is lost: writer {self.writer} had written checkpoint "
            f"{epoch.after.checkpoint} before {epoch.checkpoint}, and the server has {found.checkpoint}. It was "
            f"restarted with older data (appendfsync), a replica took over, or the key {self.output.key!r} was "
            f"removed. Resume from checkpoint {found.checkpoint} if it is kept, or start fresh (restore='fresh')"
        )


async def run_commands(
    link: RedisLink,
    state: str,
    identity: Sequence[str],
    commands: Sequence[RedisCommand],
    *,
    kind: str,
) -> str:
    """Run ``commands`` in one step. Return "done", or the reason why nothing was written.

    ``identity`` is the run, the writer, its progress and the next one; four empty texts for no state. Raises
    ``SinkError`` if a key is not of type ``kind``.
    """
    keys: dict[str, int] = {}
    arguments: list[str | bytes | int] = []
    for key, (name, *rest) in commands:
        # Lua counts from 1, and the first key is that of the state.
        index = keys.setdefault(key, len(keys) + 2)
        arguments += (len(rest) + 2, name, index, *rest)
    answer: Any = await link.script(
        WRITE, [state, *keys], [*identity, *[kind] * len(keys), *arguments]
    )
    text: str = answer.decode()
    if text.startswith("type "):
        _, found, key = text.split(" ", 2)
        raise link.error(
            f"the key {key!r} is a {found}, not a {kind}: nothing was written. Rename or remove it"
        )
    return text


def new_run() -> str:
    """Return a fencing token."""
    return new_owner()
