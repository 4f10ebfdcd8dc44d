"""Rules for the code of each room: waiting, tasks, loops, printing, size."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from tests.architecture.rooms import Module

FILE_LINES: Final = 500
FUNCTION_LINES: Final = 60

#: Rooms where nothing ever waits. Every `await` of the engine is in the runtime; above it are its users.
SYNCHRONOUS: Final = frozenset({"errors", "model", "machines", "state", "operators", "graph"})

#: Modules that may make one task that no group owns, and who waits for it instead.
TASK_OWNERS: Final = {
    "aflow.runtime.job": "the job's own task, which holds the TaskGroup; leaving the job's `async with` waits for it",
    "aflow.runtime.calls.slots": "calls that may ignore their cancellation, for which a group would wait for ever",
    "aflow.runtime.cancellation": "the reading of a split, whose close a group would cancel; its creator waits for it",
    "aflow_connectors.mqtt.client": "the thread in which a client connects, for which the connection waits a moment",
    "aflow.web.commands": "the cancellation of a job after the deadline of a stop; it ends with the job",
    "aflow.runtime.calls.resources": "the keeper of a resource, whose close may hang; the attempt waits for a time",
}

#: Rooms that own the process they run in. All others are guests on somebody else's loop.
OWN_THE_PROCESS: Final = frozenset({"cli", "testing"})

#: The clocks of the standard library, as the last two parts of their names.
CLOCKS: Final = frozenset(
    {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
    | {f"time.{name}" for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")}
)

Found = Iterator[tuple[int, str]]


def violations(module: Module) -> list[str]:
    """Return the violations of ``module``, as ``name:line: description``."""
    checks: tuple[Callable[[Module], Found], ...] = (
        waits,
        clock_reads,
        loop_bound_at_import,
        tasks_beyond_the_allowed,
        takes_over_the_process,
        prints,
        sizes,
    )
    return [f"{module.name}:{line}: {what}" for check in checks for line, what in check(module)]


def waits(module: Module) -> Found:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    for node in module.nodes:
        if module.room in SYNCHRONOUS and isinstance(node, waiting):
            yield node.lineno, f"{module.room} is synchronous; what waits belongs into the runtime"
        elif module.room == "connect" and isinstance(node, waiting[1:]):
            yield (
                node.lineno,
                "connect.py describes what connectors do and waits for nothing itself",
            )


def clock_reads(module: Module) -> Found:
    if module.room not in SYNCHRONOUS:
        return
    for call in _calls(module):
        if ".".join(_dotted(call.func).split(".")[-2:]) in CLOCKS:
            yield call.lineno, f"{module.room} reads no clock; time comes in as an argument"


def loop_bound_at_import(module: Module) -> Found:
    for node in _run_at_import(module.tree):
        name = _dotted(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name.startswith(("asyncio.", "anyio.", "uvloop.")):
            yield node.lineno, f"{name}() at import binds to a loop that is not there"


def tasks_beyond_the_allowed(module: Module) -> Found:
    return islice(unowned_tasks(module), 1 if module.name in TASK_OWNERS else 0, None)


def unowned_tasks(module: Module) -> Found:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            if {alias.name for alias in node.names} & {"create_task", "ensure_future"}:
                yield node.lineno, "a task belongs to a TaskGroup"
        elif isinstance(node, ast.Attribute) and node.attr == "ensure_future":
            yield node.lineno, "ensure_future makes a task that no TaskGroup owns"
        elif isinstance(node, ast.Attribute) and node.attr == "create_task":
            owner = _dotted(node.value).rpartition(".")[2]
            # The name has to say it, for the reader as for this test.
            if not (owner.endswith("group") or owner == "tg"):
                yield (
                    node.lineno,
                    f"create_task of {owner or 'an expression'}: a task belongs to a TaskGroup",
                )


def takes_over_the_process(module: Module) -> Found:
    if module.room in OWN_THE_PROCESS:
        return
    taking = {
        "asyncio.run",
        "asyncio.set_event_loop",
        "asyncio.set_event_loop_policy",
        "signal.signal",
        "uvloop.install",
        "uvloop.run",
    }
    for call in _calls(module):
        name = _dotted(call.func)
        if name in taking or name.endswith(".add_signal_handler"):
            yield (
                call.lineno,
                f"{name}() is for {' and '.join(sorted(OWN_THE_PROCESS))}: a job is a guest",
            )


def prints(module: Module) -> Found:
    if module.room == "cli":
        return
    for call in _calls(module):
        if _dotted(call.func) == "print":
            yield call.lineno, "only the command line prints"


def sizes(module: Module) -> Found:
    lines = len(module.source.splitlines())
    if lines > FILE_LINES:
        yield lines, f"{lines} lines; a file has at most {FILE_LINES}: split it by idea"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {length} lines, {FUNCTION_LINES} are allowed"


def _calls(module: Module) -> Iterator[ast.Call]:
    return (node for node in module.nodes if isinstance(node, ast.Call))


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when a module is imported: all but the bodies of functions."""
    yield node
    later: list[ast.AST] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        later = [*node.body]
    elif isinstance(node, ast.Lambda):
        later = [node.body]
    for child in ast.iter_child_nodes(node):
        if child not in later:
            yield from _run_at_import(child)


def _dotted(node: ast.AST) -> str:
    """``asyncio.run`` for that expression; what is not a name counts as nothing: ``f().run`` is ``.run``."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
