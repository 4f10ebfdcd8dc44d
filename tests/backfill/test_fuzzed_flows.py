"""A random flow gives the same results over history, live, and in both one after the other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from tests.backfill.comparison import Shape, from_on, together
from tests.backfill.fuzzed_flows import RandomCase, moment

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_flow_gives_the_same_results_over_history_and_live(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def check(seed: int, folder: Path) -> None:
    """Run the flow of ``seed`` in all three ways."""
    random = Random(seed)
    drawn = RandomCase.of(random)
    case = drawn.case
    until = moment(random, case.sources)
    story = f"seed {seed} until {until}:\n{drawn.flow}"
    batch = random.choice([1, 3, 1024])
    savepoint = folder / "savepoint"

    expected = case.live(parallelism=random.randint(1, 3), batch=random.choice([1, 1024]))
    with ExitStack() as stack:
        small_parcels(random, stack)
        whole = case.over_history(drawn.history(random), seed=seed, **shape(random))
        past = case.over_history(
            drawn.history(random), until=until, savepoint=savepoint, **shape(random)
        )
    rest = {
        name: from_on(items, until) if random.random() < 0.5 else items
        for name, items in case.sources.items()
    }
    live = case.live(rest, savepoint=savepoint, parallelism=random.randint(1, 3), batch=batch)

    assert whole == expected, story
    assert together(past, live) == expected, story


def shape(random: Random) -> Shape:
    """Number of partitions, and records at a time."""
    return {
        "parallelism": random.choice([1, 2, 3, 5]),
        "block": random.choice([1, 7, 1000]),
        "batch": random.choice([1, 3, 1024]),
        "together": random.choice([1, 10, 4096]),
    }


def small_parcels(random: Random, stack: ExitStack) -> None:
    """Blocks so small that those of a few records overlap."""
    for name, numbers in {
        "exchange._MOST": [1, 4, 1024],
        "exchange._SPAN": [0, 20, 10_000],
        "merge._MIN_SORTED": [1, 9, 4096],
        "merge._MAX_EMITTED": [1, 2, 2048],
    }.items():
        stack.enter_context(patch(f"aflow.backfill.{name}", random.choice(numbers)))
