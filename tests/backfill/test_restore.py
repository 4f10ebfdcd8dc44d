"""History in several runs, each from the savepoint of the one before it, equals history in one run."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.backfill.comparison import Case, Results, together
from tests.backfill.fuzzed_flows import RandomCase, moment
from tests.backfill.hand_over_case import contents
from tests.backfill.test_continuation import moments
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of
from tests.backfill.test_fuzzed_flows import shape, small_parcels

SEEDS = range(20)

#: Steps whose stored records have the numbers of their arrival in a partition, which differ by the partitioning.
NUMBERED = {
    "dynamic sessions",
    "evicted by count",
    "counted sliding",
    "other evictors",
    "co-group of sessions",
    "window join, all options",
    "co-group, all options",
}


def ends_of(random: Random, choices: list[int]) -> list[int]:
    """One to three ends of runs, ascending."""
    return sorted(set(random.choices(choices, k=random.randint(1, 3))))


def in_several_runs(
    case: Case, ends: list[int], random: Random, folder: Path, seed: int | None = None
) -> Results:
    """Results over history up to each of ``ends``, and then to its end, on other partitions each time."""
    results: Results = {}
    restore: Path | None = None
    for number, until in enumerate([*ends, None]):
        savepoint = None if until is None else folder / f"run {number}"
        run = case.over_history(
            until=until, savepoint=savepoint, restore=restore, seed=seed, **shape(random)
        )
        results = together(run, results) if results else run
        restore = savepoint
    return results


def state_at(path: Path) -> dict[str, Any]:
    """The keyed state in a savepoint by step, key group and name; entries in no order, since time gives them none."""
    return {
        step: {
            group: {name: sorted(entries) for name, entries in names.items() if len(entries)}
            for group, names in state.keyed.items()
            if any(map(len, names.values()))
        }
        for step, state in contents(path).states.items()
        if state.keyed
    }


@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_a_step_continues_over_history_as_in_one_run(name: str, tmp_path: Path) -> None:
    case, expected = case_of(name)
    random = Random(f"{name} restored")
    ends = ends_of(random, moments(case))

    results = in_several_runs(case, ends, random, tmp_path)

    assert results == expected, f"until {ends}"
    if name not in NUMBERED:
        case.over_history(until=ends[-1], savepoint=tmp_path / "at once", **shape(random))
        assert state_at(tmp_path / f"run {len(ends) - 1}") == state_at(tmp_path / "at once")


@pytest.mark.parametrize("seed", SEEDS)
def test_any_flow_over_history_in_several_runs_equals_one_run(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def check(seed: int, folder: Path) -> None:
    """Run the flow of ``seed`` over history, at once and in several runs."""
    random = Random(f"{seed} restored")
    drawn = RandomCase.of(random)
    case = drawn.case
    ends = ends_of(random, [moment(random, case.sources) for _ in range(3)])
    story = f"seed {seed} until {ends}:\n{drawn.flow}"

    with ExitStack() as stack:
        small_parcels(random, stack)
        whole = case.over_history(drawn.history(random), seed=seed, **shape(random))
        results = in_several_runs(case, ends, random, folder, seed)

    assert results == whole, story
