"""Rows by number and key, of which some are in memory: the same as a dict of dicts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import OperatorError
from aflow.model.codecs import PLAIN
from aflow.model.key_groups import KeyGroupRange
from aflow.state.disk.ranged_rows import Numbered, RangedRows
from aflow.state.disk.rocksdb import RocksdbStore, rocksdb_installed
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.disk.store import Engine
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec, KeyRow
from aflow.state.readable_state import ABSENT

ENGINES = [
    pytest.param(SqliteStore, id="sqlite"),
    pytest.param(
        RocksdbStore,
        id="rocksdb",
        marks=pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict"),
    ),
]


class Rows:
    """Encodes plain values."""

    encode = staticmethod(PLAIN.encode)

    def encode_all(self, rows: Sequence[object]) -> list[bytes]:
        return list(map(PLAIN.encode, rows))

    def decode_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[object]:
        return list(map(PLAIN.decode, stored))


class Table:
    """Rows on disk, used as an operator uses them."""

    def __init__(self, folder: Path, limit: int, engine: Engine = SqliteStore) -> None:
        self.recent: Numbered = {}
        self.kinds = KeyKinds()
        self.scratch = Scratch(engine, folder, "step")
        groups = KeyGroupRange(0, 8)
        codec = KeyGroupCodec(operator="step", key_groups=groups, key_group_count=8)
        self.rows = RangedRows(self.recent, Rows(), codec, self.scratch, limit, self.kinds)

    def put(self, number: int, values: dict[Hashable, object]) -> None:
        self.rows.load({number: values})
        for key, value in values.items():
            self.recent.setdefault(number, {})[key] = value
        self.rows.evict()

    def remove(self, number: int, key: Hashable) -> None:
        self.rows.load({number: (key,)})
        if self.recent.get(number, {}).pop(key, None) is not None:
            self.rows.remove(number, key)
        self.rows.evict()

    def get(self, number: int, key: Hashable) -> object:
        self.rows.load({number: (key,)})
        return self.recent.get(number, {}).get(key)

    def drop(self, number: int) -> list[Hashable]:
        dropped: list[Hashable] = list(self.recent.pop(number, ()))

        def has_changed(keys: Sequence[Hashable]) -> bool:
            dropped.extend(keys)
            return True

        for _ in self.rows.drop(number, has_changed):
            pass
        return dropped

    def items(self, number: int) -> dict[Hashable, object]:
        found = list(self.rows.items(number))
        assert len(dict(found)) == len(found)
        return dict(found)

    def merged(self) -> dict[Hashable, list[object]]:
        for _ in self.rows.flush():
            pass
        found = list(self.rows.merged(sorted(self.recent)))
        assert len(dict(found)) == len(found)
        return dict(found)

    def sees_mixed(self, keys: set[Hashable]) -> bool:
        """Observe changed keys, as operators do, and return True if they cannot be captured alone."""
        self.kinds.see(keys)
        return self.kinds.mixed

    def captured(self, keys: set[Hashable] | None) -> Callable[[], dict[Any, object]]:
        """Capture rows now, and return the function that reads them."""
        resident = [((number, key), value) for number, key, value in self.rows.resident(keys)]

        def entries(number: int, key: Hashable, data: bytes) -> list[KeyRow]:
            return [((number, key), data)]

        away = self.rows.stored(keys, entries)

        def read() -> dict[Any, object]:
            stored = [(at, PLAIN.decode(data)) for at, data in away or ()]
            assert len(dict(resident) | dict(stored)) == len(resident) + len(stored)
            return dict(resident) | dict(stored)

        return read


@pytest.fixture(params=ENGINES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    made = Table(tmp_path, 2, request.param)
    yield made
    made.rows.close()
    assert list(tmp_path.iterdir()) == []


def test_rows_beyond_the_limit_are_read_again(table: Table) -> None:
    for number in range(5):
        table.put(number, {"a": number, "b": -number})

    assert sum(map(len, table.recent.values())) <= 2
    assert len(table.rows) == 10
    assert [table.get(number, "a") for number in range(5)] == [0, 1, 2, 3, 4]
    assert table.get(3, "c") is None
    assert table.get(7, "a") is None
    assert 7 not in table.recent


def test_without_evictions_there_is_no_database(tmp_path: Path) -> None:
    table = Table(tmp_path, 4)
    table.put(1, {"a": 1, "b": 2})
    table.put(2, {"a": 3})

    assert list(table.rows.items(1)) == [("a", 1), ("b", 2)]
    assert table.captured(None)() == {(1, "a"): 1, (1, "b"): 2, (2, "a"): 3}
    assert table.drop(1) == ["a", "b"]
    assert not table.scratch.exists


def test_a_dropped_number_has_no_rows_and_its_neighbours_keep_theirs(table: Table) -> None:
    for number in (-(2**63) - 7, -1, 0, 2**63 + 7):
        table.put(number, dict.fromkeys("abc", number))

    dropped = table.drop(-1)

    assert sorted(map(str, dropped)) >= ["a", "b", "c"]
    assert table.items(-1) == {}
    assert table.items(-(2**63) - 7) == dict.fromkeys("abc", -(2**63) - 7)
    assert table.items(0) == dict.fromkeys("abc", 0)
    assert table.items(2**63 + 7) == dict.fromkeys("abc", 2**63 + 7)


def test_a_capture_does_not_see_later_changes(table: Table) -> None:
    for key in "abcdef":
        table.put(1, {key: key})
    everything, some = table.captured(None), table.captured({"a", "f", "x"})

    table.put(1, {"a": "new", "g": "g"})
    table.remove(1, "b")
    table.drop(1)

    assert everything() == {(1, key): key for key in "abcdef"}
    assert some() == {(1, "a"): "a", (1, "f"): "f"}


def test_equal_keys_of_different_types_are_one_row(table: Table) -> None:
    table.put(1, {1: "one"})
    table.put(1, {"1": "text", "x": 1, "y": 1})
    table.put(1, {True: "true"})
    table.put(2, {1.0: "float"})
    table.put(3, {"z": 1, "zz": 2, "zzz": 3})

    assert table.get(1, 1.0) == "true"
    assert table.get(1, "1") == "text"
    assert table.items(1) == {1: "true", "1": "text", "x": 1, "y": 1}
    assert [type(key) for key in table.items(1) if key == 1] == [int]
    assert table.merged()[1] == ["true", "float"]
    assert table.merged()["1"] == ["text"]


def test_values_that_are_no_keys_are_left_to_the_owner(table: Table) -> None:
    table.put(1, {"a": 1, "b": 2, "c": 3, "d": 4})

    table.rows.load({1: ["a", float("nan"), frozenset[str]()]})

    assert table.recent[1]["a"] == 1


def test_a_row_that_cannot_be_encoded_names_the_key(table: Table) -> None:
    with pytest.raises(OperatorError, match=r"'step' cannot keep windows on disk for key 'd'"):
        table.put(1, {"a": 1, "b": 1, "c": 1, "d": object()})


KEYS = st.sampled_from([*"abcdefg", 1, 2, True, 1.0, "1", (1, "a")])
NUMBERS = st.integers(-1, 2)
ACTS = st.one_of(
    st.tuples(
        st.just("put"), NUMBERS, st.dictionaries(KEYS, st.integers(), min_size=1, max_size=5)
    ),
    st.tuples(st.just("remove"), NUMBERS, KEYS),
    st.tuples(st.just("drop"), NUMBERS, st.none()),
    st.tuples(st.just("items"), NUMBERS, st.none()),
    st.tuples(st.just("merged"), st.none(), st.none()),
    st.tuples(st.just("capture"), st.none(), st.none() | st.sets(KEYS, max_size=4)),
)


def text_of(act: str, what: Any) -> Any:
    """Return the argument of an act with text as keys."""
    if act == "capture" or what is None:
        return what
    return {str(key): row for key, row in what.items()} if act == "put" else str(what)


@pytest.mark.parametrize("plain", [True, False], ids=["text", "mixed"])
@given(acts=st.lists(ACTS, max_size=25), limit=st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_rows_are_those_of_a_dict_of_dicts(plain: bool, acts: list[Any], limit: int) -> None:
    expected: dict[int, dict[Hashable, object]] = {}
    captures: list[tuple[Any, Callable[[], Any]]] = []
    with TemporaryDirectory() as folder:
        table = Table(Path(folder), limit)
        for act, number, drawn in acts:
            what: Any = text_of(act, drawn) if plain else drawn
            if act == "put":
                table.put(number, what)
                expected.setdefault(number, {}).update(what)
            elif act == "remove":
                table.remove(number, what)
                expected.get(number, {}).pop(what, None)
            elif act == "drop":
                rows = expected.pop(number, {})
                assert set(table.drop(number)) >= set(rows)
            elif act == "items":
                assert table.items(number) == expected.get(number, {})
            elif act == "merged":
                merged: dict[Hashable, list[object]] = {}
                for at in sorted(expected):
                    for key, value in expected[at].items():
                        merged.setdefault(key, []).append(value)
                assert table.merged() == merged
            elif what is None or not table.sees_mixed(what):
                wanted: Any = what and {key for key in what if not plain or type(key) is str}
                rows = {
                    (at, key): value
                    for at, held in expected.items()
                    for key, value in held.items()
                    if what is None or key in wanted
                }
                captures.append((rows, table.captured(wanted if what is not None else None)))
            assert len(table.rows) == sum(map(len, expected.values()))
        for rows, captured in captures:
            assert captured() == rows
        table.rows.close()


CHANGES = st.one_of(
    st.tuples(
        st.just("put"), NUMBERS, st.dictionaries(KEYS, st.integers(), min_size=1, max_size=5)
    ),
    st.tuples(st.just("remove"), NUMBERS, KEYS),
    st.tuples(st.just("drop"), NUMBERS, st.none()),
)


@given(acts=st.lists(CHANGES, max_size=25), limit=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_readers_find_all_rows_wherever_they_are_and_move_none(acts: list[Any], limit: int) -> None:
    expected: dict[Any, object] = {}
    with TemporaryDirectory() as folder:
        table = Table(Path(folder), limit)
        for act, number, drawn in acts:
            what: Any = text_of(act, drawn)
            if act == "put":
                table.put(number, what)
                expected.update({(number, key): value for key, value in what.items()})
            elif act == "remove":
                table.remove(number, what)
                expected.pop((number, what), None)
            else:
                table.drop(number)
                expected = {at: value for at, value in expected.items() if at[0] != number}
            resident = set(table.rows.resident_keys())
            found = {
                (number, key): table.rows.peek(number, key)
                for number in range(-1, 3)
                for key in [*"abcdefg", "1", "2", "True", "1.0", "(1, 'a')"]
            }
            assert {at: row for at, row in found.items() if row is not ABSENT} == expected
            scanned = {key for keys in table.rows.scan() for key in keys}
            assert scanned >= {key for _, key in expected}
            assert set(table.rows.resident_keys()) == resident
        table.rows.close()


def test_a_scan_finds_keys_that_are_loaded_and_evicted_during_it(tmp_path: Path) -> None:
    table = Table(tmp_path, 2)
    keys = [f"{n:04}" for n in range(1000)]
    table.put(0, dict.fromkeys(keys, 1))
    found: set[Hashable] = set()

    for count, some in enumerate(table.rows.scan()):
        found.update(some)
        for key in keys[count * 300 : count * 300 + 200 : 7]:
            table.put(0, {key: 2})  # moves rows between memory and the database
        table.put(0, {f"new {count}": 1})

    assert found >= set(keys)
    table.rows.close()


def test_a_scan_finds_keys_that_are_all_loaded_during_it(tmp_path: Path) -> None:
    table = Table(tmp_path, 2)
    keys = [f"{n:04}" for n in range(1000)]
    table.put(0, dict.fromkeys(keys, 1))
    found: set[Hashable] = set()

    for some in table.rows.scan():
        found.update(some)
        table.rows.load({0: keys})

    assert found == set(keys)
    table.rows.close()


def test_a_scan_goes_on_when_equal_keys_of_two_kinds_move_all_rows(tmp_path: Path) -> None:
    table = Table(tmp_path, 2)
    table.put(0, dict.fromkeys(range(2, 1000), 1))
    found: set[Hashable] = set()

    for count, some in enumerate(table.rows.scan()):
        found.update(some)
        if count == 1:
            for keys in ([1], ["x", "y"], [True], ["z"], [5000, 5001]):
                table.put(0, dict.fromkeys(keys, 1))

    assert table.kinds.mixed
    assert found >= set(range(2, 1000))
    table.rows.close()
