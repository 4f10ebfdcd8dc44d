"""Databases of backends: an ordered mapping of bytes, with immutable views."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import ref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from hypothesis.strategies import DataObject

from aflow.state.disk.rocksdb import RocksdbStore, rocksdb_installed
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.disk.store import Engine, Store, View
from tests.sorted_store import SortedStore

ENGINES = [
    pytest.param(SqliteStore, id="sqlite"),
    pytest.param(
        RocksdbStore,
        id="rocksdb",
        marks=pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict"),
    ),
    pytest.param(SortedStore, id="sorted"),
]


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    engine: Engine = request.param
    store = engine(tmp_path)
    yield store
    store.close()


def test_entries_are_read_until_they_are_deleted(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b""), (b"", b"3")])
    store.write([(b"a", b"4")], [b"b", b"never there"])

    assert store.get([b"b", b"a", b"", b"x", b"a"]) == [None, b"4", b"3", None, b"4"]
    assert store.get([]) == []


def test_more_keys_than_the_limit_of_a_statement_are_read(store: Store) -> None:
    keys = [b"%06d" % number for number in range(3000)]
    store.write((key, key) for key in keys)

    assert store.get(keys) == keys


@pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict")
def test_databases_of_rocksdb_share_their_cache_until_the_last_one_is_released(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    stores = [RocksdbStore(folder) for folder in folders]
    caches = {id(store.block_cache) for store in stores}
    last = ref(stores[0].block_cache)

    while stores:
        stores.pop().close()

    assert len(caches) == 1
    assert last() is None


def test_a_view_does_not_change(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])

    view = store.view()
    store.write([(b"b", b"9"), (b"d", b"4")], [b"a"])

    assert list(view.items(b"a", b"c")) == [(b"a", b"1"), (b"b", b"2")]
    assert list(view.items(b"a", b"z")) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert view.get([b"d", b"b"]) == [None, b"2"]
    view.close()


def test_a_view_outlives_the_store_and_its_files(store: Store, tmp_path: Path) -> None:
    store.write((b"%05d" % number, b"x" * 100) for number in range(5000))
    view = store.view()

    store.close()
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()

    assert sum(1 for _ in view.items(b"", b"9")) == 5000
    view.close()


def test_the_first_keys_of_a_range_are_found(store: Store) -> None:
    store.write((bytes([letter]), b"") for letter in b"abcdef")

    assert store.first(b"b", b"e", 2) == [b"b", b"c"]
    assert store.first(b"b", b"e", 9) == [b"b", b"c", b"d"]
    assert store.first(b"x", b"z", 9) == []


def test_the_first_entries_of_a_range_are_found(store: Store) -> None:
    store.write((bytes([letter]), bytes([letter])) for letter in b"abcdef")

    assert store.page(b"b", b"e", 2) == [(b"b", b"b"), (b"c", b"c")]
    assert store.page(b"b", b"e", 9) == [(b"b", b"b"), (b"c", b"c"), (b"d", b"d")]
    assert store.page(b"x", b"z", 9) == []


def test_a_deleted_range_is_only_in_older_views(store: Store) -> None:
    store.write((b"%05d" % number, b"x") for number in range(3000))
    view = store.view()

    for _ in store.delete_in_pieces(b"00010", b"02990"):
        pass

    left = [b"%05d" % number for number in (*range(10), *range(2990, 3000))]
    assert store.first(b"", b"9", 9999) == left
    assert store.get([b"00010", b"02989", b"02990"]) == [None, None, b"x"]
    assert sum(1 for _ in view.items(b"", b"9")) == 3000
    store.write([(b"00500", b"y")])
    assert store.page(b"", b"9", 9999)[10] == (b"00500", b"y")
    view.close()


def test_a_range_is_deleted_but_not_from_earlier_views(store: Store) -> None:
    store.write((key, b"") for key in (b"a", b"b", b"c", b"d"))
    view = store.view()

    store.delete_range(b"b", b"d")
    store.write([(b"c", b"again")])

    assert store.page(b"", b"z", 5) == [(b"a", b""), (b"c", b"again"), (b"d", b"")]
    assert [key for key, _ in view.items(b"", b"z")] == [b"a", b"b", b"c", b"d"]
    view.close()


KEYS = st.binary(max_size=2)
PUTS = st.dictionaries(KEYS, st.binary(max_size=3), max_size=6)


class Stores(RuleBasedStateMachine):
    """All databases answer alike, and their views."""

    def __init__(self) -> None:
        super().__init__()
        self._end = ExitStack()
        self.stores: list[Store] = []
        engines: list[Engine] = [SortedStore, SqliteStore, *[RocksdbStore][: rocksdb_installed()]]
        for engine in engines:
            store = engine(Path(self._end.enter_context(TemporaryDirectory())))
            self._end.callback(store.close)
            self.stores.append(store)
        self.views: list[list[View]] = []

    @rule(puts=PUTS, deletes=st.sets(KEYS, max_size=4))
    def write(self, puts: dict[bytes, bytes], deletes: set[bytes]) -> None:
        for store in self.stores:
            store.write(puts.items(), deletes.difference(puts))

    @rule(start=KEYS, stop=KEYS, in_pieces=st.booleans())
    def delete(self, start: bytes, stop: bytes, *, in_pieces: bool) -> None:
        for store in self.stores:
            if in_pieces:
                for _ in store.delete_in_pieces(start, max(start, stop)):
                    pass
            else:
                store.delete_range(start, max(start, stop))

    @rule(keys=st.lists(KEYS, max_size=4), start=KEYS, stop=KEYS, limit=st.integers(0, 5))
    def read(self, keys: list[bytes], start: bytes, stop: bytes, limit: int) -> None:
        first, *others = [
            (store.get(keys), store.first(start, stop, limit), store.page(start, stop, limit))
            for store in self.stores
        ]
        assert others == [first] * len(others)

    @rule()
    def view(self) -> None:
        self.views.append([store.view() for store in self.stores])

    @precondition(lambda self: self.views)
    @rule(data=st.data(), keys=st.lists(KEYS, max_size=4), start=KEYS, stop=KEYS)
    def read_a_view(self, data: DataObject, keys: list[bytes], start: bytes, stop: bytes) -> None:
        views = data.draw(st.sampled_from(self.views))
        first, *others = [(view.get(keys), list(view.items(start, stop))) for view in views]
        assert others == [first] * len(others)

    def teardown(self) -> None:
        for views in self.views:
            for view in views:
                view.close()
        self._end.close()


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=25, stateful_step_count=30)
