"""Logs for tests, and a list as their model."""

from __future__ import annotations

from pathlib import Path

from aflow.runtime.checkpoints.directory.files import DISK, Files
from aflow.runtime.record_log.log import LogReader, RecordLog
from aflow.runtime.record_log.segments import LogRecord

DESCRIPTION = b"text"
IDENTITY = "0123456789abcdef"


def new_log(
    folder: Path,
    files: Files = DISK,
    *,
    segment_bytes: int = 200,
    description: bytes = DESCRIPTION,
    identity: str = IDENTITY,
) -> RecordLog:
    """Return a log with small segments, which is not open."""
    return RecordLog(
        folder,
        files,
        description=description,
        identity=identity,
        owner=b"process 1",
        segment_bytes=segment_bytes,
    )


def opened(folder: Path, files: Files = DISK, *, segment_bytes: int = 200) -> RecordLog:
    log = new_log(folder, files, segment_bytes=segment_bytes)
    log.open()
    return log


def record(number: int, name: str | None = None) -> LogRecord:
    return f"record {number}".encode(), number, name


def content(log: RecordLog, position: int | None = None) -> list[LogRecord]:
    """Read all records from ``position``, or from the beginning of the log."""
    reader = LogReader(log, log.start if position is None else position)
    found: list[LogRecord] = []
    while reader.position < log.end:
        found += reader.read()
    return found
