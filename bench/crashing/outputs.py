"""What a run has written, in a form in which two runs can be compared."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, TypeAlias

import orjson

DATABASE: Final = "table.db"
TABLE: Final = "kept"

Output: TypeAlias = Mapping[str, list[bytes]]
"""The sorted lines of each sink."""


def prepare(folder: Path) -> None:
    """Make what sinks expect to be there: the folder, and the table, which accepts duplicates."""
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        database.execute(
            f"CREATE TABLE {TABLE} (id TEXT, device INTEGER, at INTEGER, value INTEGER)"
        )
        database.commit()


def written(folder: Path) -> Output:
    """The sorted lines of each sink: of all files that are visible in its folder, and of the table."""
    output = {one.name: sorted(_lines(one)) for one in sorted(folder.iterdir()) if one.is_dir()}
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        rows = database.execute(f"SELECT * FROM {TABLE}").fetchall()
    output[DATABASE] = sorted(orjson.dumps(row) for row in rows)
    return output


def _lines(folder: Path) -> Iterator[bytes]:
    for file in folder.iterdir():
        if not file.name.startswith("."):
            yield from file.read_bytes().splitlines()


def leftovers(folder: Path) -> list[str]:
    """Return what the job has left unfinished: files that have not appeared, rows that wait. Should be none.

    Runs that were killed before their first checkpoint was complete are other jobs, as far as sinks can prove, and what
    they prepared stays.
    """
    told = [f"left behind: {one}" for one in sorted(folder.rglob(".*")) if _is_of_job(one)]
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        (staged,) = database.execute(
            "SELECT count(*) FROM _aflow_staged WHERE sink IN (SELECT sink FROM _aflow_commits)"
        ).fetchone()
    return [*told, f"left behind: {staged} staged rows"] if staged else told


def _is_of_job(hidden: Path) -> bool:
    """Return False for a manifest, and for a pending piece of an owner that has committed nothing."""
    if hidden.suffix != ".pending":
        return hidden.suffix != ".manifest"
    owner = hidden.suffixes[-2]
    manifests = hidden.parent.glob(f".*{owner}.manifest")
    return any(b'"committed"' in one.read_bytes() for one in manifests)


def differences(expected: Output, found: Output, *, shown: int = 5) -> list[str]:
    """For each sink that differs: how many lines are missing and how many too many, and the first of both."""
    told: list[str] = []
    for name in sorted({*expected, *found}):
        wanted, had = Counter(expected.get(name, [])), Counter(found.get(name, []))
        missing, extra = sorted((wanted - had).elements()), sorted((had - wanted).elements())
        if missing or extra:
            told.append(f"{name}: {len(missing):,} lines missing, {len(extra):,} too many")
            told += [f"  - {line.decode()}" for line in missing[:shown]]
            told += [f"  + {line.decode()}" for line in extra[:shown]]
    return told
