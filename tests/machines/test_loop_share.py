"""The share of time that a job may work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.loop_share import WINDOW, LoopShare


def test_a_job_that_has_not_worked_may_work() -> None:
    assert LoopShare(0.5, 10.0).rest(10.0) == 0


def test_a_job_rests_until_the_work_is_the_share_of_the_time() -> None:
    share = LoopShare(0.25, 0.0)

    share.worked(0.25 * WINDOW, 1.0)
    share.worked(0.04, 1.04)

    assert share.rest(1.04) == pytest.approx(0.12 - 0.25 * WINDOW)
    assert share.rest(1.15) == pytest.approx(0.01 - 0.25 * WINDOW)
    assert share.rest(1.1601) == 0


def test_no_more_is_kept_than_one_window_earns() -> None:
    share = LoopShare(0.5, 0.0)

    share.worked(0.03, 100.0)

    assert share.rest(100.0) == pytest.approx(0.01)


@given(
    st.floats(0.01, 1),
    st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 0.1)), min_size=1),
)
def test_the_job_never_works_more_than_its_share_and_one_piece(
    part: float, pieces: list[tuple[float, float]]
) -> None:
    """Each piece is work, and idle time after it; the job rests before it when it has to."""
    share, now, spans = LoopShare(part, 0.0), 0.0, list[tuple[float, float]]()
    for work, idle in pieces:
        now += share.rest(now)
        spans.append((now, now + work))
        now += work
        share.worked(work, now)
        now += idle

    for first, (begin, _) in enumerate(spans):
        done = 0.0
        for start, end in spans[first:]:
            # What began within the time since then, without the last piece.
            assert done <= part * (start - begin + WINDOW) + 1e-6
            done += end - start


@given(st.floats(0.01, 1), st.lists(st.floats(0.0001, 0.1), min_size=1))
def test_a_busy_job_gets_all_of_its_share(part: float, pieces: list[float]) -> None:
    share, now = LoopShare(part, 0.0), 0.0
    for work in pieces:
        now += share.rest(now) + work
        share.worked(work, now)

    assert now <= sum(pieces) / part + 1e-6
