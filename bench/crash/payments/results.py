"""The results of the service, as its README describes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """The content of all sinks."""

    decisions: list[Row]
    minutes: list[Row]
    unscored: list[Row]
    late: list[Row]
    leftovers: list[str]
    """Results that were staged for a checkpoint and not committed, of the job that has stopped."""


def read_results(place: Path) -> Results:
    """Read the folder of a service that was stopped."""
    with closing(sqlite3.connect(place / "results.db")) as database:
        database.row_factory = sqlite3.Row
        decisions = [dict(row) for row in database.execute("SELECT * FROM decisions")]
        minutes = [dict(row) for row in database.execute("SELECT * FROM minutes")]
        staged = [
            f"{row['rows']} staged rows of {row['sink']}"
            for row in database.execute(
                "SELECT sink, count(*) AS rows FROM _aflow_staged "
                "WHERE sink IN (SELECT sink FROM _aflow_commits) GROUP BY sink"
            )
        ]
    return Results(
        decisions,
        minutes,
        list(_lines(place / "unscored")),
        list(_lines(place / "late")),
        staged,
    )


def _lines(folder: Path) -> Iterator[Row]:
    for file in sorted(folder.glob("[!.]*")):
        for line in file.read_bytes().splitlines():
            yield json.loads(line)
