"""Every public option of every step works over history, or is refused: found by inspection, so a new one is missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import aflow as af
from tests.backfill.items import Item, Items, at_of
from tests.backfill.keyed_steps import KEYED
from tests.backfill.option_steps import OPTIONS, PAIR_OPTIONS
from tests.backfill.options_used import known, used_by
from tests.backfill.pair_steps import PAIRS
from tests.backfill.steps import STATELESS

#: Options that a backfill refuses, or that belong to no step of it; each with the test that holds it, or the reason.
ELSEWHERE = {
    "Stream.broadcast(parallelism)": "refused: test_refusals",
    "Stream.connect_broadcast(control)": "refused: test_refusals",
    "KeyedStream.connect_broadcast(control)": "refused: test_refusals",
    "Stream.ingestion_time(name)": "refused: test_refusals",
    "Stream.ingestion_time(watermark_interval)": "refused: test_refusals",
    "triggers.ContinuousProcessingTime(every)": "refused: test_refusals",
    "Tumbling(domain)": "test_event_time_only",
    "Tumbling(stagger)": "aligned over history: test_event_time_only",
    "Sliding(domain)": "test_event_time_only",
    "Session(domain)": "test_event_time_only",
    "windows.DynamicSession(domain)": "test_event_time_only",
    "triggers.ContinuousEventTime(every)": "fires by the watermark, which history has for each record: test_moments",
    "Stream.event_time(source_watermarks)": "without effect over history: test_source_watermarks",
    "Stream.to(sink)": "every case ends in one",
    "Stream.to(name)": "every case ends in one",
    "KeyedStream.map_async(ordered)": "refused by the method itself",
    "KeyedStream.flat_map_async(ordered)": "refused by the method itself",
    "KeyedStream.filter_async(ordered)": "refused by the method itself",
    "KeyedStream.map_batch_async(ordered)": "refused by the method itself",
    "KeyedStream.process_async(ordered)": "refused by the method itself",
    "KeyedStream.process_async(cache)": "refused by the method itself",
    "KeyedStream.process_async(store_results)": "refused by the method itself",
    "KeyedStream.process_async(result_of)": "refused by the method itself",
    "KeyedStream.process_async(result_codec)": "refused by the method itself",
    "Stream.filter_async(result_of)": "refused by the method itself",
    "Stream.filter_async(result_codec)": "refused by the method itself",
    "KeyedStream.filter_async(result_of)": "refused by the method itself",
    "KeyedStream.filter_async(result_codec)": "refused by the method itself",
}


def streams() -> tuple[Items, Items]:
    """Two streams of one flow."""
    flow = af.Flow("options")
    left, right = (
        flow.source(list[Item](), name=name).event_time(at_of, name=f"{name} times")
        for name in ("left", "right")
    )
    return left, right


def used() -> set[str]:
    makers: list[Callable[[], object]] = [
        *(lambda step=step: step.make(streams()[0], "step") for step in STATELESS),
        *(lambda step=step: step.make(streams()[0], "step") for step in KEYED),
        *(lambda step=step: step.make(streams()[0], "step") for step in OPTIONS),
        *(lambda pair=pair: pair.make(*streams(), "step") for pair in PAIRS),
        *(lambda pair=pair: pair.make(*streams(), "step") for pair in PAIR_OPTIONS),
    ]
    return set[str]().union(*map(used_by, makers))


def test_every_public_option_is_given_by_a_step_that_runs_over_history() -> None:
    missing = known() - used() - ELSEWHERE.keys()

    assert not missing, f"add steps with these options to option_steps.py: {sorted(missing)}"


def test_no_option_is_called_impossible_that_does_not_exist_or_that_a_step_gives() -> None:
    assert ELSEWHERE.keys() <= known()
    assert not ELSEWHERE.keys() & used()


def test_a_step_with_a_type_gives_it_to_all_that_take_one() -> None:
    types = {option for option in known() if option.endswith(("(of)", "(other_of)", "(codec)"))}

    assert types <= used()
    assert len(types) > 25


def test_an_option_that_no_step_gives_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def filter(self: Items, keep: Callable[[Item], object], *, fast: bool = False) -> Items:
        raise AssertionError("only its signature is looked at")

    before = used()
    monkeypatch.setattr(af.Stream, "filter", filter)

    assert known() - before - ELSEWHERE.keys() == {"Stream.filter(fast)"}
