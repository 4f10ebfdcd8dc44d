"""Each kind of step gives the same results over history as in a live job, in whichever order records arrive."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from aflow.backfill.fragments import Fragment
from aflow.backfill.portable_fragment import check_picklable, portable_copy
from tests.backfill.comparison import Case, Results
from tests.backfill.items import Items, drawn
from tests.backfill.keyed_steps import KEYED
from tests.backfill.option_steps import OPTIONS, PAIR_OPTIONS
from tests.backfill.pair_steps import PAIRS
from tests.backfill.steps import STATELESS

dumps: Any
try:
    from aflow_connectors.spark.executor.serialization import dumps
except ImportError:
    dumps = None

STEPS = {step.name: step for step in (*STATELESS, *KEYED, *OPTIONS)}
PAIR_STEPS = {step.name: step for step in (*PAIRS, *PAIR_OPTIONS)}

#: Number of partitions, rows of a block, records of a batch.
SHAPES = list(product([1, 2, 3, 5], [1, 7, 1000], [1, 1024]))


@cache
def case_of(name: str) -> tuple[Case, Results]:
    """A flow with the step, and its results in a live job."""
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


def shapes_of(name: str) -> list[tuple[int, int, int]]:
    """Two of them; all steps together get each."""
    first = [*STEPS, *PAIR_STEPS].index(name) * 2
    return [SHAPES[first % len(SHAPES)], SHAPES[(first * 5 + 7) % len(SHAPES)]]


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, shape) for name in [*STEPS, *PAIR_STEPS] for shape in shapes_of(name)],
    ids=str,
)
def test_a_step_gives_the_same_results_over_history_and_live(
    name: str, shape: tuple[int, int, int]
) -> None:
    case, expected = case_of(name)
    parallelism, block, batch = shape

    found = case.over_history(parallelism=parallelism, block=block, batch=batch, ship=pickled)

    assert found == expected
    assert len(expected["out"]) > 5


def pickled(fragment: Fragment) -> Fragment:
    """The fragment as executors receive it: pickled, if Spark is installed, and unpickled."""
    if dumps is None:
        return portable_copy(fragment)
    unpickled: Fragment = pickle.loads(check_picklable(fragment, dumps))
    return unpickled
