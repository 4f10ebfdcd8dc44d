"""The mark ``slow``: set for tests that start Spark, and missed where a test takes more than a second.

A plugin that ``tests/conftest.py`` registers. It measures the processor time of a test and of the processes that it
started and awaited, since the elapsed time depends on other programs of the machine. It prints the tests that lack the
mark, and fails none: a limit on time would fail tests at random.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Final

import pytest

#: Processor time in seconds from which a test needs the mark.
LIMIT: Final = 1.0

#: Fixtures that start a JVM, whose processor time is not measured, or a process that starts one.
SPARK_FIXTURES: Final = frozenset({"spark", "in_another_process"})

#: Property of a report: the processor time in seconds of a test without the mark that exceeds ``LIMIT``.
UNMARKED: Final = "processor seconds without the mark slow"


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if not SPARK_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    begin = _processor_seconds()
    try:
        return (yield)
    finally:
        seconds = _processor_seconds() - begin
        if seconds > LIMIT and item.get_closest_marker("slow") is None:
            item.user_properties.append((UNMARKED, seconds))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for some in terminalreporter.stats.values() for report in some]
    found = [
        (value, report.nodeid)
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == UNMARKED and isinstance(value, float)
    ]
    if not found:
        return
    terminalreporter.section("tests of more than a second that lack the mark slow")
    for seconds, nodeid in sorted(found, reverse=True):
        terminalreporter.line(f"{seconds:.1f} s {nodeid}")


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
