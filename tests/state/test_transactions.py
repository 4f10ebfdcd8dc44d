"""Updates of a handler that waits take effect together at the commit, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aflow.errors import InternalError, OperatorError
from aflow.model.key_groups import KeyGroupRange
from aflow.state.keyed_entries import CapturedRows, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    TtlOn,
    ValueState,
)
from aflow.state.transactions import Transactions
from tests.state.transaction_states import TTL, Gathered, Watch, joined

VALUE = ValueState("value", of=int)
VALUES = ValueState("values", of=list[int])
LIST = ListState("list", of=int)
LISTS = ListState("lists", of=list[int])
MAP = MapState("map", key=str, of=int)
LISTS_BY_NAME = MapState("lists by name", key=str, of=list[int])
REDUCING = ReducingState("reducing", joined, of=list[int])
AGGREGATING = AggregatingState("aggregating", Gathered(), of=list[int])
TIMED = ValueState("timed", of=int, ttl=TTL)
TIMED_LIST = ListState("timed list", of=int, ttl=TTL)
TIMED_MAP = MapState("timed map", key=str, of=int, ttl=TTL)
READ = ValueState("read", of=int, ttl=TTL, ttl_on=TtlOn.READ)
SPECS = (
    *(VALUE, VALUES, LIST, LISTS, MAP, LISTS_BY_NAME, REDUCING, AGGREGATING),
    *(TIMED, TIMED_LIST, TIMED_MAP, READ),
)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def backend(watch: Watch) -> MemoryBackend:
    key_codec = KeyGroupCodec(operator="score", key_groups=KeyGroupRange(0, 4), key_group_count=4)
    return MemoryBackend(key_codec, watch)


@pytest.fixture
def transactions(backend: MemoryBackend) -> Transactions:
    return Transactions(backend, SPECS)


def test_updates_are_visible_in_their_transaction_only(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    transaction = transactions.open("a")

    transaction.cell(VALUE).set(1)

    assert transaction.cell(VALUE).get() == 1
    assert backend.get("value", "a") is None


def test_a_commit_stores_all_that_was_written(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    transaction = transactions.open("a")
    transaction.cell(VALUE).set(1)
    transaction.cell(LIST).add(2)
    transaction.cell(MAP).put("x", 3)
    transaction.cell(REDUCING).add([4])
    transaction.cell(AGGREGATING).add(5)

    transaction.commit()

    names = ("value", "list", "map", "reducing", "aggregating")
    assert [backend.get(name, "a") for name in names] == [1, [2], {"x": 3}, [4], [5]]


def test_transactions_of_several_keys_are_open_at_once(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    one, other = transactions.open("a"), transactions.open("b")
    cell = one.cell(VALUE)
    cell.set(1)
    other.cell(VALUE).set(2)
    other.commit()

    assert cell.get() == 1
    one.commit()

    assert (backend.get("value", "a"), backend.get("value", "b")) == (1, 2)


def test_there_is_no_current_key_after_a_read_or_a_commit(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    transaction = transactions.open("a")

    transaction.cell(VALUE).get()
    transaction.cell(VALUE).set(1)
    transaction.commit()

    with pytest.raises(OperatorError, match="outside of its handlers"):
        backend.cell(VALUE).get()


def test_a_cell_that_was_kept_raises_after_the_commit(transactions: Transactions) -> None:
    transaction = transactions.open("a")
    cell = transaction.cell(VALUE)
    cell.set(1)

    transaction.commit()

    with pytest.raises(OperatorError, match="'score' used state of key 'a' after the end") as error:
        cell.get()
    assert (error.value.operator, error.value.key) == ("score", "a")


def test_all_methods_of_a_cell_raise_after_a_drop(transactions: Transactions) -> None:
    transaction = transactions.open("a")
    value, many = transaction.cell(VALUE), transaction.cell(LIST)
    entries, reducing = transaction.cell(MAP), transaction.cell(REDUCING)
    aggregating = transaction.cell(AGGREGATING)
    aggregating.add(1)
    calls: list[Callable[[], object]] = [
        *(value.get, lambda: value.set(1), value.clear),
        *(many.get, lambda: many.add(1), lambda: many.extend([1]), lambda: many.set([1])),
        *(many.clear, lambda: list(many), lambda: len(many)),
        *(lambda: entries.get("x"), lambda: entries.put("x", 1), lambda: entries.remove("x")),
        *(entries.items, entries.keys, entries.values, entries.clear),
        *(lambda: list(entries), lambda: "x" in entries, lambda: len(entries)),
        *(lambda: reducing.add([1]), reducing.get, reducing.clear),
        *(lambda: aggregating.add(1), aggregating.get, aggregating.clear),
        lambda: transaction.cell(TIMED),
    ]

    transaction.drop()

    for call in calls:
        with pytest.raises(OperatorError, match="after the end of the handler"):
            call()


def test_updates_before_the_end_can_be_committed_after_it(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    transaction = transactions.open("a")
    cell = transaction.cell(VALUE)
    cell.set(1)

    transaction.end()
    with pytest.raises(OperatorError, match="after the end of the handler"):
        cell.set(2)
    transaction.commit()

    assert backend.get("value", "a") == 1


def test_a_dropped_transaction_cannot_be_committed(transactions: Transactions) -> None:
    transaction = transactions.open("a")
    transaction.drop()

    with pytest.raises(InternalError, match="was committed or dropped before"):
        transaction.commit()


def test_a_returned_value_is_a_copy_that_takes_effect_when_it_is_written_back(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    first = transactions.open("a")
    first.cell(VALUES).set([1])
    first.cell(LISTS).add([1])
    first.cell(LISTS_BY_NAME).put("x", [1])
    first.cell(REDUCING).add([1])
    first.cell(AGGREGATING).add(1)
    first.commit()

    dropped = transactions.open("a")
    (dropped.cell(VALUES).get() or []).append(2)
    dropped.cell(LISTS).get()[0].append(2)
    (dropped.cell(LISTS_BY_NAME).get("x") or []).append(2)
    dropped.cell(LISTS_BY_NAME).values()[0].append(2)
    dropped.cell(REDUCING).add([2])
    (dropped.cell(AGGREGATING).get() or []).append(2)
    dropped.cell(AGGREGATING).add(2)
    dropped.drop()

    names = ("values", "lists", "lists by name", "reducing", "aggregating")
    assert [backend.get(name, "a") for name in names] == [[1], [[1]], {"x": [1]}, [1], [1]]
    again = transactions.open("a")
    values = again.cell(VALUES).get() or []
    values.append(2)
    again.cell(VALUES).set(values)
    again.commit()
    assert backend.get("values", "a") == [1, 2]


def test_results_include_what_the_transaction_has_added(transactions: Transactions) -> None:
    first = transactions.open("a")
    first.cell(REDUCING).add([1])
    first.cell(AGGREGATING).add(1)
    first.commit()
    second = transactions.open("a")

    second.cell(REDUCING).add([2])
    second.cell(AGGREGATING).add(2)

    assert second.cell(REDUCING).get() == [1, 2]
    assert second.cell(AGGREGATING).get() == [1, 2]


def test_a_removed_entry_that_is_put_again_is_the_last_one(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    first = transactions.open("a")
    for number, name in enumerate("xyz"):
        first.cell(MAP).put(name, number)
    first.commit()
    second = transactions.open("a")
    entries = second.cell(MAP)

    entries.put("y", 7)
    entries.remove("x")
    entries.put("w", 8)
    entries.put("x", 9)

    assert entries.items() == [("y", 7), ("z", 2), ("w", 8), ("x", 9)]
    assert len(entries) == 4
    second.commit()
    assert list(dict(backend.get("map", "a") or {})) == ["y", "z", "w", "x"]  # type: ignore[call-overload]


def test_an_emptied_state_takes_no_memory(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    first = transactions.open("a")
    first.cell(LIST).add(1)
    first.cell(MAP).put("x", 1)
    first.commit()
    second = transactions.open("a")

    second.cell(LIST).set([])
    second.cell(MAP).remove("x")
    second.commit()

    assert list(backend.keys("list")) == list(backend.keys("map")) == []


def test_a_committed_key_is_among_the_changes(
    backend: MemoryBackend, transactions: Transactions
) -> None:
    transaction = transactions.open("a")
    transaction.cell(VALUE).get()
    transaction.cell(VALUE).set(1)
    CapturedRows(backend.key_codec, backend.capture(changes=False)).encoded()

    transaction.commit()

    assert backend.capture(changes=True).keys == {"a"}


def test_an_expired_row_is_not_read_although_it_was_read_before(
    transactions: Transactions, watch: Watch
) -> None:
    first = transactions.open("a")
    first.cell(TIMED).set(1)
    first.commit()
    second = transactions.open("a")
    before = second.cell(TIMED).get()

    watch.time += 1000

    assert (before, second.cell(TIMED).get()) == (1, None)


def test_the_time_to_live_of_an_update_starts_at_the_commit(
    backend: MemoryBackend, transactions: Transactions, watch: Watch
) -> None:
    transaction = transactions.open("a")
    transaction.cell(TIMED).set(1)
    watch.time += 2000
    in_between = transaction.cell(TIMED).get()
    transaction.commit()

    watch.time += 999

    assert (in_between, backend.get("timed", "a")) == (1, 1)
    watch.time += 1
    assert backend.get("timed", "a") is None


def test_an_updated_row_does_not_expire_before_the_commit(
    backend: MemoryBackend, transactions: Transactions, watch: Watch
) -> None:
    first = transactions.open("a")
    first.cell(TIMED_LIST).add(1)
    first.cell(TIMED_MAP).put("x", 1)
    first.commit()
    second = transactions.open("a")
    second.cell(TIMED_LIST).add(2)
    second.cell(TIMED_MAP).put("y", 2)

    watch.time += 1000
    backend.touch(["b"])  # sweeps
    seen = (second.cell(TIMED_LIST).get(), second.cell(TIMED_MAP).items())
    second.commit()

    assert seen == ([1, 2], [("x", 1), ("y", 2)])
    assert backend.get("timed list", "a") == [1, 2]
    assert backend.get("timed map", "a") == {"x": 1, "y": 2}


def test_a_read_counts_for_a_time_to_live_although_its_transaction_is_dropped(
    backend: MemoryBackend, transactions: Transactions, watch: Watch
) -> None:
    first = transactions.open("a")
    first.cell(READ).set(1)
    first.commit()
    watch.time += 600
    second = transactions.open("a")
    second.cell(READ).get()
    second.drop()

    watch.time += 600

    assert backend.get("read", "a") == 1


def test_an_error_of_a_reducing_function_does_not_undo_earlier_updates(
    backend: MemoryBackend,
) -> None:
    ratio = ReducingState[float]("ratio", lambda a, b: a / b, of=float)
    transaction = Transactions(backend, [ratio]).open("a")
    cell = transaction.cell(ratio)
    cell.add(6.0)
    cell.add(2.0)

    with pytest.raises(ZeroDivisionError):
        cell.add(0.0)
    transaction.commit()

    assert backend.get("ratio", "a") == 3.0
