"""Results in snapshots: a call that was completed is not made again, whatever happened to its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import RestoreError
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback
from aflow.machines.calls.settings import CallOrder, CallResults
from aflow.model.codecs import PLAIN, Pickled, codec_for
from aflow.model.elements import Watermark
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, key_group, subtask_of
from aflow.model.tags import Tag
from aflow.operators.calls.stored_results import RESULTS, ResultStore
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import At
from tests.operators.calls.harness import CallHarness

FAILED = Tag[FailedCall[str]]("failed")


@dataclass(frozen=True)
class Answer:
    text: str


class Opaque:
    """Nothing that can be stored without being told how."""

    def __init__(self, text: str) -> None:
        self.text = text


class Warned(CallHarness):
    """A harness that collects the warnings of its step."""

    def _new(self) -> Any:
        self.warnings: list[str] = getattr(self, "warnings", [])
        self._context = replace(self._context, warn=self.warnings.append)
        return super()._new()


def first_letter(value: str) -> str:
    return value[0]


def both(value: str, result: str) -> tuple[str, str]:
    return value, result


def snapshot_of(step: CallHarness) -> OperatorSnapshot:
    snapshot = step.snapshot()
    assert snapshot is not None
    return snapshot


def restored(step: CallHarness, **options: Any) -> Warned:
    again = Warned(**options)
    again.restore(snapshot_of(step))
    return again


def one_of_two(result: Any, **options: Any) -> Warned:
    """A step in which "b" has ``result``, and waits for "a"."""
    step = Warned(**options)
    step.push("a", "b")
    return step.returns("b", result)


# ----------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("result", ["B", None, 0, [1, (2,)], Answer("B")], ids=repr)
def test_a_result_that_waits_is_stored_and_its_call_is_not_made_again(result: Any) -> None:
    again = restored(one_of_two(result))

    assert again.asked == ["a"]
    assert again.returns("a", "A").values == ["A", result]


def test_results_that_wait_for_the_mail_are_stored() -> None:
    step = CallHarness()
    step.mails_wait = True
    step.push("a", "b").returns("a", "A").returns("b", "B")

    again = restored(step)

    assert again.made == []
    assert again.values == ["A", "B"]


def test_many_results_that_a_slot_has_just_completed_are_stored() -> None:
    options: dict[str, Any] = {"results": CallResults.MANY}
    step = CallHarness(**options)
    step.mails_wait = True
    step.push("a")
    call = step.under_way.pop()
    call.result = iter(("A", "B"))
    _, _, complete = step.step.scheduler.plain_parts()
    complete(call)

    again = restored(step, **options)

    assert again.made == []
    assert again.values == ["A", "B"]


def test_unordered_results_behind_a_watermark_are_stored_and_keep_their_place() -> None:
    options: dict[str, Any] = {"order": CallOrder.UNORDERED}
    step = CallHarness(**options)
    step.push("a", at=[1]).watermark(1).push("b", "c", at=[2, 3]).watermark(3)
    step.returns("c", "C")

    again = restored(step, **options)
    again.returns("b", "B").returns("a", "A")

    assert again.made == ["a", "b"]
    assert again.output[:2] == [At("A", 1), Watermark(1)]
    assert sorted(map(repr, again.output[2:4])) == [repr(At("B", 2)), repr(At("C", 3))]
    assert again.output[4] == Watermark(3)


def test_a_later_record_of_a_key_starts_at_once_if_its_predecessor_is_stored() -> None:
    options: dict[str, Any] = {"order": CallOrder.BY_KEY, "key": first_letter}
    step = CallHarness(**options)
    step.mails_wait = True
    step.push("a1", "a2", "b1").returns("a1", "A1")

    again = restored(step, **options)

    assert again.asked == ["a2", "b1"]
    assert again.values == ["A1"]


def test_results_of_many_values_are_stored_together() -> None:
    options: dict[str, Any] = {"results": CallResults.MANY}

    again = restored(one_of_two(iter([1, 2]), **options), **options)

    assert again.returns("a", []).values == [1, 2]


def test_many_typed_results_are_stored_one_by_one() -> None:
    options: dict[str, Any] = {
        "results": CallResults.MANY,
        "result_codec": codec_for(Answer),
        "results_typed": True,
    }

    again = restored(one_of_two([Answer("1"), Answer("2")], **options), **options)

    assert again.returns("a", []).values == [Answer("1"), Answer("2")]


@pytest.mark.parametrize("keep", [True, False])
def test_of_a_filter_it_is_stored_whether_the_record_is_kept(keep: bool) -> None:
    options: dict[str, Any] = {"results": CallResults.KEEP}

    again = restored(one_of_two([Opaque("b")] * keep, **options), **options)

    assert again.asked == ["a"]
    assert again.returns("a", True).values == ["a", "b"][: 1 + keep]


def test_into_is_called_for_a_restored_result_with_its_record() -> None:
    options: dict[str, Any] = {"into": both}

    again = restored(one_of_two("B", **options), **options)

    assert again.returns("a", "A").values == [("a", "A"), ("b", "B")]


def test_followers_and_members_of_groups_have_results_of_their_own() -> None:
    options: dict[str, Any] = {"cache": Cache(9), "groups": GroupSize(2, 0)}
    step = CallHarness(**options)
    step.push("a", "b", "c", "d", "c")
    step.returns(["c", "d"], ["C", "D"])

    again = restored(step, **options)

    assert again.asked == [["a", "b"]]
    assert again.returns(["a", "b"], ["A", "B"]).values == ["A", "B", "C", "D", "C"]


def test_a_result_that_later_steps_change_is_stored_as_the_call_gave_it() -> None:
    result = {"text": "B"}
    step = one_of_two(result)
    captured = step.step.capture(changes=True)
    step.returns("a", "A")
    result["text"] = "changed"

    again = CallHarness()
    again.restore(captured.encoded())

    assert again.returns("a", "A").values == ["A", {"text": "B"}]


def test_the_number_of_running_calls_does_not_count_restored_results() -> None:
    again = restored(one_of_two("B"))

    assert (again.step.running, again.calls.calls) == (1, 1)


def test_nothing_is_stored_of_results_if_the_user_says_so() -> None:
    step = one_of_two("B", stores_results=False)

    assert RESULTS not in snapshot_of(step).operator
    assert restored(step).asked == ["a", "b"]


# ---------------------------------------------------------------------------------------------- failures


def test_a_dropped_record_stays_dropped() -> None:
    options: dict[str, Any] = {"on_error": Drop()}
    step = CallHarness(**options)
    step.push("a", "b").raises("b", ValueError("no"))

    again = restored(step, **options)

    assert again.asked == ["a"]
    assert again.returns("a", "A").values == ["A"]


def test_the_result_of_a_fallback_is_stored_although_the_policy_changes() -> None:
    step = CallHarness(on_error=Fallback(lambda value, error: f"{value}: {error}"))
    step.push("a", "b").raises("b", ValueError("no"))

    again = restored(step)

    assert again.returns("a", "A").values == ["A", "b: no"]


@pytest.mark.parametrize("before", [Drop(), DeadLetter(FAILED)], ids=repr)
@pytest.mark.parametrize("after", [Drop(), DeadLetter(FAILED)], ids=repr)
def test_a_record_that_another_policy_gave_up_is_called_for_again(before: Any, after: Any) -> None:
    step = CallHarness(on_error=before)
    step.push("a", "b").raises("b", ValueError("no"))

    again = restored(step, on_error=after)

    assert again.asked == ["a", "b"][: 1 if before == after else 2]


# ---------------------------------------------------------------------------- results that are of no use


def test_a_result_that_cannot_be_stored_is_warned_of_once_and_called_for_again() -> None:
    step = Warned()
    step.push("a", "b", "c", "d")
    step.returns("b", Opaque("B")).returns("c", "C").returns("d", Opaque("D"))

    again = restored(step)

    assert again.asked == ["a", "b", "d"]
    (warning,) = step.warnings
    assert "step 'step' cannot store the result of a completed call: " in warning
    assert "result_of=…" in warning


def test_a_result_of_another_type_than_declared_is_called_for_again() -> None:
    typed: dict[str, Any] = {"result_codec": codec_for(Answer), "results_typed": True}
    step = one_of_two("no answer", **typed)

    assert restored(step, **typed).asked == ["a", "b"]
    assert len(step.warnings) == 1


def test_a_codec_stores_results_of_any_class() -> None:
    pickled: dict[str, Any] = {"result_codec": Pickled[Opaque](), "results_typed": True}

    again = restored(one_of_two(Opaque("B"), **pickled), **pickled)

    assert again.returns("a", Opaque("A")).values[1].text == "B"


def test_results_of_another_codec_are_called_for_again() -> None:
    again = restored(one_of_two("B"), result_codec=codec_for(str), results_typed=True)

    assert again.asked == ["a", "b"]
    assert again.warnings == [
        "step 'step': 1 results were stored as records, and results are stored as str now: their calls are made again"
    ]


def test_a_result_that_cannot_be_read_any_more_is_called_for_again() -> None:
    snapshot = snapshot_of(one_of_two(Answer("B")))
    (part,) = snapshot.operator[RESULTS]
    renamed = part.replace(b"Answer", b"Former")
    assert renamed != part

    again = Warned()
    again.restore(replace(snapshot, operator={**snapshot.operator, RESULTS: (renamed,)}))

    assert again.asked == ["a", "b"]
    assert "cannot read the stored result of a completed call" in again.warnings[0]


def test_in_a_step_by_key_the_records_after_one_without_a_result_are_called_for_again() -> None:
    options: dict[str, Any] = {"order": CallOrder.BY_KEY, "key": first_letter}
    step = CallHarness(**options)
    step.mails_wait = True
    step.push("a1", "b1", "a2", "b2")
    for value in ("a1", "b1", "a2", "b2"):
        step.returns(value, Opaque(value) if value == "a1" else value.upper())

    again = restored(step, **options)
    again.returns("a1", "A1").returns("a2", "A2")

    assert again.made == ["a1", "a2"]
    assert again.values == ["B1", "B2", "A1", "A2"]


def test_a_result_that_nothing_awaited_is_no_result() -> None:
    async def forgotten() -> None: ...

    step = Warned(results=CallResults.KEEP)
    step.mails_wait = True
    step.push("a")
    call = step.under_way.pop()
    call.result = forgotten()

    assert RESULTS not in snapshot_of(step).operator
    assert step.warnings == []
    call.result.close()


def test_results_that_aflow_did_not_write_fail_the_restore() -> None:
    for forged in (
        b"rubbish",
        PLAIN.encode((1, 2)),
        PLAIN.encode((0, "records", "Fail", [1], [2])),
    ):
        with pytest.raises(RestoreError, match="step 'step' cannot read the results"):
            CallHarness().restore(OperatorSnapshot(operator={RESULTS: (forged,)}))


# ------------------------------------------------------------------------------------------- parallelism


@settings(deadline=None, max_examples=60)
@given(
    order=st.sampled_from(CallOrder),
    counts=st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=4),
    data=st.data(),
)
def test_another_parallelism_makes_no_completed_call_again(
    order: CallOrder, counts: list[int], data: st.DataObject
) -> None:
    key: Callable[[int], int] | None = third if order is CallOrder.BY_KEY else None
    numbers = iter(range(100))
    snapshots: list[OperatorSnapshot] = []
    came: list[int] = []
    left: list[int] = []
    completed: set[int] = set()
    steps: list[CallHarness] = []
    for count in [*counts, 1]:
        steps = [
            CallHarness(subtask=at, parallelism=count, order=order, key=key, capacity=9)
            for at in range(count)
        ]
        for step in steps:
            step.mails_wait = data.draw(st.booleans())
            if snapshots:
                step.restore(*snapshots)
            assert completed.isdisjoint(step.asked)
        for value in [next(numbers) for _ in range(data.draw(st.integers(0, 9)))]:
            came.append(value)
            steps[value % count if key is None else owner(key(value), count)].push(value)
        for step in steps:
            for value in data.draw(st.permutations(step.asked)):
                if value in step.asked and data.draw(st.booleans()):
                    completed.add(value)
                    step.returns(value, value)
        snapshots = [snapshot_of(step) for step in steps]
        left += [value for step in steps for value in step.values]
    (last,) = steps
    last.mails_wait = False
    left = left[: len(left) - len(last.values)]
    while last.under_way:
        assert completed.isdisjoint(last.asked)
        value = last.asked[0]
        completed.add(value)
        last.returns(value, value)
    last.emit()
    left += last.values

    assert sorted(left) == came
    if key is not None:
        for one in range(34):
            of_key = [value for value in left if third(value) == one]
            assert of_key == sorted(of_key)


def third(value: int) -> int:
    return value // 3


def owner(key: int, count: int) -> int:
    return subtask_of(key_group(key, DEFAULT_KEY_GROUPS), DEFAULT_KEY_GROUPS, count)


def test_the_store_reads_what_it_has_written() -> None:
    step = one_of_two("B")
    store = ResultStore("step", step.step.settings, print)
    calls = step.step.scheduler.queue.calls
    part = store.capture(3, calls)
    assert part is not None

    again = store.restored(OperatorSnapshot(operator={RESULTS: (part.encoded(),)}))
    calls[1].result = "lost"
    again.give(3, 1, calls[1])

    assert calls[1].result == "B"
