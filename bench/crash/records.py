"""Records of the pipeline, in files and splits, equal in each run.

The results must not depend on the interleaving of splits. Readings are therefore folded into sums, counts and sets
only; exact duplicates have the same timestamp; and all orders of a device are in one split, in the order of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import orjson

#: Number of devices.
DEVICES: Final = 21
#: Splits of the generated source; the orders of device d are in split d % ORDER_SPLITS.
ORDER_SPLITS: Final = 3
#: Number of input files.
FILES: Final = 4
#: Milliseconds of event time between two records of a split.
STEP: Final = 250
#: Maximum disorder of the readings of a file in milliseconds, less than ``MAX_DELAY``.
DISORDER: Final = 2_000
#: Delay of watermarks in milliseconds: no record is late.
MAX_DELAY: Final = 5_000
#: One reading in this number is a duplicate.
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
    """Write the input files, each with ``records`` lines."""
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
    """Return record ``number`` of split ``split``; no two records of a device have the same timestamp."""
    device = split + ORDER_SPLITS * (number * 5 % (DEVICES // ORDER_SPLITS))
    return Order(device, number * STEP + split * 7, (number * 7919 + split * 104729) % 997)
