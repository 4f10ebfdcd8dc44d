"""A folder with the rows of a DataFrame, written once and then read as files.

::

    snapshot/
      aflow-snapshot.json     written last: the folder with the rows, and its files with their sizes
      aflow-snapshot.lock     locked by the process that writes
      rows-<random>/          output of one attempt by Spark, with Spark's mark of completion

Each attempt writes into a folder of its own. An attempt may continue after its client has crashed (a server of Spark
Connect does not crash with its client), but its rows are never read. The next attempt removes the folders of earlier
ones.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError, shown
from aflow.model.file_locks import lock_exclusively
from aflow_connectors.files.optional import pyarrow_parquet

_MANIFEST: Final = "aflow-snapshot.json"
_LOCK: Final = "aflow-snapshot.lock"
_ROWS: Final = re.compile(r"rows-[0-9a-f]{32}")
_FORMAT: Final = 1
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: Spark's mark of completion.
_SUCCESS: Final = "_SUCCESS"
#: Number of unexpected names that an error shows.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """A complete snapshot."""

    folder: Path
    #: Names in ``folder``, sorted, with their sizes in bytes.
    sizes: Mapping[str, int]
    #: The columns and their types, as Spark writes them.
    columns: str

    def paths(self) -> list[Path]:
        return [self.folder / name for name in self.sizes]


def snapshot_folder(snapshot: object) -> Path:
    """Return the folder of a path or ``file:`` URI. Raises ``FlowDefinitionError`` for other values."""
    if not isinstance(snapshot, (str, Path)) or not str(snapshot):
        raise FlowDefinitionError(
            f"SparkSource: snapshot= must be a folder (str or Path) or None, not {shown(snapshot)}"
        )
    if isinstance(snapshot, Path) or not _URI.match(snapshot):
        return Path(snapshot)
    parts = urlsplit(snapshot)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise FlowDefinitionError(
            f"SparkSource: the snapshot {snapshot!r} is not in a file system that this process can read; give a folder "
            "that it shares with Spark, like 'file:///mnt/shared/payments'"
        )
    return Path(unquote(parts.path))


class Snapshot:
    """The folder of one snapshot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def files(self) -> SnapshotFiles | None:
        """Return the files of a complete snapshot; None if it is incomplete. Raises ``SourceError`` if it is damaged or
        foreign.
        """
        try:
            self._check_owned()
            text = (self.folder / _MANIFEST).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise SourceError(f"cannot read the snapshot {self.folder}: {exc}") from exc
        files = self._parsed(text)
        for path, size in zip(files.paths(), files.sizes.values(), strict=True):
            found = path.stat().st_size if path.is_file() else None
            if found != size:
                state = "is not there" if found is None else f"has {found:,} bytes, not {size:,}"
                raise SourceError(
                    f"the snapshot {self.folder} is damaged: {path.relative_to(self.folder)} {state}; remove the "
                    "folder, and it is written again (a job that has begun to read it must start fresh too)"
                )
        return files

    @contextmanager
    def writing(self) -> Generator[Path]:
        """Yield the folder, which does not exist yet, for an attempt to write the rows; lock out all others meanwhile.

        Removes the rows of earlier attempts, and those of this one if it fails. Raises ``SourceError`` if another
        process writes, or has just written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as exc:
            raise SourceError(f"cannot write the snapshot {self.folder}: {exc}") from exc
        try:
            self._lock(lock)
            self._remove_rows()
            rows = self.folder / f"rows-{uuid4().hex}"
            try:
                yield rows
            except BaseException:
                shutil.rmtree(rows, ignore_errors=True)
                raise
        finally:
            os.close(lock)

    def complete(self, rows: Path, columns: str, written: int) -> SnapshotFiles:
        """Record that Spark has written ``written`` rows into ``rows``. Raises ``SourceError`` if some are missing."""
        if not (rows / _SUCCESS).exists():
            raise SourceError(
                f"Spark has written the snapshot to {rows}, but there is no {_SUCCESS} in it: the folder must be in a "
                "file system that this process shares with Spark, and "
                "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs must not be false"
            )
        sizes = {
            path.name: path.stat().st_size
            for path in sorted(rows.iterdir())
            if path.suffix == ".parquet" and path.name[0] not in "._"
        }
        files = SnapshotFiles(rows, sizes, columns)
        found = sum(_rows_of(path) for path in files.paths())
        if found != written:
            raise SourceError(
                f"Spark has written {written:,} rows to {rows}, but {found:,} are there: the folder must be in a file "
                "system that this process shares with all of Spark's executors"
            )
        self._write_manifest(files)
        return files

    def _check_owned(self) -> None:
        found = sorted(entry.name for entry in os.scandir(self.folder))
        strange = [
            name for name in found if name not in (_MANIFEST, _LOCK) and not _ROWS.fullmatch(name)
        ]
        # Temporary name of the manifest, left by a crash before the rename.
        strange = [name for name in strange if name != f"{_MANIFEST}.new"]
        if strange:
            more = f" and {len(strange) - _NAMED} more" if len(strange) > _NAMED else ""
            raise SourceError(
                f"{self.folder} is no snapshot of SparkSource, but holds {', '.join(strange[:_NAMED])}{more}: give "
                "snapshot= a folder of its own (ParquetSource reads Parquet files that are there already)"
            )

    def _parsed(self, text: str) -> SnapshotFiles:
        try:
            manifest: Any = json.loads(text)
            if manifest["format"] != _FORMAT:
                raise ValueError(f"its format is {manifest['format']!r}, known is {_FORMAT}")
            rows = str(manifest["rows"])
            if not _ROWS.fullmatch(rows):
                raise ValueError(f"{rows!r} is no folder of rows")
            sizes = {str(name): int(size) for name, size in manifest["files"].items()}
            return SnapshotFiles(self.folder / rows, sizes, str(manifest["columns"]))
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise SourceError(
                f"cannot read the snapshot {self.folder}: {_MANIFEST} is damaged ({exc!r}); remove the folder, and it "
                "is written again"
            ) from exc

    def _write_manifest(self, files: SnapshotFiles) -> None:
        manifest = {
            "format": _FORMAT,
            "rows": files.folder.name,
            "columns": files.columns,
            "files": dict(files.sizes),
        }
        new = self.folder / f"{_MANIFEST}.new"
        with new.open("w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / _MANIFEST)

    def _lock(self, lock: int) -> None:
        try:
            lock_exclusively(lock)
        except BlockingIOError as exc:
            raise SourceError(
                f"the snapshot {self.folder} is being written by another job: start this one when it is complete"
            ) from exc
        except OSError as exc:
            raise SourceError(f"cannot lock the snapshot {self.folder}: {exc}") from exc
        if (self.folder / _MANIFEST).exists():
            raise SourceError(
                f"the snapshot {self.folder} has just been written by another job: start this one again"
            )

    def _remove_rows(self) -> None:
        for entry in list(self.folder.iterdir()):
            if _ROWS.fullmatch(entry.name):
                shutil.rmtree(entry, ignore_errors=True)


def _rows_of(path: Path) -> int:
    return int(pyarrow_parquet("SparkSource").read_metadata(path).num_rows)
