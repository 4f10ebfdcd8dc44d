"""The checks of the architecture find what they are for: each is tried on a source made up to break it."""

from __future__ import annotations

import pytest

from tests.architecture.rooms import ORDER, Module, bad_imports, imports

REFUSED = {
    "upward": ("aflow.machines.timer_queue", "from aflow.runtime.task import Task"),
    "upward by name of the room": ("aflow.model.batch", "from aflow import graph"),
    "upward for types only": (
        "aflow.operators.stateless",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aflow.api.flow import Flow",
    ),
    "upward inside a function": ("aflow.state.cells", "def f():\n    import aflow.graph.plan"),
    "upward and relative": ("aflow.graph.plan", "from ..runtime import task"),
    "upward from a package": ("aflow.graph", "from ..runtime import task"),
    "through the front door from below": ("aflow.runtime.job", "from aflow import Flow"),
    "through a group of the front door from below": (
        "aflow.runtime.job",
        "from aflow.checkpoints import Aligned",
    ),
    "machines from connect": ("aflow.connect", "from aflow.machines.timer_queue import Timers"),
    "the command line from the test kit": ("aflow.testing.driver", "import aflow.cli.main"),
    "a clock in a machine": ("aflow.machines.timer_queue", "import time"),
    "a loop in a machine": ("aflow.machines.timer_queue", "from asyncio import Future"),
    "chance in a machine": ("aflow.machines.retry", "import random"),
    "files in a machine": ("aflow.machines.retry", "import os.path"),
    "a third-party package in a machine": ("aflow.machines.retry", "import anyio"),
    "a terminal library in the runtime": ("aflow.runtime.job", "from rich.live import Live"),
    "a client in the core": ("aflow.api.flow", "import pyarrow"),
    "a connector in the core": ("aflow.api.flow", "import aflow_connectors.files"),
    "the runtime in a connector": ("aflow_connectors.files.x", "from aflow.runtime.job import Job"),
    "the front door in a connector": ("aflow_connectors.files.x", "import aflow"),
    "a new room without a place": ("aflow.helpers.misc", "import math"),
    "a room that does not exist": ("aflow.cli.main", "import aflow.helpers"),
}

ACCEPTED = {
    "downward": ("aflow.runtime.task", "from aflow.machines.timer_queue import Timers"),
    "its own room": ("aflow.machines.timer_queue", "from aflow.machines.order import Order"),
    "its own room, relative": ("aflow.machines.timer_queue", "from .order import Order"),
    "the standard library": (
        "aflow.machines.timer_queue",
        "import heapq\nfrom datetime import datetime",
    ),
    "a room by name from above": ("aflow.api.flow", "from aflow import errors"),
    "a group of the front door from the test kit": (
        "aflow.testing.driver",
        "from aflow.checkpoints import Aligned",
    ),
    "the front door from the command line": ("aflow.cli.main", "import aflow as af"),
    "a connector in the command line": ("aflow.cli.run", "import aflow_connectors.files"),
    "a client in a connector": ("aflow_connectors.files.parquet", "import pyarrow"),
    "what connectors are for": ("aflow_connectors.files.x", "from aflow.connect import Source"),
}


@pytest.mark.parametrize(("name", "source"), REFUSED.values(), ids=REFUSED)
def test_an_import_is_refused(name: str, source: str) -> None:
    found = bad_imports(Module(name, source, is_package=name.count(".") == 1))

    assert len(found) == 1


@pytest.mark.parametrize(("name", "source"), ACCEPTED.values(), ids=ACCEPTED)
def test_an_import_is_accepted(name: str, source: str) -> None:
    assert bad_imports(Module(name, source)) == []


@pytest.mark.parametrize("above", range(1, len(ORDER)))
def test_each_room_refuses_the_room_above(above: int) -> None:
    room = f"aflow.{ORDER[above - 1]}.x".replace("aflow.aflow.x", "aflow")
    target = f"aflow.{ORDER[above]}".replace("aflow.aflow", "aflow")

    found = bad_imports(Module(room, f"import {target}"))

    assert found == [
        f"{room}:1: imports {target}: imports point down, "
        f"and {ORDER[above]} is above {ORDER[above - 1]}"
    ]


def test_relative_imports_count_from_the_module_or_from_the_package() -> None:
    in_module = Module("aflow.model.batch", "from .time import Clock\nfrom . import keys")
    in_package = Module("aflow.model", "from .time import Clock\nfrom .. import errors", True)

    assert [name for _, name in imports(in_module)] == ["aflow.model.time", "aflow.model"]
    assert [name for _, name in imports(in_package)] == ["aflow.model.time", "aflow.errors"]
