"""Run the pipeline once: ``python -m bench.crash.program SETTINGS``, which ``rounds`` starts and kills.

The program writes a ``Note`` for each event, as a line of JSON, to standard output.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Final

import msgspec

import aflow as af
from bench.crash.pipeline import build
from bench.crash.settings import Settings

#: Capacity of channels in records: small, so that aligned barriers do not wait for many.
_CHANNEL: Final = 16


class Note(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event: one of the fields is set."""

    restored: int | None = None
    """Restored checkpoint."""
    running: bool = False
    completed: int | None = None
    """Completed checkpoint."""
    failed: str | None = None
    """Reason of a failed checkpoint."""
    in_flight: int = 0
    """Records in flight in the completed checkpoint."""
    ended: bool = False


def main() -> None:
    """Run until the job ends."""
    asyncio.run(_run(Settings.of_json(sys.argv[1])))
    _write(Note(ended=True))


async def _run(settings: Settings) -> None:
    options = af.Options(channel_records=_CHANNEL, state=settings.state)
    if settings.batch_records is not None:
        options = replace(options, batch_records=settings.batch_records)
    job = build(settings).start(
        parallelism=settings.parallelism,
        options=options,
        checkpointing=_checkpointing(settings),
        on_event=_on_event,
    )
    async with job:
        _write(Note(running=True))
        await job.wait()


def _checkpointing(settings: Settings) -> af.Checkpointing | None:
    if settings.storage is None:
        return None
    return af.Checkpointing(
        every=timedelta(milliseconds=settings.every_ms),
        storage=settings.storage,
        barriers=settings.mode.barriers,
    )


def _on_event(event: af.JobEvent) -> None:
    match event:
        case af.restart.JobRestored(checkpoint=checkpoint):
            _write(Note(restored=checkpoint))
        case af.checkpoints.CheckpointInfo(outcome=af.checkpoints.Outcome.COMPLETED):
            in_flight = sum(one.in_flight_records for one in event.subtasks)
            _write(Note(completed=event.id, in_flight=in_flight))
        case af.checkpoints.CheckpointInfo(outcome=af.checkpoints.Outcome.FAILED):
            _write(Note(failed=event.reason))
        case _:
            pass


def _write(note: Note) -> None:
    # One write for each line, so a kill leaves complete lines.
    sys.stdout.buffer.write(msgspec.json.encode(note) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
