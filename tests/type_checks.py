"""Type checkers beside the tests: ``--type-checks`` runs ``make types`` while the tests run.

A plugin that ``tests/conftest.py`` registers. The output of the checkers is printed after all tests, before the closing
lines of pytest. A failure of the checkers fails the run.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

_PROJECT: Final = Path(__file__).parents[1]


class TypeChecks:
    """The checkers of one run."""

    def __init__(self) -> None:
        # Its own process group would survive Ctrl-C.
        self._make: subprocess.Popen[str] = subprocess.Popen(
            ["make", "--no-print-directory", "types"],
            cwd=_PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._output = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Wait for the checkers; pytest takes the exit status from the session."""
        self._output, _ = self._make.communicate()
        if self._make.returncode and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        failed = bool(self._make.returncode)
        terminalreporter.section("types failed" if failed else "types", red=failed)
        terminalreporter.write(self._output)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--type-checks", default=False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(TypeChecks())
