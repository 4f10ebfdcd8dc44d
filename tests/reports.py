"""Reports of the tests in processes of pytest-xdist: one message for each test that passes, in place of five.

A plugin that ``tests/conftest.py`` registers. xdist sends the begin and the end of each test, and a report of each
step: setup, call and teardown. The process that prints needs only that of the call if the test passes, unless times
of the other steps are asked for.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


class FewReports:
    """Runs tests as pytest does. Reports the call of a test that passes, and all steps of another one."""

    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        passed = all(report.passed for report in reports)
        for report in reports:
            if report.when == "call" or not passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") and _suffices(config):
        config.pluginmanager.register(FewReports())


def _suffices(config: pytest.Config) -> bool:
    """Return False if the command line asks for times of setups, for a file of all reports, or for progress."""
    option = config.option
    return option.durations is None and option.xmlpath is None and option.verbose <= 0
