"""Runs the pipeline once: ``python -m bench.crashing.program SETTINGS``, which ``rounds`` starts and kills.

Writes a line of JSON to standard output for what happens: ``Note``.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Final

import msgspec

import aflow as af
from bench.crashing.pipeline import made
from bench.crashing.settings import Settings

#: Records that wait between two subtasks: few, so that aligned barriers do not have to wait for many.
_CHANNEL: Final = 16


class Note(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What has happened: one of the fields is set."""

    restored: int | None = None
    """The job goes on from this checkpoint."""
    running: bool = False
    completed: int | None = None
    """This checkpoint is complete."""
    failed: str | None = None
    """A checkpoint has failed, and why."""
    in_flight: int = 0
    """Records that are part of the completed checkpoint."""
    ended: bool = False


def main() -> None:
    """Run to the end."""
    asyncio.run(_run(Settings.of_json(sys.argv[1])))
    _tell(Note(ended=True))


async def _run(settings: Settings) -> None:
    options = af.Options(channel_records=_CHANNEL)
    if settings.batch_records is not None:
        options = af.Options(channel_records=_CHANNEL, batch_records=settings.batch_records)
    job = made(settings).start(
        parallelism=settings.parallelism,
        options=options,
        checkpointing=_checkpointing(settings),
        on_event=_on_event,
    )
    async with job:
        _tell(Note(running=True))
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
            _tell(Note(restored=checkpoint))
        case af.checkpoints.CheckpointInfo(outcome=af.checkpoints.Outcome.COMPLETED):
            in_flight = sum(one.in_flight_records for one in event.subtasks)
            _tell(Note(completed=event.id, in_flight=in_flight))
        case af.checkpoints.CheckpointInfo(outcome=af.checkpoints.Outcome.FAILED):
            _tell(Note(failed=event.reason))
        case _:
            pass


def _tell(note: Note) -> None:
    # One write for each line, so that a kill leaves whole lines.
    sys.stdout.buffer.write(msgspec.json.encode(note) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
