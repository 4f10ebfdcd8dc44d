"""A task restores the keys that its epoch concerns, from state that its process keeps, and nothing else is kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

import aflow as af
from aflow.backfill.epochs import EpochStore
from aflow.backfill.state_cache import StateOwner
from aflow.backfill.task_state import CacheUse
from aflow.model.key_groups import KeyGroupRange
from aflow.state.change_plan import ChangePlan
from aflow.state.snapshot import STATES
from tests.backfill.comparison import Case
from tests.backfill.epoch_tasks import MUCH, Processes
from tests.backfill.items import Item, Items, Row, keyed, millis
from tests.backfill.test_epoch_time import Stream
from tests.backfill.test_epochs import GROUPS


@dataclass
class Chosen(Processes):
    """Processes of which the test chooses one."""

    number: int | None = 0
    limit: int = MUCH

    def use(self, owner: StateOwner) -> CacheUse | None:
        return (
            None if self.number is None else CacheUse(self.caches[self.number], owner, self.limit)
        )


class OneTask(Random):
    """One task in each epoch."""

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[0]


class Epochs(Stream):
    """The epochs of a stream with one task."""

    def __init__(self, make: Callable[[Items], Items], folder: Path) -> None:
        def build(streams: Mapping[str, Items]) -> Mapping[str, Items]:
            return {"out": make(streams["items"])}

        super().__init__(Case(build, {"items": []}), folder, OneTask())
        self.chosen = self.processes = Chosen(self.random)

    def run(self, *items: Item, process: int | None = 0) -> list[Row]:
        """Results of an epoch in a process."""
        self.chosen.number = process
        return self.epoch({"items": list(items)})["out"]

    def stored_rows(self) -> int:
        """The number of rows of state that a reader of the files finds."""
        store = EpochStore(self.folder, "compared", GROUPS)
        last = store.open()
        with closing(store):
            assert last is not None
            files = store.files_of(last, last.steps[0].name, ChangePlan())
            assert files is not None
            names = files.read(KeyGroupRange(0, GROUPS)).keyed.values()
            return sum(len(rows) for one in names for name, rows in one.items() if name != STATES)

    def rows_read(self, *items: Item, process: int | None = 0) -> tuple[list[Row], int, int]:
        """Results of an epoch, and the tasks that have read nothing, and that have restored some keys."""
        hits, partial = self.chosen.hits, self.chosen.partial
        rows = self.run(*items, process=process)
        return rows, self.chosen.hits - hits, self.chosen.partial - partial


def sums(items: Items) -> Items:
    return keyed(items).fold(nothing, added, name="sums", of=Item)


def nothing() -> Item:
    return Item(0, 0, 0)


def added(total: Item, item: Item) -> Item:
    return replace(item, n=total.n + item.n)


def some(*numbers: int, at: int) -> list[Item]:
    return [Item(key, 1, at) for key in numbers]


def test_a_process_that_has_run_the_task_reads_nothing(tmp_path: Path) -> None:
    epochs = Epochs(sums, tmp_path)
    epochs.run(*some(*range(10), at=1))

    assert epochs.rows_read(*some(3, at=2)) == ([(2, 3, 2)], 1, 1)
    assert epochs.rows_read(*some(3, 4, at=3)) == ([(3, 3, 3), (3, 4, 2)], 1, 1)
    assert epochs.rows_read() == ([], 1, 1)


def test_a_process_with_older_state_reads_the_changes_since(tmp_path: Path) -> None:
    epochs = Epochs(sums, tmp_path)
    epochs.run(*some(*range(10), at=1), process=0)
    assert epochs.rows_read(*some(3, at=2), process=1) == ([(2, 3, 2)], 0, 1)
    assert epochs.rows_read(*some(3, 4, at=3), process=1) == ([(3, 3, 3), (3, 4, 2)], 1, 1)

    _, *changes = sorted((tmp_path / "parts").iterdir())  # after the complete part
    before = epochs.chosen.bytes_read
    assert epochs.rows_read(*some(3, 4, 5, at=4), process=0) == (
        [(4, 3, 4), (4, 4, 3), (4, 5, 2)],
        0,
        1,
    )
    assert epochs.chosen.bytes_read - before == sum(one.stat().st_size for one in changes)


def test_most_keys_are_restored_all_together(tmp_path: Path) -> None:
    epochs = Epochs(sums, tmp_path)
    epochs.run(*some(*range(10), at=1))

    rows, hits, partial = epochs.rows_read(*some(*range(6), at=2))

    assert rows == [(2, key, 2) for key in range(6)]
    assert (hits, partial) == (1, 0)
    assert epochs.rows_read(*some(3, 9, at=3)) == ([(3, 3, 3), (3, 9, 2)], 1, 1)


def test_a_long_chain_is_written_anew_from_kept_state(tmp_path: Path) -> None:
    epochs = Epochs(sums, tmp_path)
    epochs.run(*some(*range(100), at=1))
    for at in range(2, 30):
        epochs.run(*some(7, at=at))

    assert epochs.chosen.hits == epochs.chosen.partial == 28
    # A process that keeps nothing reads the parts.
    assert epochs.run(*some(7, 8, at=40), process=None) == [(40, 7, 30), (40, 8, 2)]
    complete = max((tmp_path / "parts").iterdir(), key=lambda path: path.stat().st_size)
    assert int(complete.name[:6]) > 20, "the first part is still there"


def test_state_beyond_the_limit_is_not_kept(tmp_path: Path) -> None:
    epochs = Epochs(sums, tmp_path)
    epochs.chosen.limit = 1000
    epochs.run(*some(*range(10), at=1))

    assert epochs.rows_read(*some(3, at=2)) == ([(2, 3, 2)], 0, 0)
    assert not len(epochs.chosen.caches[0])


class Counting(af.KeyedProcess[int, Item, Item]):
    """Numbers the records that the object has seen, in an attribute, and its calls of ``open``."""

    last = af.ValueState[int]("last", of=int)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def open(self) -> None:
        self.seen = []

    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        self.seen.append(value.n)
        cell = ctx.state(self.last)
        before = cell.get(0)
        cell.set(before + 1)
        return [replace(value, n=len(self.seen) * 100 + before)]


def test_a_function_is_new_in_each_epoch(tmp_path: Path) -> None:
    """Its attributes are not kept, and state is: results are those of tasks that keep nothing."""
    numbered = Epochs(
        lambda items: keyed(items).process(Counting(), name="counting"), tmp_path / "kept"
    )
    again = Epochs(
        lambda items: keyed(items).process(Counting(), name="counting"), tmp_path / "read"
    )
    batches = [some(*range(9), at=1), some(1, 2, at=2), some(2, 3, at=3)]

    kept = [numbered.run(*batch) for batch in batches]

    assert kept == [again.run(*batch, process=None) for batch in batches]
    assert kept[2] == [(3, 2, 102), (3, 3, 201)]
    assert numbered.chosen.partial == 2


class Shared(af.KeyedProcess[int, Item, Item]):
    """Sets one object for all keys of an epoch, and changes it in place, which no backend stores."""

    held = af.ValueState[list[int]]("held", of=list[int])

    def open(self) -> None:
        self.one: list[int] = []

    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        before = ctx.state(self.held).get()
        if before is None:
            ctx.state(self.held).set(self.one)
        self.one.append(value.n)
        return [replace(value, n=len(before or ()))]


def test_values_are_those_that_were_stored(tmp_path: Path) -> None:
    """A value that several keys share, or that a function changes in place, is not kept as that object."""
    kept = Epochs(lambda items: keyed(items).process(Shared(), name="shared"), tmp_path / "kept")
    read = Epochs(lambda items: keyed(items).process(Shared(), name="shared"), tmp_path / "read")
    batches = [some(*range(9), at=1), some(1, 2, at=2), some(1, 2, 3, at=3)]

    results = [kept.run(*batch) for batch in batches]

    assert results == [read.run(*batch, process=None) for batch in batches]
    assert kept.chosen.partial == 2


class Waiting(af.KeyedProcess[int, Item, Item]):
    """Emits the number of its records after a while."""

    count = af.ValueState[int]("count", of=int)

    def process(self, value: Item, ctx: af.Context[int]) -> None:
        ctx.state(self.count).set(ctx.state(self.count).get(0) + 1)
        ctx.set_event_timer(value.at + 10)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Item]:
        return [Item(ctx.key, ctx.state(self.count).get(0), at)]


def test_timers_of_keys_without_records_fire(tmp_path: Path) -> None:
    epochs = Epochs(lambda items: keyed(items).process(Waiting(), name="waiting"), tmp_path)
    epochs.run(*some(*range(10), at=1))
    epochs.run(*some(20, at=5))

    assert epochs.rows_read(*some(20, at=14)) == ([], 1, 1)
    assert epochs.rows_read(*some(20, at=30)) == ([(11, key, 1) for key in range(10)], 1, 1)
    assert epochs.rows_read(*some(20, at=31)) == ([(15, 20, 3), (24, 20, 3)], 1, 1)


def windows(items: Items) -> Items:
    counts = keyed(items).window(af.Tumbling(millis(10)), lateness=millis(10))
    return counts.fold(int, lambda total, item: total + 1, name="counts", of=int).map(
        lambda one: Item(one.key, one.value, one.window.max_timestamp)
    )


def test_windows_of_keys_without_records_fire_and_end(tmp_path: Path) -> None:
    epochs = Epochs(windows, tmp_path)
    epochs.run(*some(*range(10), at=5))
    epochs.run(*some(20, at=8))
    epochs.run(*some(20, at=12))

    assert epochs.rows_read(*some(20, at=29)) == (
        [(9, key, 1) for key in [*range(10), 20]],
        1,
        1,
    )
    assert epochs.rows_read(*some(20, at=30)) == ([(19, 20, 1)], 1, 1)
    assert epochs.stored_rows() == 3, "only the windows of key 20 from 10, 20 and 30 remain"


class Forgotten(Counting):
    """As its base, with state that lives for a day of the clock."""

    last = af.ValueState[int]("last", of=int, ttl=timedelta(days=1))


def test_a_step_with_a_time_to_live_restores_all_keys(tmp_path: Path) -> None:
    epochs = Epochs(lambda items: keyed(items).process(Forgotten(), name="forgotten"), tmp_path)
    epochs.run(*some(*range(10), at=1))

    assert epochs.rows_read(*some(3, at=2)) == ([(2, 3, 101)], 0, 0)
    assert not len(epochs.chosen.caches[0])


def number_of(item: Item) -> Hashable:
    """Equal keys with different bytes."""
    return item.key if item.at % 2 else float(item.key)


@pytest.mark.parametrize("first", [1, 2])
def test_equal_keys_of_different_types_are_one_key(tmp_path: Path, first: int) -> None:
    def by_number(items: Items) -> Items:
        return items.key_by(number_of).fold(nothing, added, name="sums", of=Item)

    epochs = Epochs(by_number, tmp_path)
    epochs.run(*some(*range(1, 9), at=first))

    assert epochs.rows_read(*some(3, at=first + 1))[::2] == ([(first + 1, 3, 2)], 0)
    assert epochs.rows_read(*some(3, at=first + 2))[0] == [(first + 2, 3, 3)]
    assert epochs.run(*some(3, at=first + 3), process=None) == [(first + 3, 3, 4)]


class Broken(Exception):
    """A failure of a user's function."""


def test_an_epoch_that_fails_is_repeated_from_the_files(tmp_path: Path) -> None:
    fails = [False]

    def broken(total: Item, item: Item) -> Item:
        if fails[0] and item.key == 4:
            raise Broken
        return added(total, item)

    epochs = Epochs(
        lambda items: keyed(items).fold(nothing, broken, name="sums", of=Item), tmp_path
    )
    epochs.run(*some(*range(10), at=1))
    fails[0] = True
    with pytest.raises(af.OperatorError, match="Broken"):
        epochs.run(*some(3, 4, at=2))
    assert not len(epochs.chosen.caches[0])
    fails[0] = False

    assert epochs.rows_read(*some(3, 4, at=2)) == ([(2, 3, 2), (2, 4, 2)], 0, 1)
    assert epochs.rows_read(*some(3, at=3)) == ([(3, 3, 3)], 1, 1)
