"""A sink whose process is killed repeatedly, at any time, has each record exactly once in the end."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.crashing import COUNT
from tests.connectors.sqlite.database import made, rows

PROJECT = Path(__file__).parents[2]


def json_lines(folder: Path) -> list[int]:
    files = sorted((folder / "out").glob("part-*"))
    return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]


def packed_tables(folder: Path) -> list[int]:
    found: list[int] = []
    for file in sorted((folder / "out").glob("numbers-*")):
        with gzip.open(file, "rt", newline="") as text:
            found += [int(row["n"]) for row in csv.DictReader(text)]
    return found


def table(folder: Path) -> list[int]:
    return [n for (n,) in rows(folder / "out.db")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "read", "kills", "seed"),
    [
        ("jsonl", json_lines, 8, 1),
        ("csv.gz", packed_tables, 5, 2),
        ("sqlite", table, 8, 3),
        ("upsert", table, 4, 4),
    ],
    ids=["jsonl", "csv.gz", "sqlite", "upsert"],
)
def test_each_record_is_written_once_after_many_kills(
    tmp_path: Path, kind: str, read: Callable[[Path], list[int]], kills: int, seed: int
) -> None:
    unique = "PRIMARY KEY" if kind == "upsert" else ""
    made(tmp_path / "out.db", f"CREATE TABLE t (n INTEGER {unique})")

    done = subprocess.run(
        [sys.executable, "-m", "tests.connectors.crashing", kind, tmp_path, str(kills), str(seed)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(read(tmp_path)) == list(range(COUNT))
    assert int(done.stdout) == kills
