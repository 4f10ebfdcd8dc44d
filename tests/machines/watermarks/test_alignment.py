"""Sources that wait for each other. Flink's facts are in tests/conformance."""

from __future__ import annotations

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.watermarks.alignment import SourceAlignment
from aflow.model.time import MAX_TIMESTAMP


def test_a_source_beyond_what_is_allowed_waits_until_that_is_raised() -> None:
    alignment = SourceAlignment(10, now=0)
    assert alignment.may_read

    alignment.on_max_allowed(100)
    alignment.on_watermark(100)
    assert alignment.may_read

    alignment.on_watermark(101)
    assert not alignment.may_read

    alignment.on_max_allowed(101)
    assert alignment.may_read


def test_the_watermark_is_reported_once_an_interval() -> None:
    alignment = SourceAlignment(10, now=1_000)
    alignment.on_watermark(5)

    assert [alignment.report(now) for now in (1_009, 1_010, 1_019, 1_020)] == [None, 5, None, 5]


def test_an_interval_begins_with_the_report_before_it() -> None:
    alignment = SourceAlignment(10, now=0)
    alignment.on_watermark(5)
    alignment.report(57)

    assert alignment.due == 67


def test_a_source_without_a_watermark_reports_nothing() -> None:
    assert SourceAlignment(10, now=0).report(10) is None


def test_an_idle_source_keeps_nobody_waiting() -> None:
    alignment = SourceAlignment(10, now=0)
    alignment.on_watermark(5)
    alignment.on_idle()
    assert alignment.report(10) == MAX_TIMESTAMP

    alignment.on_active()
    assert alignment.report(20) == 5


def test_an_interval_that_is_not_above_zero_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="not 0 ms"):
        SourceAlignment(0, now=0)
