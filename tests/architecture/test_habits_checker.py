"""The checks of habits find what they are for: each is tried on a source made up to break it."""

from __future__ import annotations

import pytest

from tests.architecture.habits import FILE_LINES, FUNCTION_LINES, violations
from tests.architecture.rooms import Module

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * FUNCTION_LINES
LONG_FILE = "x = 1\n" * (FILE_LINES + 1)

REFUSED = {
    "a coroutine in a machine": ("aflow.machines.timer_queue", "async def f(): ..."),
    "a coroutine in an operator": (
        "aflow.operators.stateless",
        "class A:\n    async def f(self): ...",
    ),
    "an await in the state": ("aflow.state.cells", "f = (x async for x in y)\nawait f"),
    "an await in connect": ("aflow.connect", "async def f(x):\n    await x"),
    "the time of day in a machine": (
        "aflow.machines.x",
        "import datetime\nx = datetime.datetime.now()",
    ),
    "today in the model": ("aflow.model.x", "from datetime import date\nx = date.today()"),
    "a clock in an operator": ("aflow.operators.x", "import time\nx = time.monotonic()"),
    "a queue at import": ("aflow.runtime.x", "import asyncio\nqueue = asyncio.Queue()"),
    "a lock in a class": ("aflow.runtime.x", "class A:\n    lock = asyncio.Lock()"),
    "an event as a default": ("aflow.runtime.x", "def f(x=asyncio.Event()): ..."),
    "a loop at import, if": ("aflow.runtime.x", "if 1:\n    loop = asyncio.new_event_loop()"),
    "a task of the module": ("aflow.runtime.x", "def f():\n    asyncio.create_task(g())"),
    "a task of the loop": ("aflow.runtime.x", "def f(loop):\n    loop.create_task(g())"),
    "a task of who knows": ("aflow.runtime.x", "def f():\n    get().create_task(g())"),
    "a task under another name": ("aflow.runtime.x", "from asyncio import create_task as go"),
    "a task by ensure_future": ("aflow.runtime.x", "def f():\n    asyncio.ensure_future(g())"),
    "a second task of the job": (
        "aflow.runtime.job",
        "def f():\n    asyncio.create_task(g())\n    asyncio.create_task(g())",
    ),
    "a loop of its own": ("aflow.api.flow", "def f():\n    asyncio.run(g())"),
    "a signal handler": ("aflow.runtime.x", "def f(loop):\n    loop.add_signal_handler(2, g)"),
    "a print": ("aflow.runtime.x", "def f():\n    print(1)"),
    "a print in a connector": ("aflow_connectors.files.x", "print(1)"),
    "a long function": ("aflow.api.x", LONG_FUNCTION),
    "a long file": ("aflow_connectors.files.x", LONG_FILE),
}

ACCEPTED = {
    "a coroutine in the runtime": ("aflow.runtime.x", "async def f():\n    await g()"),
    "a coroutine described in connect": ("aflow.connect", "class A:\n    async def f(self): ..."),
    "a queue when called": ("aflow.runtime.x", "def f():\n    return asyncio.Queue()"),
    "a queue in a lambda": ("aflow.runtime.x", "new = lambda: asyncio.Queue()"),
    "a type at import": ("aflow.runtime.x", "import asyncio\nLoop = asyncio.AbstractEventLoop"),
    "the task of the job": ("aflow.runtime.job", "def f():\n    asyncio.create_task(g())"),
    "a task of a group": ("aflow.runtime.x", "def f(self):\n    self._group.create_task(g())"),
    "a task of a task group": ("aflow.runtime.x", "def f(tg):\n    tg.create_task(g())"),
    "a loop in the command line": (
        "aflow.cli.main",
        "def f():\n    asyncio.run(g())\n    print(1)",
    ),
    "a moment made of numbers": ("aflow.model.x", "x = datetime.fromtimestamp(0, UTC)"),
    "a clock in the runtime": ("aflow.runtime.clock", "def f():\n    return time.time()"),
    "a function just short enough": ("aflow.api.x", LONG_FUNCTION.removesuffix("    x = 1\n")),
    "a file just short enough": ("aflow.api.x", LONG_FILE.removesuffix("x = 1\n")),
}


@pytest.mark.parametrize(("name", "source"), REFUSED.values(), ids=REFUSED)
def test_a_habit_is_refused(name: str, source: str) -> None:
    assert violations(Module(name, source))


@pytest.mark.parametrize(("name", "source"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_habit_is_accepted(name: str, source: str) -> None:
    assert violations(Module(name, source)) == []


def test_a_violation_names_the_module_the_line_and_the_rule() -> None:
    found = violations(Module("aflow.runtime.x", "\n\ndef f():\n    print(1)"))

    assert found == ["aflow.runtime.x:4: only the command line prints"]
