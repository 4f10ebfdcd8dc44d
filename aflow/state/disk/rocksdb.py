"""RocksDB as the database of a backend, through the package rocksdict (``pip install "aflow-streams[rocksdb]"``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, cast
from weakref import WeakValueDictionary

from aflow.errors import FlowDefinitionError
from aflow.model.distribution import install_command

#: Bytes written before RocksDB flushes them into a file, in the background.
_WRITE_BUFFER: Final = 64 << 20

#: Bytes of files that all databases of the process cache in memory. Ten million rows of windows fit, which saves a
#: fifth of the CPU time (benchmark `state`); less if each database had a part of its own.
_CACHE: Final = 256 << 20


def rocksdb_installed() -> bool:
    """Return True if the package is installed, without importing it."""
    return find_spec("rocksdict") is not None


def rocksdict() -> Any:
    """Return the package. Raises ``FlowDefinitionError`` with the command that installs it."""
    try:
        import rocksdict as module
    except ImportError as exc:
        raise FlowDefinitionError(
            f"state in RocksDB needs the package rocksdict, which cannot be imported ({exc}): "
            f"{install_command('rocksdb')}, or use DiskEngine.SQLITE"
        ) from exc
    return cast(
        "Any", module
    )  # its types allow for keys that are text and numbers, which raw mode does not


class BlockCache:
    """The cache of all databases that are open. Its memory is freed with the last one of them."""

    def __init__(self, module: Any) -> None:
        self.blocks: Final[Any] = module.Cache(_CACHE)


#: The cache by the name of the package, while a database is open.
_open_caches: Final = WeakValueDictionary[str, BlockCache]()


def _options(module: Any, block_cache: BlockCache) -> Any:
    options = module.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    # Most keys that are read are new or in a file: the filter saves a search in the memory table.
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_allow_concurrent_memtable_write(False)  # there is one writer
    tables = module.BlockBasedOptions()
    tables.set_block_cache(block_cache.blocks)
    tables.set_bloom_filter(10, False)
    options.set_block_based_table_factory(tables)
    return options


class _Iterator(Protocol):
    """The methods used of an ``RdictIter``."""

    def seek(self, key: bytes, /) -> None: ...
    def valid(self) -> bool: ...
    def key(self) -> bytes: ...
    def value(self) -> bytes: ...
    def next(self) -> None: ...
    def status(self) -> None: ...


class RocksdbStore:
    """See ``Store``."""

    def __init__(self, folder: Path) -> None:
        module = rocksdict()
        self._batch: Final = module.WriteBatch
        self._unlogged: Final = module.WriteOptions()
        self._unlogged.disable_wal = True
        self.block_cache: Final = _open_caches.setdefault(module.__name__, BlockCache(module))
        options = _options(module, self.block_cache)
        self._db: Final = module.Rdict(str(folder / "rocksdb"), options)
        self._open = True

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = self._db.get(list(keys))
        return found

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        batch = self._batch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, data in puts:
            put(key, data)
        for key in deletes:
            delete(key)
        self._db.write(batch, self._unlogged)

    def first(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        # Keys after `stop` may be among them: cheaper than a comparison for each key.
        found: list[bytes] = list(islice(self._db.keys(from_key=start), limit))
        if found and found[-1] >= stop:
            del found[bisect_left(found, stop) :]
        return found

    def page(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = list(islice(self._db.items(from_key=start), limit))
        if found and found[-1][0] >= stop:
            del found[bisect_left(found, (stop, b"")) :]
        return found

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self._db.delete_range(start, stop, self._unlogged)

    def delete_in_pieces(self, start: bytes, stop: bytes) -> Iterator[None]:
        self.delete_range(start, stop)
        yield

    def view(self) -> RocksdbView:
        return RocksdbView(self._db.iter())

    def close(self) -> None:
        if self._open:
            self._open = False
            self._db.close()


class RocksdbView:
    """An iterator, which sees the database at the time of its creation.

    (A ``Snapshot`` of rocksdict 0.3 iterates over the *current* entries.)
    """

    def __init__(self, iterator: _Iterator) -> None:
        self._iterator: _Iterator | None = iterator

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        at = self._open()
        found: list[bytes | None] = []
        for key in keys:
            at.seek(key)
            found.append(at.value() if at.valid() and at.key() == key else None)
        at.status()
        return found

    def items(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        at = self._open()
        at.seek(start)
        while at.valid():
            key = at.key()
            if key >= stop:
                return
            yield key, at.value()
            at.next()
        at.status()  # raises if a damaged file has ended the iteration

    def close(self) -> None:
        self._iterator = None

    def _open(self) -> _Iterator:
        if self._iterator is None:
            raise ValueError("this view of the database is closed")
        return self._iterator
