"""Broadcast state: declarations, the store of one subtask, and its copies in snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import pytest

from aflow.errors import CheckpointError, FlowDefinitionError, OperatorError, RestoreError
from aflow.model.key_groups import KeyGroupRange
from aflow.state.broadcast import BroadcastState, BroadcastStore, broadcast_states, keyed_states
from aflow.state.snapshot import OperatorSnapshot, merge
from aflow.state.specs import ValueState


@dataclass(frozen=True)
class Old:
    limit: int


@dataclass(frozen=True)
class New:
    limit: int
    unit: str = "EUR"


class Holder:
    rules = BroadcastState("rules", key=str, of=int)
    texts = BroadcastState("texts", key=str, of=str)
    count = ValueState("count", of=int)


def store(spec: BroadcastState[str, object]) -> BroadcastStore:
    one = BroadcastStore("step", [spec])
    one.writable = True
    return one


def test_declarations_are_found_by_kind() -> None:
    assert broadcast_states(Holder()) == (Holder.rules, Holder.texts)


def test_a_function_without_control_stream_has_keyed_state_only() -> None:
    class Keyed:
        count = ValueState("count", of=int)

    assert keyed_states(Keyed()) == (Keyed.count,)
    with pytest.raises(FlowDefinitionError, match=r"Holder\.rules: broadcast state 'rules' is"):
        keyed_states(Holder())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: BroadcastState[str, str](""), "'' cannot name a state"),
        (lambda: BroadcastState[str, str]("@mine"), "names that begin with '@' are reserved"),
        (lambda: BroadcastState("locks", key=str, of=Lock), "broadcast state 'locks': "),
    ],
    ids=["empty", "reserved", "of a type without encoding"],
)
def test_a_declaration_that_cannot_be_stored_is_refused(
    make: Callable[[], object], reason: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=reason):
        make()


def test_values_are_stored_by_their_type_which_may_grow() -> None:
    old = BroadcastState("rules", key=str, of=Old)
    new = BroadcastState("rules", key=str, of=New)
    before, after = BroadcastStore("step", [old]), BroadcastStore("step", [new])
    before.writable = True
    before.cells[old].put("a", Old(5))

    after.restore(before.snapshot())

    assert after.views[new].items() == [("a", New(5, "EUR"))]


def test_bytes_of_a_type_are_not_read_without_one() -> None:
    typed = BroadcastState[str, object]("rules", key=str, of=Old)
    before = store(typed)
    before.cells[typed].put("a", Old(5))

    with pytest.raises(RestoreError, match=r"1 copies: .* was stored with of=str"):
        store(BroadcastState[str, object]("rules")).restore(before.snapshot())


def test_a_value_that_cannot_be_stored_is_named_by_the_snapshot() -> None:
    plain = BroadcastState[str, object]("rules")
    before = store(plain)
    before.cells[plain].put("a", Lock())

    with pytest.raises(CheckpointError, match="broadcast state 'rules' of step 'step' cannot be"):
        before.snapshot()


def test_a_restore_replaces_existing_state() -> None:
    plain = BroadcastState[str, object]("rules")
    full, other = store(plain), store(plain)
    full.cells[plain].put("a", 1)
    other.cells[plain].put("b", 2)

    other.restore(full.snapshot())
    kept = other.views[plain].items()
    other.restore({})

    assert kept == [("a", 1)]
    assert (len(other), other.views[plain].items()) == (0, [])


def test_entries_are_removed_and_cleared() -> None:
    plain = BroadcastState[str, object]("rules")
    one = store(plain)
    cell = one.cells[plain]
    cell.put("a", 1)
    cell.put("b", 2)
    cell.put("c", 3)

    removed = cell.remove("a"), cell.remove("a")
    left = one.views[plain].keys()
    cell.clear()

    assert (removed, left, len(one)) == ((True, False), ["b", "c"], 0)


def test_nothing_is_written_while_no_control_record_is_handled() -> None:
    plain = BroadcastState[str, object]("rules")
    one = store(plain)
    one.writable = False

    with pytest.raises(OperatorError, match="step 'step' wrote broadcast state outside of process"):
        one.cells[plain].put("a", 1)
    assert len(one) == 0


def test_each_range_of_key_groups_has_the_copies() -> None:
    first = OperatorSnapshot({0: {}}, {}, {"rules": (b"same", b"mine")})
    second = OperatorSnapshot({64: {}}, {}, {"rules": (b"same",), "texts": (b"text",)})

    share = merge([first, second]).restricted_to(KeyGroupRange(64, 128))

    assert share == OperatorSnapshot(
        {64: {}}, {}, {"rules": (b"same", b"mine"), "texts": (b"text",)}
    )
