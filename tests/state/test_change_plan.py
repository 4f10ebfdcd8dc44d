"""Change plans, by names, by the methods that made steps, and by the types of states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aflow.errors import RestoreError
from aflow.graph.declared_steps import declared_steps
from aflow.state.change_plan import (
    ChangePlan,
    DeclaredStep,
    StateOutcome,
    StoredState,
    StoredStep,
    change_plan,
    stored_step,
)
from aflow.state.descriptions import Description
from aflow.state.layouts import descriptions
from aflow.state.manifest import StepState
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import ListState, StateSpec, ValueState
from tests.state.test_snapshots import backend_of, holding


@dataclass
class Payment:
    amount: int


@dataclass
class Noted:
    amount: float
    note: str = ""


def stored(
    *specs: StateSpec[Any], name: str = "totals", what: str = "process", others: str = ""
) -> StoredStep:
    """Return a step with state of two keys for each of ``specs``."""
    states = (
        StoredState(state, (Description.decoded(data),), keys=2)
        for state, data in descriptions(specs).items()
    )
    return StoredStep(name, what, 1, tuple(states), tuple(others.split()))


def declared(
    *specs: StateSpec[Any], name: str = "totals", what: str = "process", parallelism: int = 1
) -> DeclaredStep:
    return DeclaredStep(name, what, parallelism, descriptions(specs), stateful=True)


def silent(name: str = "totals", what: str = "window.fold") -> DeclaredStep:
    """Return a step that does not describe its state."""
    return DeclaredStep(name, what, 1, None, stateful=True)


def fates(plan: ChangePlan) -> dict[str, dict[str, StateOutcome]]:
    return {
        step.name: {"": step.own, **{state.name: state.outcome for state in step.states}}
        for step in plan.steps
    }


LAST = ValueState("last", of=Payment)


def test_a_state_of_the_same_name_and_type_is_kept() -> None:
    plan = change_plan([stored(LAST)], [declared(LAST)])

    assert fates(plan) == {"totals": {"": StateOutcome.KEPT, "last": StateOutcome.KEPT}}
    plan.check()


def test_a_state_that_is_read_as_a_wider_type_is_migrated_with_a_description() -> None:
    plan = change_plan([stored(LAST)], [declared(ValueState("last", of=Noted))])

    assert str(plan).splitlines() == [
        "  step 'totals' (process): migrated",
        "    migrated  last: value of Payment{amount: int}",
        "              Noted.amount: int → float",
        "              Noted.note is added, as ''",
    ]
    plan.check()


def test_a_state_that_is_not_stored_is_new() -> None:
    plan = change_plan([stored(LAST)], [declared(LAST, ValueState("seen", of=int))])

    assert fates(plan)["totals"]["seen"] is StateOutcome.NEW
    plan.check()


def test_a_state_that_cannot_be_read_is_refused_with_both_types() -> None:
    plan = change_plan([stored(LAST)], [declared(ListState("last", of=Payment))])

    with pytest.raises(RestoreError) as refused:
        plan.check(allow_dropped_state=True)

    assert "refused   last: value of Payment{amount: int}" in str(refused.value)
    assert "declared as list of Payment{amount: int}" in str(refused.value)
    assert "give the changed state or step another name" in str(refused.value)


def test_a_state_that_is_no_longer_declared_is_dropped_only_if_allowed() -> None:
    plan = change_plan([stored(LAST, ValueState("old", of=int))], [declared(LAST)])

    assert fates(plan)["totals"]["old"] is StateOutcome.DROPPED
    with pytest.raises(
        RestoreError, match=r"(?s)dropped   old: value of int.*2 keys.*allow_dropped_state=True"
    ):
        plan.check()
    plan.check(allow_dropped_state=True)


def test_a_removed_step_is_dropped_with_all_its_state() -> None:
    plan = change_plan([stored(LAST, others="@watermark")], [declared(LAST, name="sums")])

    assert fates(plan) == {
        "sums": {"": StateOutcome.NEW, "last": StateOutcome.NEW},
        "totals": {"": StateOutcome.DROPPED, "last": StateOutcome.DROPPED},
    }
    assert "was it renamed?" in str(plan)
    assert plan.dropped


def test_a_step_that_is_not_found_by_its_number_should_have_a_name() -> None:
    plan = change_plan([stored(others="@watermarks", name="event_time #2", what="event_time")], [])

    assert plan.dropped
    assert "a step with name= is found at any position" in str(plan)


def test_a_step_without_state_may_be_removed() -> None:
    plan = change_plan([stored(name="map #1", what="map")], [])

    assert plan == ChangePlan()
    assert str(plan) == "  nothing is stored"


def test_a_step_without_descriptions_is_kept_if_the_same_method_made_it() -> None:
    before = stored(what="window.fold", others="@windows @watermark")

    plan = change_plan([before], [silent()])

    assert fates(plan) == {"totals": {"": StateOutcome.KEPT}}


def test_a_step_without_descriptions_is_refused_if_another_method_made_it() -> None:
    before = stored(what="window.fold", others="@windows")

    plan = change_plan([before], [silent(what="window.apply")])

    assert plan.refused
    assert "it was a window.fold when it was stored, and is a window.apply now" in str(plan)


def test_states_decide_where_two_methods_store_nothing_else() -> None:
    fold = stored(ValueState("accumulator", of=int), what="fold")

    plan = change_plan([fold], [declared(ValueState("accumulator", of=int), what="reduce")])

    assert fates(plan) == {"totals": {"": StateOutcome.KEPT, "accumulator": StateOutcome.KEPT}}


def test_timers_of_a_function_are_not_lost_in_a_step_of_another_kind() -> None:
    plan = change_plan([stored(LAST, others="@event")], [declared(LAST, what="fold")])

    assert plan.refused


def test_another_parallelism_is_shown() -> None:
    plan = change_plan([stored(LAST)], [declared(LAST, parallelism=4)])

    assert "step 'totals' (process), parallelism 1 → 4: kept" in str(plan)


def test_another_number_of_key_groups_is_refused() -> None:
    plan = change_plan([stored(LAST)], [declared(LAST)], key_groups=(64, 128))

    assert plan.refused
    assert (
        "keys are stored in 64 key groups, and the job has 128; run it with Options(key_groups=64)"
        in (str(plan))
    )


def test_each_of_several_stored_types_must_be_readable() -> None:
    """Key groups that were not written after a change have the former type."""
    both = StoredState(
        "last",
        (
            Description.decoded(descriptions([ValueState("last", of=int)])["last"]),
            Description.decoded(descriptions([ValueState("last", of=str)])["last"]),
        ),
    )

    plan = change_plan(
        [StoredStep("totals", "process", 1, (both,))], [declared(ValueState("last", of=int))]
    )

    assert plan.refused


def test_a_snapshot_describes_its_states_their_types_and_keys() -> None:
    snapshot = OperatorSnapshot(
        holding(LAST, a=Payment(1), b=Payment(2)).snapshot(), {"@watermark": (b"5",)}
    )

    step = stored_step(StepState("totals", "process", 3, ()), snapshot)

    assert (step.name, step.what, step.parallelism) == ("totals", "process", 3)
    assert step.states == stored(LAST).states
    assert step.others == ("@watermark",)


def test_an_asynchronous_step_with_only_watermarks_may_be_removed() -> None:
    snapshot = OperatorSnapshot(operator={"@fences": (b"5",)})

    step = stored_step(StepState("ask", "map_async", 3, ()), snapshot)

    assert step.empty
    assert change_plan([step], []) == ChangePlan()


def test_a_snapshot_without_its_dropped_states_can_be_restored() -> None:
    old = ValueState("old", of=int)
    backend = backend_of(LAST, old)
    backend.table(LAST)["a"] = Payment(1)
    backend.table(old)["a"] = 5
    snapshot = OperatorSnapshot(backend.snapshot())
    plan = change_plan([stored(LAST, old)], [declared(LAST)])
    after = backend_of(LAST)

    after.restore(plan.without_dropped("totals", snapshot).keyed)

    assert after.table(LAST) == {"a": Payment(1)}


def test_the_steps_of_a_plan_declare_the_states_of_their_functions() -> None:
    import aflow as af

    class Totals(af.KeyedProcess[int, int, int]):
        last = LAST

        def process(self, value: int, ctx: af.Context[int]) -> list[int]:
            return [value]

    flow = af.Flow("shop")
    keyed = flow.source([1], name="in").key_by(lambda n: n)
    keyed.process(Totals(), name="totals").to(af.CollectSink[int](), name="out")

    steps = {step.name: step for step in declared_steps(flow.plan(parallelism=2))}

    assert steps["totals"] == DeclaredStep(
        "totals", "process", 2, descriptions([LAST]), stateful=True
    )
    assert steps["out"].states is None
