"""Fixtures of all tests: skips that continuous integration refuses, and a check of leftovers."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from tests import byte_code, costs, processes, reports, slow_tests, temporary_files, type_checks
from tests.conformance import report
from tests.forked import ForkServer, fork_server

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}


def pytest_addoption(parser: pytest.Parser) -> None:
    # Options are known before plugins are registered.
    parser.addoption("--type-checks", action="store_true", help="run `make types` meanwhile")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    # xdist asks before plugins are registered.
    return processes.number(config.option.numprocesses)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(temporary_files)
    config.pluginmanager.register(byte_code)
    config.pluginmanager.register(report)
    config.pluginmanager.register(processes)
    config.pluginmanager.register(reports)
    config.pluginmanager.register(slow_tests)
    config.pluginmanager.register(costs)
    config.pluginmanager.register(type_checks)


@pytest.fixture(scope="session")
def require() -> Callable[[str, str], None]:
    """``require("redis-server", "apt-get install redis-server")``: a program on the path or an importable module.

    Where it is missing the test is skipped, with the reason and the remedy. In CI (``CI=true``)
    it fails instead: a test that never runs tests nothing.
    """

    def check(name: str, remedy: str) -> None:
        if shutil.which(name) is not None or (name.isidentifier() and find_spec(name) is not None):
            return
        reason = f"{name} is neither a program nor a module on this machine: {remedy}"
        if IN_CI:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return check


@pytest.fixture(scope="session")
def forked() -> Iterator[ForkServer]:
    """Starts programs in processes that are forked from one that has imported aflow."""
    with fork_server() as server:
        yield server


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    """Fails a test that ends with more threads than it began with, after a moment for those about to end."""
    before = set(threading.enumerate())

    yield

    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60)
        assert not thread.is_alive(), f"the test left {thread!r} running"
