"""What each kind of step makes of history is what it makes of the same records in a live job, however they come."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random

import pytest

from tests.backfill.comparing import Case, Results
from tests.backfill.items import Items, drawn
from tests.backfill.keyed_steps import KEYED
from tests.backfill.pair_steps import PAIRS
from tests.backfill.steps import STATELESS

STEPS = {step.name: step for step in (*STATELESS, *KEYED)}
PAIR_STEPS = {step.name: step for step in PAIRS}

#: Number of partitions, rows of a block, records of a batch.
SHAPES = [(1, 1000, 1024), (2, 7, 1024), (3, 1, 1), (5, 1000, 1)]


@cache
def case_of(name: str) -> tuple[Case, Results]:
    """A flow with the step, and what comes of it in a live job."""
    random = Random(name)
    if name in STEPS:
        step = STEPS[name]
        items = drawn(random, 150, together=not step.needs_order)
        case = Case(lambda streams: {"out": step.make(streams["items"], "step")}, {"items": items})
    else:
        pair = PAIR_STEPS[name]

        def build(streams: Mapping[str, Items]) -> Mapping[str, Items]:
            return {"out": pair.make(streams["items"], streams["others"], "step")}

        others = drawn(random, 90, together=not pair.right_needs_order)
        case = Case(build, {"items": drawn(random, 150), "others": others}, max_delay=1000)
    return case, case.live()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_a_step_makes_of_history_what_it_makes_of_it_live(
    name: str, shape: tuple[int, int, int]
) -> None:
    case, expected = case_of(name)
    parallelism, block, batch = shape

    found = case.over_history(parallelism=parallelism, block=block, batch=batch)

    assert found == expected
    assert len(expected["out"]) > 5
