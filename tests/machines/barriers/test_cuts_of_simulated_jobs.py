"""Consistent cuts link by link, in jobs with a coordinator.

``test_consistent_cuts`` compares totals. These tests compare the records sent on each link before a cut with those
processed and in flight, in order. Batches are split, several checkpoints are pending, the coordinator aborts some after
their barriers were sent, and a task may emit its end late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.machines.barriers.simulated_job import Job, Mode, Plan, Record

EXACTLY_ONCE = [mode for mode in Mode if mode is not Mode.AT_LEAST_ONCE]


@st.composite
def plans(draw: st.DrawFn, *modes: Mode) -> Plan:
    sources = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3))
    tasks: list[tuple[int, ...]] = []
    for number in range(draw(st.integers(1, 4))):
        node = st.integers(0, len(sources) + number - 1)
        tasks.append(tuple(draw(st.lists(node, min_size=1, max_size=3))))
    return Plan(
        tuple(sources),
        tuple(tasks),
        draw(st.sampled_from(modes)),
        checkpoints=draw(st.integers(1, 5)),
        concurrent=draw(st.integers(1, 3)),
        aborts=draw(st.integers(0, 2)),
        timeout=draw(st.integers(0, 20)),
        shared_out=draw(st.booleans()),
    )


seeds = st.integers(0, 2**32 - 1)
proving = settings(max_examples=300, deadline=None)


def ran(plan: Plan, seed: int) -> Job:
    job = Job(plan, Random(seed))
    job.run()
    note(f"completed {job.completed}, given up {sorted(job.given_up)}")
    return job


def in_peace(plan: Plan) -> list[Counter[Record]]:
    """Return the records that each task has processed at the end of a run without checkpoints."""
    job = Job(replace(plan, checkpoints=0, aborts=0), Random(0))
    job.run()
    return job.totals()


@proving
@given(plan=plans(*EXACTLY_ONCE), seed=seeds)
def test_records_sent_before_a_cut_and_no_others_are_processed_or_in_flight_in_order(
    plan: Plan, seed: int
) -> None:
    job = ran(plan, seed)

    for checkpoint in job.completed:
        for sent, done, in_flight in job.cut(checkpoint):
            assert done + in_flight == sent


@pytest.mark.slow
@proving
@given(plan=plans(*EXACTLY_ONCE), seed=seeds)
def test_a_job_restored_from_a_cut_has_the_same_totals(plan: Plan, seed: int) -> None:
    job = ran(plan, seed)
    undisturbed = in_peace(plan)

    for checkpoint in job.completed:
        again = job.restored(checkpoint)
        again.run()

        assert again.totals() == undisturbed


@proving
@given(plan=plans(Mode.AT_LEAST_ONCE), seed=seeds)
def test_at_least_once_nothing_is_lost(plan: Plan, seed: int) -> None:
    job = ran(plan, seed)
    undisturbed = in_peace(plan)

    for checkpoint in job.completed:
        for sent, done, in_flight in job.cut(checkpoint):
            assert (done[: len(sent)], in_flight) == (sent, [])
        again = job.restored(checkpoint)
        again.run()
        for total, at_least in zip(again.totals(), undisturbed, strict=True):
            assert total >= at_least


@proving
@given(plan=plans(*Mode), seed=seeds)
def test_in_the_end_each_record_was_processed_once_and_no_task_waits(plan: Plan, seed: int) -> None:
    job = ran(plan, seed)

    assert job.totals() == in_peace(plan)
    for task in job.tasks:
        assert task.ended
        assert not any(link.queue for link in task.links)
        assert task.barriers.is_at_rest
        assert not task.barriers.machine.pending_ids


@proving
@given(plan=plans(*Mode), seed=seeds)
def test_one_at_a_time_and_undisturbed_every_checkpoint_completes(plan: Plan, seed: int) -> None:
    plan = replace(plan, concurrent=1, aborts=0)

    job = ran(plan, seed)

    assert job.completed == [number + 1 for number in range(plan.checkpoints)]


@pytest.mark.parametrize("mode", Mode)
def test_the_simulation_covers_its_cases(mode: Mode) -> None:
    """Check that the simulation has cuts with records in flight, after ends, and next to failed ones."""
    plan = Plan((9, 9), ((0, 1, 1), (0, 2), (3, 2)), mode, 5, concurrent=2, aborts=1, timeout=8)
    seen = Counter[str]()

    for seed in range(40):
        job = Job(plan, Random(seed))
        job.run()
        seen["given up"] += len(job.given_up)
        for checkpoint in job.completed:
            cut = list(job.cut(checkpoint))
            parts = [task.parts[checkpoint] for task in job.tasks]
            seen["completed"] += 1
            seen["in flight"] += any(in_flight for _, _, in_flight in cut)
            seen["ahead of it"] += any(len(done) > len(sent) for sent, done, _ in cut)
            seen["both kinds"] += len({part.unaligned for part in parts}) == 2
            positions = [source.parts[checkpoint].position for source in job.sources]
            seen["in the middle"] += any(0 < position < 9 for position in positions)
            seen["behind the end"] += all(position == 9 for position in positions)

    unaligned = mode not in (Mode.AT_LEAST_ONCE, Mode.ALIGNED)
    assert min(seen[one] for one in ("completed", "given up", "in the middle")) >= 20, seen
    assert (seen["in flight"] >= 20) == unaligned, seen
    assert (seen["ahead of it"] > 0) == (mode is Mode.AT_LEAST_ONCE), seen
    assert (seen["both kinds"] > 0) == unaligned, seen
    assert seen["behind the end"] > 0, seen
