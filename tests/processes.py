"""Distribution of the tests to the processes of pytest-xdist: a file in one process, and long files first.

A plugin that ``tests/conftest.py`` registers. It replaces ``--dist loadgroup`` of xdist, which finds groups in node ids
that pytest 9.2 keeps it from changing: https://github.com/pytest-dev/pytest-xdist/issues/1386. It ran each test as a
group of its own, so two processes started Spark and the module fixtures of the same file.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, Final

import pytest

#: Tests in this folder share a session of Spark. No other group takes longer.
SPARK: Final = "tests/spark"

#: Folders whose tests share expensive fixtures: the session of Spark, the servers of connectors, and the flights of a
#: year with their results.
SHARED: Final = (
    SPARK,
    "tests/connectors/kafka",
    "tests/connectors/mqtt",
    "tests/connectors/nats",
    "tests/connectors/postgres",
    "tests/connectors/rabbitmq",
    "tests/connectors/redis",
    "tests/connectors/s3",
    "tests/examples/flights",
)

#: Number of fast tests that take as long as a slow one, roughly.
SLOW_WEIGHT: Final = 30

#: Number of other fast tests that take as long as a property, roughly.
PROPERTY_WEIGHT: Final = 8

#: Weights of all tests of folders with few and long ones, which kill programs or build the wheel: they begin early.
#: Those of types begin late, when the type checkers beside the tests have filled the cache of mypy.
LONG: Final = {
    "tests/bench": 100,
    "tests/crash": 100,
    "tests/docs": 100,
    "tests/fuzz": 1000,
    "tests/packaging": 300,
    "tests/typing": 5,
}


#: Maximum number of processes: those of Spark share a session and run in one process, so more would wait for it.
MOST: Final = 4


def group_of(nodeid: str) -> str:
    """Return the group of a test: its file, or its folder in ``SHARED``. Its tests run in one process, in order."""
    return _group_of_file(nodeid.partition("::")[0])


@cache
def _group_of_file(file: str) -> str:
    # Each process asks for each test twice or more.
    folders = PurePosixPath(file).parents
    return next((folder for folder in SHARED if PurePosixPath(folder) in folders), file)


def longest_group_first(items: list[pytest.Item]) -> None:
    """Sort the groups by their estimated duration, so that no process runs a long group while the others are done.

    The order of the tests in a group is kept.
    """
    weights = Counter[str]()
    for item in items:
        weights[group_of(item.nodeid)] += _weight(item)

    def rank(item: pytest.Item) -> tuple[bool, int, str]:
        group = group_of(item.nodeid)
        return group != SPARK, -weights[group], group

    items.sort(key=rank)


def _weight(item: pytest.Item) -> int:
    folder = "/".join(item.nodeid.split("/", 2)[:2])
    if folder in LONG:
        return LONG[folder]
    if item.get_closest_marker("slow") is not None:
        return SLOW_WEIGHT
    # Hypothesis sets its mark later.
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return PROPERTY_WEIGHT if is_property else 1


def number(option: str) -> int:
    """Return the number of processes for ``-n auto`` and ``-n logical``.

    For ``auto`` it is one more than there are processors, since tests of Spark and of servers mostly wait. For
    ``logical`` it is that of the processors: each further process collects all tests again.
    """
    processors: int | None = getattr(os, "process_cpu_count", os.cpu_count)()  # new in 3.13
    return min(MOST, (processors or 1) + (option == "auto"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # in a process of xdist
        longest_group_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    # xdist has no types.
    scheduler: Any = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    # Else xdist sorts the groups by their number of tests.
    config.option.loadscopereorder = False
    return scheduler
