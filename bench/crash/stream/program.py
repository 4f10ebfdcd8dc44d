"""The driver that is killed, which ``preforked`` starts.

The driver writes a ``StreamNote`` for each event, as a line of JSON, to standard output. If a gate is set, the thread
that arrives there waits for ever: the kill comes between exactly these two steps.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from itertools import count
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import msgspec
from anyio import create_task_group, sleep

from aflow.backfill.epoch_state import EpochState
from aflow.backfill.epochs import EpochStore
from aflow.errors import CheckpointError
from aflow_connectors.files.output.pieces import FolderRecovery, Pieces
from aflow_connectors.spark import EachEpoch, SparkSink, SparkStream, StreamQuery, stream
from aflow_connectors.spark.backfill.fragment_runner import FragmentRunner
from aflow_connectors.spark.stream.destinations import EpochCall, EpochFolder
from aflow_connectors.spark.stream.epochs import Epochs
from aflow_connectors.spark.stream.held_rows import HeldRows
from aflow_connectors.spark.stream.supervisor import Supervisor
from bench.crash.records import Reading
from bench.crash.stream.gateway import attached_session
from bench.crash.stream.pipeline import COLUMNS, FOLDERS, FUNCTION, SUMS, build, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Status with which the program ends if the stream fails.
FAILED: Final = 3
#: Message of Spark's status without data, and the number of looks at it after which the stream waits.
_WAITING: Final = "Waiting for data"
_LOOKS: Final = 10
#: Seconds between the answer to a request for a savepoint and the next one.
_BETWEEN: Final = 0.05


class Gate(Enum):
    """A place between two steps: before or after the call of a method."""

    RESTORED = (FolderRecovery, "recover", "after")
    COMPUTED = (FragmentRunner, "counts", "after")
    PIECE = (Pieces, "wait", "after")
    PREPARED = (EpochFolder, "prepare", "after")
    CALLED = (EpochCall, "call", "after")
    BEFORE_COMMIT = (EpochStore, "commit", "before")
    COMMITTED = (EpochStore, "commit", "after")
    SHOWN = (EpochFolder, "publish", "after")
    FINISHED = (EpochState, "finish", "after")
    BEFORE_SPARK = (Epochs, "run_batch", "after")
    TIME = (Epochs, "run_without_rows", "after")
    HELD = (HeldRows, "write", "after")
    ASKED = (EpochState, "write_savepoint", "before")
    ANSWERED = (EpochState, "write_savepoint", "after")


#: Gates that a driver reaches only if it is asked for savepoints.
ASKING: Final = frozenset({Gate.HELD, Gate.ASKED, Gate.ANSWERED})


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one start, passed as JSON."""

    folder: str
    """Folder of the round, with the input, the output and the state."""
    until: int
    parallelism: int = 2
    files: int = 1
    """Most files of a batch."""
    gate: str | None = None
    """Name of the gate at which the program stops."""
    nth: int = 1
    """Number of the call at which it stops."""
    twice: bool = False
    """True if Spark's function is called twice for each batch."""
    asked: bool = False
    """True if the driver is asked for savepoints while it runs, one after the other."""
    spark: dict[str, str] = msgspec.field(default_factory=lambda: {"spark.master": "local[2]"})
    """Settings of the session, of the first program of its JVM."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A start of a driver."""

    settings: StreamSettings
    variables: dict[str, str]
    """Variables of the environment."""
    log: str
    """File for its notes; its errors are in the one that ends with ``.err``."""


class StreamNote(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event: one of the fields is set."""

    running: bool = False
    """The stream has started."""
    stopped: bool = False
    """The gate is reached."""
    waiting: bool = False
    """All files that have arrived are processed."""
    answered: bool = False
    """A savepoint is written."""
    failed: str | None = None
    ended: bool = False


def run_driver(settings: StreamSettings) -> int:
    """Run until the stream ends, and return the status with which the process has to end."""
    _report_waiting()
    if settings.twice:
        _call_twice()
    if settings.gate is not None:
        _set_gate(Gate[settings.gate], settings.nth)
    try:
        asyncio.run(_run(settings))
    except Exception as exc:
        _write(StreamNote(failed=f"{type(exc).__name__}: {exc}"))
        traceback.print_exception(exc)
        return FAILED
    _write(StreamNote(ended=True))
    return 0


async def _run(settings: StreamSettings) -> None:
    query = query_of(settings, attached_session(settings.spark))
    await query.start()
    _write(StreamNote(running=True))
    async with create_task_group() as group:
        if settings.asked:
            group.start_soon(_ask, query, Path(settings.folder))
        await query.wait()
        group.cancel_scope.cancel()


async def _ask(query: StreamQuery, folder: Path) -> None:
    """Ask for savepoints; each needs records that arrive after it was asked for."""
    for number in count():
        with suppress(CheckpointError):  # before the first record, and at the end
            await query.savepoint(folder / f"asked-{os.getpid()}-{number}")
            _write(StreamNote(answered=True))
        await sleep(_BETWEEN)


def query_of(settings: StreamSettings, session: SparkSession) -> StreamQuery:
    """Return the stream over the files that arrive in the folder of a round."""
    folder = Path(settings.folder)
    reader = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", settings.files)
    frame = reader.option("maxFileAge", "100000d").json(str(folder / "input"))
    return stream(
        build,
        session=session,
        sources={"readings": SparkStream(frame, of=Reading)},
        sinks={
            FUNCTION: EachEpoch(_Replaced(folder / "out" / FUNCTION), SUMS),
            **{one: SparkSink[Any](folder / "out" / one, schema=schema_of(one)) for one in FOLDERS},
        },
        state=folder / "state",
        every=timedelta(milliseconds=50),
        until=settings.until,
        savepoint=folder / "savepoint",
        parallelism=settings.parallelism,
    )


class _Replaced:
    """Writes the rows of an epoch into a file with its number, in place of those of an earlier call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, table: DataFrame, epoch: int) -> None:
        rows = [row.asDict() for row in table.collect()]
        self._folder.mkdir(parents=True, exist_ok=True)
        hidden = self._folder / f".{epoch}-{os.getpid()}"
        hidden.write_bytes(msgspec.json.encode(rows))
        hidden.rename(self._folder / f"{epoch}.json")


def _report_waiting() -> None:
    """Write a note when Spark waits for data, and time cannot advance."""
    untyped: Any = Supervisor  # what is replaced is private
    advance, looks = untyped._advance_time, [0]

    def reported(supervisor: Any, query: Any) -> None:
        advance(supervisor, query)
        if not supervisor._epochs.can_advance() and query.status["message"].startswith(_WAITING):
            looks[0] += 1
            if looks[0] == _LOOKS:
                _write(StreamNote(waiting=True))

    setattr(Supervisor, "_advance_time", reported)  # noqa: B010 - a method is no variable for type checkers


def _call_twice() -> None:
    """Call the function that takes the batches of Spark twice for each batch."""
    untyped: Any = Supervisor  # what is replaced is private
    called = untyped._on_batch

    def twice(supervisor: Any, rows: Any, batch: int) -> None:
        called(supervisor, rows, batch)
        if supervisor._may_run():
            called(supervisor, rows, batch)

    setattr(Supervisor, "_on_batch", twice)  # noqa: B010


def _set_gate(gate: Gate, nth: int) -> None:
    owner, name, when = gate.value
    method, left = getattr(owner, name), [nth]

    def gated(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and when == "before":
            _stop()
        result = method(*arguments, **named)
        if left[0] == 0 and when == "after":
            _stop()
        return result

    setattr(owner, name, gated)


def _stop() -> None:
    _write(StreamNote(stopped=True))
    Event().wait()


def _write(note: StreamNote) -> None:
    # One write for each line, so a kill leaves complete lines.
    os.write(1, msgspec.json.encode(note) + b"\n")
