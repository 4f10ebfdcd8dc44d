"""Cells in memory read and write the state of the current key, and cleared state takes no memory."""

from __future__ import annotations

import pytest

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.state.aggregate import Aggregate
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.specs import AggregatingState, ListState, MapState, ReducingState, ValueState


class Mean(Aggregate[float, list[float], float]):
    """An aggregate that changes its accumulator in place."""

    def create(self) -> list[float]:
        return [0.0, 0.0]

    def add(self, acc: list[float], value: float) -> list[float]:
        acc[0] += value
        acc[1] += 1
        return acc

    def merge(self, a: list[float], b: list[float]) -> list[float]:
        return [a[0] + b[0], a[1] + b[1]]

    def result(self, acc: list[float]) -> float:
        return acc[0] / acc[1]


@pytest.fixture
def backend() -> MemoryBackend:
    everything = KeyGroupRange(0, DEFAULT_KEY_GROUPS)
    return MemoryBackend(
        KeyGroupCodec(operator="step", key_groups=everything, key_group_count=DEFAULT_KEY_GROUPS)
    )


def test_a_value_belongs_to_the_current_key(backend: MemoryBackend) -> None:
    cell = backend.cell(ValueState("last", of=int))

    backend.key = "a"
    cell.set(1)
    backend.key = "b"
    cell.set(2)

    assert cell.get() == 2
    backend.key = "a"
    assert cell.get() == 1


def test_a_missing_value_is_none_or_the_default(backend: MemoryBackend) -> None:
    cell = backend.cell(ValueState("last", of=int))
    backend.key = "a"

    assert cell.get() is None
    assert cell.get(5) == 5
    cell.clear()
    assert cell.get() is None


def test_falsy_values_are_values(backend: MemoryBackend) -> None:
    cell = backend.cell(ValueState[int | None]("last"))
    backend.key = "a"

    cell.set(0)
    assert cell.get(5) == 0
    cell.set(None)
    assert cell.get(5) is None


def test_a_list_has_its_values_in_order(backend: MemoryBackend) -> None:
    cell = backend.cell(ListState("recent", of=int))
    backend.key = "a"

    cell.add(1)
    cell.add(2)
    cell.extend(iter([3, 4]))

    assert cell.get() == [1, 2, 3, 4]
    assert list(cell) == [1, 2, 3, 4]
    assert len(cell) == 4
    cell.set([9])
    assert cell.get() == [9]


def test_a_returned_list_is_a_copy(backend: MemoryBackend) -> None:
    cell = backend.cell(ListState("recent", of=int))
    backend.key = "a"
    given = [1]
    cell.set(given)

    cell.get().append(2)
    given.append(3)

    assert cell.get() == [1]


def test_a_list_can_grow_while_it_is_iterated(backend: MemoryBackend) -> None:
    cell = backend.cell(ListState("recent", of=int))
    backend.key = "a"
    cell.extend([1, 2])

    for value in cell:
        cell.add(value * 10)

    assert cell.get() == [1, 2, 10, 20]


def test_a_map_keeps_entries(backend: MemoryBackend) -> None:
    cell = backend.cell(MapState("by shop", key=str, of=int))
    backend.key = "a"

    cell.put("x", 1)
    cell.put("y", 2)
    cell.put("x", 3)

    assert cell.items() == [("x", 3), ("y", 2)]
    assert (cell.keys(), list(cell), cell.values()) == (["x", "y"], ["x", "y"], [3, 2])
    assert ("x" in cell, "z" in cell, len(cell)) == (True, False, 2)
    assert (cell.get("x"), cell.get("z"), cell.get("z", 0)) == (3, None, 0)


def test_an_entry_of_a_map_can_be_removed(backend: MemoryBackend) -> None:
    cell = backend.cell(MapState("by shop", key=str, of=int))
    backend.key = "a"
    cell.put("x", 1)
    cell.put("y", 2)

    assert cell.remove("x") is True
    assert cell.remove("x") is False
    assert cell.items() == [("y", 2)]


def test_a_map_can_change_while_it_is_iterated(backend: MemoryBackend) -> None:
    cell = backend.cell(MapState("by shop", key=str, of=int))
    backend.key = "a"
    cell.put("x", 1)
    cell.put("y", 2)

    for shop in cell:
        cell.remove(shop)

    assert len(cell) == 0


def test_reading_a_list_or_a_map_of_a_new_key_stores_nothing(backend: MemoryBackend) -> None:
    recent = backend.cell(ListState("recent", of=int))
    shops = backend.cell(MapState("by shop", key=str, of=int))
    backend.key = "a"

    assert (recent.get(), shops.items(), "x" in shops, len(recent)) == ([], [], False, 0)
    assert (backend.keys("recent"), backend.keys("by shop")) == ([], [])


def test_reducing_combines_added_values(backend: MemoryBackend) -> None:
    cell = backend.cell(ReducingState[int]("highest", max, of=int))
    backend.key = "a"

    assert cell.get() is None
    cell.add(3)
    cell.add(7)
    cell.add(5)

    assert cell.get() == 7


def test_reducing_to_something_falsy_is_a_value(backend: MemoryBackend) -> None:
    cell = backend.cell(ReducingState[int]("lowest", min, of=int))
    backend.key = "a"

    cell.add(0)
    cell.add(5)

    assert cell.get() == 0


def test_reducing_restarts_after_clear(backend: MemoryBackend) -> None:
    cell = backend.cell(ReducingState[int]("highest", max, of=int))
    backend.key = "a"
    cell.add(7)

    cell.clear()
    cell.add(3)

    assert cell.get() == 3


def test_aggregating_returns_the_result(backend: MemoryBackend) -> None:
    cell = backend.cell(AggregatingState("mean", Mean(), of=list[float]))
    backend.key = "a"

    assert cell.get() is None
    cell.add(1.0)
    cell.add(2.0)

    assert cell.get() == 1.5
    backend.key = "b"
    assert cell.get() is None


def test_cleared_and_emptied_state_has_no_key(backend: MemoryBackend) -> None:
    last = backend.cell(ValueState("last", of=int))
    recent = backend.cell(ListState("recent", of=int))
    shops = backend.cell(MapState("by shop", key=str, of=int))
    highest = backend.cell(ReducingState[int]("highest", max, of=int))
    mean = backend.cell(AggregatingState("mean", Mean(), of=list[float]))
    for backend.key in ("a", "b"):
        last.set(1)
        recent.add(1)
        shops.put("x", 1)
        highest.add(1)
        mean.add(1.0)

    backend.key = "a"
    last.clear()
    recent.set([])
    shops.remove("x")
    highest.clear()
    mean.clear()

    names = ["last", "recent", "by shop", "highest", "mean"]
    assert [backend.keys(name) for name in names] == [["b"]] * 5


def test_a_cell_without_a_current_key_raises(backend: MemoryBackend) -> None:
    cell = backend.cell(ValueState("last", of=int))
    backend.key = "a"
    cell.set(1)
    backend.leave()

    with pytest.raises(OperatorError, match=r"'step' used keyed state, .* outside of its handlers"):
        cell.get()
    with pytest.raises(OperatorError, match="outside of its handlers"):
        cell.set(2)


def test_two_declarations_of_one_name_are_refused(backend: MemoryBackend) -> None:
    backend.cell(ValueState("last", of=int))

    with pytest.raises(FlowDefinitionError, match="'step' declares two states named 'last'"):
        backend.cell(ValueState("last", of=str))


def test_two_cells_of_one_declaration_share_its_state(backend: MemoryBackend) -> None:
    spec = ValueState("last", of=int)
    backend.key = "a"

    backend.cell(spec).set(1)

    assert backend.cell(spec).get() == 1


def test_state_is_read_from_outside_without_a_current_key(backend: MemoryBackend) -> None:
    recent = backend.cell(ListState("recent", of=int))
    mean = backend.cell(AggregatingState("mean", Mean(), of=list[float]))
    backend.key = "a"
    recent.extend([1, 2])
    mean.add(4.0)
    backend.leave()

    seen = backend.get("recent", "a")

    assert seen == [1, 2]
    assert (backend.get("mean", "a"), backend.get("mean", "b")) == (4.0, None)


def test_state_read_from_outside_is_a_copy(backend: MemoryBackend) -> None:
    recent = backend.cell(ListState("recent", of=int))
    shops = backend.cell(MapState("by shop", key=str, of=int))
    backend.key = "a"
    recent.add(1)
    shops.put("x", 1)

    read_before = backend.get("recent", "a"), backend.get("by shop", "a")
    recent.add(2)
    shops.put("y", 2)

    assert read_before == ([1], {"x": 1})


def test_reading_an_unknown_state_names_the_known_ones(backend: MemoryBackend) -> None:
    backend.cell(ValueState("last", of=int))

    with pytest.raises(FlowDefinitionError, match="no state named 'first'; it has: 'last'"):
        backend.get("first", "a")


def test_a_table_holds_the_values_of_all_keys(backend: MemoryBackend) -> None:
    spec = ValueState("last", of=int)
    cell = backend.cell(spec)
    backend.key = "a"
    cell.set(1)

    table = backend.table(spec)
    table["b"] = 2

    assert table == {"a": 1, "b": 2}
    assert backend.get("last", "b") == 2
