"""``Results`` as the driver writes them: by Spark, or of files that executors have written.

Spark can write anything anywhere, but to hand it the results takes a job of its own, with Python workers in it. Where
the columns are known before anything runs, and the folder is one that this machine sees, executors write the files.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from os import fspath
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from aflow.connect import Committable, SinkError
from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.spark.columns import RowsOut
from aflow_connectors.spark.destinations import (
    AnyDestination,
    FilesDestination,
    TableDestination,
)
from aflow_connectors.spark.paths import local_path
from aflow_connectors.spark.result_files import Into
from aflow_connectors.spark.results import Results
from aflow_connectors.spark.schemas import declared, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

#: What is not finished, of Spark's and of ours: readers pass over it.
_UNFINISHED: Final = "_temporary"

#: How Spark calls a codec, and how Arrow does.
_CODECS: Final = {
    "brotli": "brotli",
    "gzip": "gzip",
    "lz4_raw": "lz4",
    "none": "none",
    "snappy": "snappy",
    "uncompressed": "none",
    "zstd": "zstd",
}
#: Set if Parquet is to be encrypted.
_ENCRYPTED: Final = "parquet.crypto.factory.class"
#: Where Spark looks for the columns of a file, before it takes them from the file itself.
_COLUMNS: Final = "org.apache.spark.sql.parquet.row.metadata"

#: Types that Arrow writes into Parquet as Spark does, or such that Spark reads the same from it.
_ALIKE: Final = frozenset(
    {
        "bigint",
        "binary",
        "boolean",
        "date",
        "double",
        "float",
        "int",
        "smallint",
        "string",
        "timestamp",
        "timestamp_ntz",
        "tinyint",
    }
)


def results_of(results: Results, sink: str, session: SparkSession) -> AnyDestination:
    """Where the results of a sink go. Raises ``FlowDefinitionError`` for what is no schema."""
    folder = None if callable(results.to) else local_path(fspath(results.to), session)
    owner = f"sink {sink!r}"
    columns = None if results.schema is None else spark_schema(results.schema, owner=owner)
    if columns is not None:
        rows = RowsOut(declared(columns, owner=owner), owner=owner)
        codec = _codec(session)
        if folder is not None and codec is not None and _is_writable(folder, columns):
            return ResultsFolder(results, sink, folder, rows, codec, columns.json())
    return ResultsTable(results, sink, folder, columns)


class ResultsTable(TableDestination):
    """A folder of Parquet files, or a function."""

    def __init__(
        self, results: Results, sink: str, folder: Path | None, columns: StructType | None
    ) -> None:
        self.sink = sink
        self._results = results
        #: Where it is, if this machine can look at it.
        self._folder = folder
        self._columns = columns

    def check(self) -> None:
        """Raises ``SinkError`` for a folder that is there."""
        if self._folder is not None and not self._results.overwrite:
            _check_free(self._folder, self.sink)

    def columns(self) -> StructType | None:
        return self._columns

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        if table is not None:
            if self._folder is not None and _is_free(self._folder):
                # To Spark a folder is there even if it is empty, or nothing but what a failed write has left.
                rmtree(self._folder, ignore_errors=True)
            self._results.write(table)
        return ()


class ResultsFolder(FilesDestination):
    """A folder of Parquet files that executors write, into a folder inside it that readers pass over."""

    def __init__(
        self, results: Results, sink: str, folder: Path, rows: RowsOut, codec: str, columns: str
    ) -> None:
        self.sink = sink
        self._overwrite = results.overwrite
        self._folder = folder.absolute()
        self._hidden = self._folder / _UNFINISHED / f"aflow-{uuid4().hex}"
        self._made = False
        self.into = Into(
            owner=f"sink {sink!r}",
            folder=str(self._hidden),
            columns=rows,
            compression=codec,
            metadata={_COLUMNS: columns},
        )

    def check(self) -> None:
        """Raises ``SinkError`` for a folder that is there."""
        if not self._overwrite:
            _check_free(self._folder, self.sink)

    def begin(self) -> None:
        with self._errors():
            self._made = not self._folder.exists()
            self._hidden.mkdir(parents=True)

    def take(self, files: Sequence[str]) -> Sequence[Committable]:
        """Raises ``SinkError`` for a folder that came into being meanwhile, and what the file system refuses."""
        self.check()
        with self._errors():
            seen = self.into.seen(files)
            for one in self._folder.iterdir():
                if one.name != _UNFINISHED:
                    _remove(one)
            for file in seen:
                file.rename(self._folder / file.name)
            if not files:
                self._write_columns()
            (self._folder / "_SUCCESS").touch()
        self._made = False
        return ()

    def show(self) -> None:
        self.drop()

    def drop(self) -> None:
        rmtree(self._hidden, ignore_errors=True)
        with suppress(OSError):
            self._hidden.parent.rmdir()
            if self._made:
                self._folder.rmdir()

    def _write_columns(self) -> None:
        """A file without rows, so that readers find the columns."""
        parquet = pyarrow_parquet("a backfill")
        empty = self.into.schema.empty_table()
        name = f"part-{uuid4().hex}.parquet"
        parquet.write_table(empty, str(self._folder / name), compression=self.into.compression)

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except OSError as exc:
            raise SinkError(
                f"sink {self.sink!r}: cannot write {self._folder}: {exc.strerror or exc}"
            ) from exc


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        rmtree(path)
    else:
        path.unlink()


def _check_free(folder: Path, sink: str) -> None:
    if not _is_free(folder):
        raise SinkError(
            f"sink {sink!r}: {folder} is there already: remove it, write elsewhere, or say "
            f"Results({str(folder)!r}, overwrite=True), which replaces it"
        )


def _is_free(folder: Path) -> bool:
    """True if nothing is there that anybody has written."""
    if not folder.is_dir():
        return not folder.exists()
    return all(one.name == _UNFINISHED for one in folder.iterdir())


def _is_writable(folder: Path, columns: StructType) -> bool:
    return (folder.is_dir() or not folder.exists()) and _is_alike(columns)


def _is_alike(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    match kind:
        case StructType():
            return all(_is_alike(field.dataType) for field in kind.fields)
        case ArrayType():
            return _is_alike(kind.elementType)
        case MapType():
            return _is_alike(kind.keyType) and _is_alike(kind.valueType)
        case DecimalType():
            return True
        case _:
            return kind.simpleString() in _ALIKE


def _codec(session: SparkSession) -> str | None:
    """How the session says that Parquet is compressed; None if only Spark itself can write as it says."""
    # The server of Connect may be on another machine, which knows the folder by the same path.
    context: Any = None if _is_remote(session) else session.sparkContext
    if context is None:
        return None
    encrypted = session.conf.get(_ENCRYPTED, None) or context._jsc.hadoopConfiguration().get(
        _ENCRYPTED
    )
    codec = session.conf.get("spark.sql.parquet.compression.codec") or ""
    return None if encrypted else _CODECS.get(codec.lower())


def _is_remote(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")
