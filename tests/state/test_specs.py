"""Declarations of state: checked at construction, and found among the attributes of a step."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from aflow.errors import FlowDefinitionError
from aflow.state.aggregate import Aggregate
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateSpec,
    ValueState,
    declared_states,
)


class Count(Aggregate[object, int, int]):
    def create(self) -> int:
        return 0

    def add(self, acc: int, value: object) -> int:
        return acc + 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


class Opaque:
    """A class without an encoding."""


@pytest.mark.parametrize("name", ["", " padded ", "two\nlines", "@timers"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(FlowDefinitionError, match="cannot name a state"):
        ValueState[int](name)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="must be a str, not int: 5"):
        ValueState[int](cast("str", 5))


@pytest.mark.parametrize(
    "declare",
    [
        lambda: ValueState("s", of=Opaque),
        lambda: ListState("s", of=Opaque),
        lambda: MapState("s", key=str, of=Opaque),
        lambda: MapState("s", key=Opaque, of=int),
        lambda: ReducingState[Opaque]("s", lambda a, b: a, of=Opaque),
        lambda: AggregatingState("s", Count(), of=cast("type[int]", Opaque)),
    ],
    ids=["value", "list", "map value", "map key", "reducing", "aggregating"],
)
def test_a_type_that_cannot_be_stored_is_refused_at_the_declaration(
    declare: Callable[[], StateSpec[Any]],
) -> None:
    with pytest.raises(FlowDefinitionError, match="state 's': of=Opaque cannot be stored"):
        declare()


async def later(a: int, b: int) -> int:
    return a + b


class LaterCall:
    async def __call__(self, a: int, b: int) -> int:
        return a + b


@pytest.mark.parametrize("fn", [later, LaterCall()], ids=["function", "object"])
def test_a_coroutine_function_cannot_reduce(fn: object) -> None:
    with pytest.raises(FlowDefinitionError, match="plain function, not a coroutine function"):
        ReducingState("s", cast("Callable[[int, int], int]", fn))


def test_only_a_function_can_reduce() -> None:
    with pytest.raises(FlowDefinitionError, match="reducing function must be a function, not 5"):
        ReducingState[int]("s", cast("Callable[[int, int], int]", 5))


def test_the_class_of_an_aggregate_is_refused_with_the_remedy() -> None:
    with pytest.raises(FlowDefinitionError, match=r"state 's': .* write Count\(\)"):
        AggregatingState("s", cast("Count", Count))


def test_an_aggregate_without_all_methods_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"Opaque\.create must be a function, not None"):
        AggregatingState("s", cast("Count", Opaque()))


def test_a_declaration_does_not_change() -> None:
    spec = ValueState("last", of=int)

    with pytest.raises(FrozenInstanceError):
        spec.name = "first"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_declaration_with_an_explicit_type_argument_works() -> None:
    assert ValueState[int]("last").name == "last"


def test_a_declaration_can_be_sent_to_another_process() -> None:
    spec = ValueState("last", of=int)

    copy = pickle.loads(pickle.dumps(spec))

    assert (copy.name, copy.of) == ("last", int)


def test_a_time_to_live_is_a_timedelta_above_zero() -> None:
    with pytest.raises(FlowDefinitionError, match="the ttl of state 'last' must be longer than"):
        ValueState("last", of=int, ttl=timedelta(0))
    with pytest.raises(FlowDefinitionError, match="the ttl of state 'last' must be a timedelta"):
        ValueState("last", of=int, ttl=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_time_to_live_restarts_on_one_of_two_kinds_of_access() -> None:
    with pytest.raises(
        FlowDefinitionError, match=r"the ttl_on of state 'last' must be TtlOn\.UPDATE"
    ):
        ListState("last", of=int, ttl_on="read")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Parent:
    last = ValueState("last", of=int)
    replaced = ValueState("replaced", of=int)
    threshold = 5


class Child(Parent):
    replaced = ValueState("replaced", of=int)

    def __init__(self) -> None:
        self.mine = ListState("mine", of=int)


def test_declarations_of_an_object_and_of_its_classes_are_found() -> None:
    child = Child()

    assert declared_states(child) == (Parent.last, Child.replaced, child.mine)


def test_declarations_in_slots_are_found() -> None:
    @dataclass(slots=True)
    class Slotted:
        last: ValueState[int]

    slotted = Slotted(ValueState("last", of=int))

    assert declared_states(slotted) == (slotted.last,)


def test_one_declaration_under_two_attributes_is_one() -> None:
    class Renamed:
        last = ValueState("last", of=int)
        latest = last

    assert declared_states(Renamed()) == (Renamed.last,)


def test_two_declarations_of_one_name_are_refused() -> None:
    class Twice:
        last = ValueState("last", of=int)
        latest = ListState("last", of=int)

    with pytest.raises(
        FlowDefinitionError, match=r"Twice\.latest: another state .* named 'last' too"
    ):
        declared_states(Twice())
