"""The pipeline of the stream that is killed, and its input: files of readings, in the order of event time.

The results must not depend on the batches in which the files arrive: no record is late, and results and state do not
depend on the order of records. The output of a fragment with calls to a service is read by two keyed fragments, and a
third one reads the results of one of these.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson
import pyarrow

import aflow as af
from bench.crash.pipeline import BUCKET, Buckets
from bench.crash.records import DEVICES, DISORDER, DUPLICATE, MAX_DELAY, STEP, Reading
from bench.crash.service import RETRY, scored

#: Columns of the input.
COLUMNS: Final = "id string, device int, at long, value int"
#: Sinks that are folders, with the columns that are numbers.
FOLDERS: Final = {
    "buckets": ("device", "bucket", "at", "number", "total"),
    "devices": ("key", "start", "count", "total"),
}
#: The sink that is a function, called for each epoch, and its columns.
FUNCTION: Final = "thirds"
SUMS: Final = "key long, start long, count long, total long"

#: Variable with the seconds for which the first attempt at a task is delayed, for speculation. ``…_FOLDER`` is a folder
#: for a file for each attempt.
SLOW: Final = "AFLOW_CRASH_SLOW"
#: Records of an input file.
RECORDS: Final = 60
#: Milliseconds of event time of an input file.
SPAN: Final = RECORDS * STEP


def input_files(files: int) -> list[list[Reading]]:
    """Return the records of the input files, with duplicates and disorder."""
    random, made = Random(2013), list[Reading]()
    for number in range(files * RECORDS):
        if made and random.randrange(DUPLICATE) == 0:
            made.append(random.choice(made[-3:]))
            continue
        at = DISORDER + number * STEP - random.randrange(DISORDER)
        made.append(Reading(f"{number}", random.randrange(DEVICES), at, random.randrange(1000)))
    return [made[first : first + RECORDS] for first in range(0, len(made), RECORDS)]


def put(folder: Path, number: int, records: list[Reading]) -> None:
    """Write input file ``number``; readers see it when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{number}"
    hidden.write_bytes(b"".join(orjson.dumps(asdict(one)) + b"\n" for one in records))
    # Spark reads files in the order of their times.
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(folder / f"{number:05}.json")


def end_of(files: int) -> int:
    """Return the time (epoch ms) at which a stream over so many files ends, and a live job continues."""
    return (files - 2) * SPAN + SPAN // 3


def schema_of(folder: str) -> Any:
    """Return the columns of a sink, without a session of Spark."""
    arrow: Any = pyarrow  # which has no types
    columns = [(name, arrow.int64()) for name in FOLDERS[folder]]
    if folder == "buckets":
        columns += [("numbers", arrow.list_(arrow.int64())), ("tens", arrow.string())]
    return arrow.schema(columns)


def build(readings: Any, buckets: Any, devices: Any, thirds: Any) -> af.Flow:
    """Build the flow, with the ends that a stream or a live job gives it."""
    flow = af.Flow("killed stream")
    asked = (
        flow.source(readings, name="readings")
        .event_time(_at, max_delay=timedelta(milliseconds=MAX_DELAY), name="times")
        .map_async(scored, name="ask", capacity=20, retry=RETRY)
    )
    firings = asked.key_by(_bucket).process(Buckets(), name="timers")
    firings.map(_bucket_row, name="bucket rows").to(buckets, name="buckets")
    by_device = asked.key_by(_device).window(af.Tumbling(timedelta(seconds=10)))
    counted = by_device.fold(_zero, _more, name="by device")
    counted.map(_sum_row, name="device rows").to(devices, name="devices")
    # The records of these windows have the times at which their timers were set to fire.
    by_third = firings.key_by(_third).window(af.Tumbling(timedelta(milliseconds=BUCKET)))
    chained = by_third.fold(_zero, _more_firings, name="by third")
    chained.map(_sum_row, name="third rows").to(thirds, name=FUNCTION)
    return flow


def _at(reading: Reading) -> int:
    return reading.at


def _bucket(reading: Reading) -> tuple[int, int]:
    return reading.device, reading.at // BUCKET


def _device(reading: Reading) -> int:
    return reading.device


def _third(firing: Any) -> int:
    return int(firing[0]) % 3


def _bucket_row(firing: Any) -> dict[str, Any]:
    device, bucket, at, number, total, values, tens = firing
    return {
        "device": device,
        "bucket": bucket,
        "at": at,
        "number": number,
        "total": total,
        "numbers": values,
        "tens": repr(tens),
    }


def _zero() -> tuple[int, int]:
    return 0, 0


def _more(so_far: tuple[int, int], reading: Reading) -> tuple[int, int]:
    if SLOW in os.environ:
        _delay_first_attempt()
    return so_far[0] + 1, so_far[1] + reading.value


#: Number of the last attempt that was delayed in this process.
_delayed: list[int] = []


def _delay_first_attempt() -> None:
    """Wait once in the first attempt at the last partition, if this is one of the tasks of a keyed fragment."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.partitionId() != 1 or _delayed[-1:] == [context.taskAttemptId()]:
        return
    _delayed[:] = [context.taskAttemptId()]
    folder = Path(os.environ[f"{SLOW}_FOLDER"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{context.taskAttemptId()} {context.attemptNumber()}").touch()
    if context.attemptNumber() == 0:
        time.sleep(float(os.environ[SLOW]))


def _more_firings(so_far: tuple[int, int], firing: Any) -> tuple[int, int]:
    return so_far[0] + 1, so_far[1] + int(firing[4])


def _sum_row(result: af.Windowed[int, tuple[int, int]]) -> dict[str, Any]:
    count, total = result.value
    return {"key": result.key, "start": result.window.start, "count": count, "total": total}
