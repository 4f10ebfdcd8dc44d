"""Output of a run, in a form that can be compared."""

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
"""Sorted lines of each sink."""


def prepare(folder: Path) -> None:
    """Create the folder, and the table, which accepts duplicates."""
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        database.execute(
            f"CREATE TABLE {TABLE} (id TEXT, device INTEGER, at INTEGER, value INTEGER)"
        )
        database.commit()


def written(folder: Path) -> Output:
    """Return the sorted lines of each sink: of the visible files in its folder, and of the table."""
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
    """Return the uncommitted files and rows of the job. There should be none.

    Runs that were killed before their first completed checkpoint are other jobs, as far as sinks can prove, so their
    files and rows are not removed.
    """
    found = [f"uncommitted: {one}" for one in sorted(folder.rglob(".*")) if _is_of_job(one)]
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        (staged,) = database.execute(
            "SELECT count(*) FROM _aflow_staged WHERE sink IN (SELECT sink FROM _aflow_commits)"
        ).fetchone()
    return [*found, f"uncommitted: {staged} staged rows"] if staged else found


def _is_of_job(hidden: Path) -> bool:
    """Return False for a manifest, and for a pending piece of an owner that has committed nothing."""
    if hidden.suffix != ".pending":
        return hidden.suffix != ".manifest"
    owner = hidden.suffixes[-2]
    manifests = hidden.parent.glob(f".*{owner}.manifest")
    return any(b'"committed"' in one.read_bytes() for one in manifests)


def differences(expected: Output, found: Output, *, shown: int = 5) -> list[str]:
    """Return, for each sink that differs, the numbers of missing and of extra lines, and the first of both."""
    report: list[str] = []
    for name in sorted({*expected, *found}):
        wanted, had = Counter(expected.get(name, [])), Counter(found.get(name, []))
        missing, extra = sorted((wanted - had).elements()), sorted((had - wanted).elements())
        if missing or extra:
            report.append(f"{name}: {len(missing):,} lines missing, {len(extra):,} extra")
            report += [f"  - {line.decode()}" for line in missing[:shown]]
            report += [f"  + {line.decode()}" for line in extra[:shown]]
    return report
