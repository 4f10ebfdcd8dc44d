"""Snapshots are bytes by key group, from which any parallelism can restore; incompatible state is refused."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import CheckpointError, FlowDefinitionError, RestoreError
from aflow.model.codecs import PLAIN, Pickled
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange, key_group, ranges
from aflow.state.aggregate import Aggregate
from aflow.state.keyed_entries import Keyed, KeyGroupCodec
from aflow.state.memory import MemoryBackend
from aflow.state.snapshot import STATES, OperatorSnapshot, merge
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateSpec,
    ValueState,
)


@dataclass
class Payment:
    amount: float
    note: str = ""


@dataclass(frozen=True)
class Card:
    number: str


class Total(Aggregate[int, int, int]):
    def create(self) -> int:
        return 0

    def add(self, acc: int, value: int) -> int:
        return acc + value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


def backend_of(
    *specs: StateSpec[Any],
    groups: KeyGroupRange = KeyGroupRange(0, DEFAULT_KEY_GROUPS),  # noqa: B008 - a value
    key_type: type[Hashable] | None = None,
) -> MemoryBackend:
    key_codec = KeyGroupCodec(
        operator="step",
        key_type=key_type,
        key_groups=groups,
        key_group_count=DEFAULT_KEY_GROUPS,
    )
    backend = MemoryBackend(key_codec)
    for spec in specs:
        backend.cell(spec)
    return backend


def holding(spec: ValueState[Any], **values: object) -> MemoryBackend:
    backend = backend_of(spec)
    backend.table(spec).update(values)
    return backend


def test_all_kinds_of_state_are_restored() -> None:
    last = ValueState("last", of=Payment)
    recent = ListState("recent", of=Payment)
    shops = MapState("by shop", key=str, of=Payment)
    highest = ReducingState[int]("highest", max, of=int)
    total = AggregatingState("total", Total(), of=int)
    specs = (last, recent, shops, highest, total)
    before = backend_of(*specs)
    before.key = "a"
    before.cell(last).set(Payment(1.5, "x"))
    before.cell(recent).extend([Payment(1), Payment(2)])
    before.cell(shops).put("x", Payment(3))
    before.cell(highest).add(7)
    before.cell(total).add(8)

    after = backend_of(*specs)
    after.restore(before.snapshot())

    after.key = "a"
    assert after.cell(last).get() == Payment(1.5, "x")
    assert after.cell(recent).get() == [Payment(1), Payment(2)]
    assert after.cell(shops).items() == [("x", Payment(3))]
    assert (after.cell(highest).get(), after.cell(total).get()) == (7, 8)


def test_without_a_type_plain_values_are_restored() -> None:
    shops = MapState[tuple[str, int], datetime]("by shop")
    before = backend_of(shops)
    before.key = ("a", 1)
    before.cell(shops).put(("x", 2), datetime(2024, 1, 1, tzinfo=UTC))

    after = backend_of(shops)
    after.restore(before.snapshot())

    after.key = ("a", 1)
    assert after.cell(shops).items() == [(("x", 2), datetime(2024, 1, 1, tzinfo=UTC))]


def test_entries_are_stored_by_the_key_group_of_their_key() -> None:
    before = holding(ValueState("last", of=int), a=1, b=2)

    snapshot = before.snapshot()

    assert {group: names["last"] for group, names in snapshot.items()} == {
        key_group("a"): ((PLAIN.encode("a"), PLAIN.encode(1)),),
        key_group("b"): ((PLAIN.encode("b"), PLAIN.encode(2)),),
    }


def test_nothing_is_stored_for_cleared_state() -> None:
    last = ValueState("last", of=int)
    backend = holding(last, a=1)

    backend.key = "a"
    backend.cell(last).clear()

    assert backend.snapshot() == {}


def test_later_changes_are_not_visible_in_a_snapshot_nor_in_restored_state() -> None:
    last = ValueState("last", of=Payment)
    payment = Payment(1)
    before = holding(last, a=payment)

    snapshot = before.snapshot()
    payment.amount = 2
    after = backend_of(last)
    after.restore(snapshot)
    payment.amount = 3

    assert after.get("last", "a") == Payment(1)


def test_restored_objects_are_fresh_each_time() -> None:
    last = ValueState("last", of=Payment)
    snapshot = holding(last, a=Payment(1)).snapshot()
    first, second = backend_of(last), backend_of(last)
    first.restore(snapshot)
    second.restore(snapshot)

    first.table(last)["a"].amount = 9

    assert second.get("last", "a") == Payment(1)


def test_restoring_replaces_existing_state() -> None:
    last = ValueState("last", of=int)
    backend = holding(last, a=5, b=6)

    backend.restore(holding(last, a=1).snapshot())

    assert backend.table(last) == {"a": 1}


def test_a_state_that_is_new_since_the_snapshot_starts_empty() -> None:
    snapshot = holding(ValueState("last", of=int), a=1).snapshot()
    backend = backend_of(ValueState("last", of=int), ValueState("first", of=int))

    backend.restore(snapshot)

    assert (backend.keys("last"), backend.keys("first")) == (["a"], [])


def test_names_of_the_operator_itself_are_ignored() -> None:
    last = ValueState("last", of=int)
    before = holding(last, a=1)
    stored = {
        group: {**names, "@timers": ((b"a", b"1"),), "@empty": ()}
        for group, names in before.snapshot().items()
    }

    after = backend_of(last)
    after.restore(stored)

    assert after.table(last) == {"a": 1}


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_state_of_three_subtasks_is_restored_in_any_number(parallelism: int) -> None:
    last = ValueState("last", of=int)
    values = {f"key {number}": number for number in range(100)}
    three = [backend_of(last, groups=groups) for groups in ranges(DEFAULT_KEY_GROUPS, 3)]
    for backend, groups in zip(three, ranges(DEFAULT_KEY_GROUPS, 3), strict=True):
        mine = {key: value for key, value in values.items() if key_group(key) in groups}
        backend.table(last).update(mine)

    everything = merge(OperatorSnapshot(backend.snapshot()) for backend in three)
    new = [backend_of(last, groups=groups) for groups in ranges(DEFAULT_KEY_GROUPS, parallelism)]
    for backend in new:
        backend.restore(everything.keyed)

    tables = [backend.table(last) for backend in new]
    assert {key: value for table in tables for key, value in table.items()} == values
    assert sum(map(len, tables)) == len(values)
    for table, groups in zip(tables, ranges(DEFAULT_KEY_GROUPS, parallelism), strict=True):
        assert all(key_group(key) in groups for key in table)


def test_a_value_of_another_type_is_named_with_its_state_and_step() -> None:
    backend = holding(ValueState[Any]("last", of=Payment), a=5)

    with pytest.raises(CheckpointError) as e:
        backend.snapshot()

    assert str(e.value).startswith("state 'last' of step 'step' cannot be stored for key 'a': 5 ")
    assert "of=Payment" in str(e.value)


def test_a_value_that_needs_a_type_is_named_with_the_remedy() -> None:
    backend = holding(ValueState[Any]("last"), a=Payment(1))

    with pytest.raises(CheckpointError, match=r"'last' of step 'step' .*declare of=Payment"):
        backend.snapshot()


def test_a_key_that_needs_a_type_is_named_with_the_remedy() -> None:
    last = ValueState("last", of=int)
    backend = backend_of(last)
    backend.table(last)[Card("4711")] = 1

    with pytest.raises(CheckpointError, match=r"'step' cannot store .* key Card.*of=Card"):
        backend.snapshot()


def test_keys_of_a_declared_type_are_restored() -> None:
    last = ValueState("last", of=int)
    before = backend_of(last, key_type=Card)
    before.table(last)[Card("4711")] = 1

    after = backend_of(last, key_type=Card)
    after.restore(before.snapshot())

    assert after.table(last) == {Card("4711"): 1}


def test_keys_of_another_type_are_refused() -> None:
    last = ValueState("last", of=int)
    backend = backend_of(last, key_type=Card)

    with pytest.raises(RestoreError, match=r"'step' cannot read a stored key: .*of=Card"):
        backend.restore(holding(last, a=1).snapshot())


def test_a_stored_state_that_is_no_longer_declared_is_refused() -> None:
    snapshot = holding(ValueState("lastt", of=int), a=1).snapshot()

    with pytest.raises(RestoreError, match=r"'step' holds state 'lastt', .* declared: 'last'"):
        backend_of(ValueState("last", of=int)).restore(snapshot)


def test_a_stored_state_of_another_kind_is_refused() -> None:
    snapshot = holding(ValueState("last", of=int), a=1).snapshot()

    with pytest.raises(RestoreError, match=r"declared as list state, but .* holds value state"):
        backend_of(ListState("last", of=int)).restore(snapshot)


def test_a_type_that_cannot_read_the_stored_one_is_refused_before_any_value_is_read() -> None:
    last = ValueState("last", of=str)
    empty_bytes: Keyed = {
        group: {**names, "last": tuple((key, b"") for key, _ in names["last"])}
        for group, names in holding(last, a="x").snapshot().items()
    }

    with pytest.raises(
        RestoreError,
        match=r"'last' of step 'step' was stored as value of str, and is declared as value of int: .*"
        r"str cannot be read as int.*give the new state another name",
    ):
        backend_of(ValueState("last", of=int)).restore(empty_bytes)


def test_a_stored_value_that_violates_its_type_is_refused_when_it_is_read() -> None:
    snapshot = holding(ValueState[Any]("last"), a="x").snapshot()

    with pytest.raises(
        RestoreError, match=r"'last' of step 'step' cannot be read for key 'a': .*int"
    ):
        backend_of(ValueState("last", of=int)).restore(snapshot)


def test_an_older_snapshot_without_schemas_is_read() -> None:
    last = ValueState("last", of=int)
    snapshot = {
        group: {**names, STATES: ((b"last", PLAIN.encode(["value", "int"])),)}
        for group, names in holding(last, a=1).snapshot().items()
    }
    backend = backend_of(last)

    backend.restore(snapshot)

    assert backend.table(last) == {"a": 1}


def test_an_int_that_became_a_float_is_read_as_one() -> None:
    last = ValueState("last", of=float)
    backend = backend_of(last)

    backend.restore(holding(ValueState("last", of=int), a=1).snapshot())

    assert [type(value) for value in backend.table(last).values()] == [float]


def test_an_invalid_description_is_refused() -> None:
    last = ValueState("last", of=int)
    snapshot = {
        group: {**names, STATES: ((b"last", PLAIN.encode({"kind": 5})),)}
        for group, names in holding(last, a=1).snapshot().items()
    }

    with pytest.raises(
        RestoreError, match=r"the description of state 'last' .* in the snapshot cannot be read"
    ):
        backend_of(last).restore(snapshot)


def test_typed_state_is_not_read_as_plain_values() -> None:
    snapshot = holding(ValueState("last", of=Payment), a=Payment(1)).snapshot()

    with pytest.raises(RestoreError, match=r"stored with of=Payment.* declare of=Payment again"):
        backend_of(ValueState[Any]("last")).restore(snapshot)


def test_plain_state_can_get_a_type_that_reads_it() -> None:
    snapshot = holding(ValueState[Any]("last"), a={"amount": 1.5}).snapshot()
    last = ValueState("last", of=Payment)
    backend = backend_of(last)

    backend.restore(snapshot)

    assert backend.table(last) == {"a": Payment(1.5)}


def test_a_type_may_gain_fields_with_defaults_and_lose_others() -> None:
    @dataclass
    class Older:
        amount: float
        shop: str

    snapshot = holding(ValueState("last", of=Older), a=Older(1.5, "x")).snapshot()
    last = ValueState("last", of=Payment)
    backend = backend_of(last)

    backend.restore(snapshot)

    assert backend.table(last) == {"a": Payment(1.5, "")}


def test_damaged_bytes_are_refused() -> None:
    recent = ListState("recent", of=int)
    backend = backend_of(recent)
    keyed: Keyed = {key_group("a"): {"recent": ((PLAIN.encode("a"), b"\xc1"),)}}

    with pytest.raises(RestoreError, match="'recent' of step 'step' cannot be read for key 'a'"):
        backend.restore(keyed)


KEYS = st.one_of(st.text(), st.integers(), st.tuples(st.text(), st.booleans()), st.none())


@given(
    st.dictionaries(KEYS, st.lists(st.integers(-(2**63), 2**63), min_size=1)),
    st.dictionaries(KEYS, st.dictionaries(st.text(), st.floats(allow_nan=False), min_size=1)),
)
def test_all_stored_values_are_restored(
    lists: dict[Hashable, list[int]], maps: dict[Hashable, dict[str, float]]
) -> None:
    recent, shops = ListState[int]("recent"), MapState("by shop", key=str, of=float)
    before = backend_of(recent, shops)
    for before.key, numbers in lists.items():
        before.cell(recent).set(numbers)
    for before.key, entries in maps.items():
        for shop, amount in entries.items():
            before.cell(shops).put(shop, amount)

    after = backend_of(recent, shops)
    after.restore(before.snapshot())

    assert {key: after.get("recent", key) for key in after.keys("recent")} == lists
    assert {key: after.get("by shop", key) for key in after.keys("by shop")} == maps


class Opaque:
    def __init__(self, size: int) -> None:
        self.size = size


def test_values_without_an_encoding_are_pickled_on_request() -> None:
    model = ValueState("model", codec=Pickled[Opaque]())
    many = ListState("many", codec=Pickled[Opaque]())
    named = MapState("named", key=str, codec=Pickled[Opaque]())
    before = backend_of(model, many, named)
    before.key = "a"
    before.cell(model).set(Opaque(1))
    before.cell(many).add(Opaque(2))
    before.cell(named).put("x", Opaque(3))

    after = backend_of(model, many, named)
    after.restore(before.snapshot())

    after.key = "a"
    assert_type(after.cell(model).get(), Opaque | None)
    one = after.cell(model).get()
    sizes = [one and one.size, after.cell(many).get()[0].size, after.cell(named).values()[0].size]
    assert sizes == [1, 2, 3]


def test_pickled_state_is_read_as_nothing_else_and_nothing_else_as_pickled() -> None:
    pickled, typed = ValueState("last", codec=Pickled[int]()), ValueState("last", of=int)

    for before, after in ((pickled, typed), (typed, pickled)):
        with pytest.raises(RestoreError, match=r"stored by codec '.*'; declare that codec again"):
            backend_of(after).restore(holding(before, a=1).snapshot())


@pytest.mark.parametrize(
    ("of", "codec", "complaint"),
    [
        (int, Pickled[int](), "both define how values are stored"),
        (None, Pickled, "must be a Codec"),
        (None, "pickle", "must be a Codec"),
    ],
)
def test_a_codec_is_valid_and_excludes_a_type(of: Any, codec: Any, complaint: str) -> None:
    with pytest.raises(FlowDefinitionError, match=rf"state 'last': .*{complaint}"):
        ValueState[int]("last", of=of, codec=codec)
