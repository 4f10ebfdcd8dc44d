"""The records of the pipeline, and the files and splits that they are in: the same ones each time.

Results must not depend on how splits interleave, so: of the readings, all that is folded is a sum, a count or a set;
exact duplicates have the same timestamp; and all orders of a device are in one split, in the order of their times.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import orjson

#: Devices have the numbers from 0 on.
DEVICES: Final = 21
#: Splits of the generated source; the orders of device d are in split d % ORDER_SPLITS.
ORDER_SPLITS: Final = 3
#: Input files.
FILES: Final = 4
#: Milliseconds of event time from one record of a split to the next.
STEP: Final = 250
#: Milliseconds by which a reading may be behind an earlier one of its file, less than ``MAX_DELAY``.
DISORDER: Final = 2_000
#: How far watermarks trail, in milliseconds: nothing is ever late.
MAX_DELAY: Final = 5_000
#: One in so many readings is there twice.
DUPLICATE: Final = 12


@dataclass(frozen=True, slots=True)
class Reading:
    """A line of an input file."""

    id: str
    device: int
    at: int
    value: int


@dataclass(frozen=True, slots=True)
class Order:
    """A record of the generated source."""

    device: int
    at: int
    price: int


def write_readings(folder: Path, records: int) -> None:
    """The input files, each with ``records`` lines."""
    folder.mkdir(parents=True)
    random = Random(2013)
    for file in range(FILES):
        lines = [orjson.dumps(reading) for reading in _readings(file, records, random)]
        (folder / f"readings-{file}.jsonl").write_bytes(b"\n".join([*lines, b""]))


def _readings(file: int, records: int, random: Random) -> list[Reading]:
    made: list[Reading] = []
    for number in range(records):
        if made and random.randrange(DUPLICATE) == 0:
            made.append(random.choice(made[-3:]))
            continue
        at = DISORDER + number * STEP - random.randrange(DISORDER)
        device = random.randrange(DEVICES)
        made.append(Reading(f"{file}-{number}", device, at, random.randrange(1000)))
    return made


def order(split: int, number: int) -> Order:
    """Record ``number`` of split ``split``; no two of a device have one timestamp."""
    device = split + ORDER_SPLITS * (number * 5 % (DEVICES // ORDER_SPLITS))
    return Order(device, number * STEP + split * 7, (number * 7919 + split * 104729) % 997)
