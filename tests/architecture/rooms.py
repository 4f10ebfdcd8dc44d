"""The rooms of the project, and what each may import. A new room finds its place here.

Checkers take sources and return violations, so that they can be tried on sources made up to break them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]

#: Bottom first. A room imports itself and those before it. "aflow" is the front door, ``aflow/__init__.py``.
ORDER: Final = (
    "errors",
    "model",
    "connect",
    "machines",
    "state",
    "operators",
    "graph",
    "runtime",
    "backfill",
    "api",
    "aflow",
    "web",
    "telemetry",
    "testing",
    "bench",
    "cli",
)

#: Modules that belong to the front door: groups of names that are needed less often than those of ``aflow`` itself.
FRONT_DOOR: Final = frozenset(
    {
        "aggregates",
        "backends",
        "calls",
        "checkpoints",
        "evictors",
        "metrics",
        "restart",
        "streams",
        "triggers",
        "watermarks",
        "windows",
    }
)

#: Rooms of ``aflow`` that a connector may use: what a connector of somebody else's may use too.
FOR_CONNECTORS: Final = frozenset({"errors", "model", "connect"})

#: Rooms that one connector may use besides, since it runs more than the ends of a flow.
FOR_ONE: Final = {"s3": frozenset({"aflow"}), "spark": frozenset({"backfill"})}

#: Third-party packages of the core, and the rooms that may import them. Others belong into a connector.
THIRD_PARTY: Final = {
    "aiofiles": frozenset({"runtime"}),
    "aiohttp": frozenset({"web", "bench"}),
    "anyio": frozenset({"runtime", "api", "testing", "cli"}),
    "click": frozenset({"cli"}),
    "datasketches": frozenset({"state"}),
    "hdrh": frozenset({"bench"}),
    "msgspec": frozenset(
        {"model", "machines", "state", "operators", "runtime", "backfill", "web", "bench", "cli"}
    ),
    "opentelemetry": frozenset({"telemetry"}),
    "orjson": frozenset({"model", "web", "bench", "cli"}),
    "prometheus_client": frozenset({"web"}),
    "rocksdict": frozenset({"state"}),
    "rich": frozenset({"cli"}),
    "starlette": frozenset({"web"}),
    "uvicorn": frozenset({"web"}),
    "uvloop": frozenset({"runtime", "testing", "cli"}),
}

#: Modules that make a machine depend on more than its arguments.
IMPURE: Final = {
    *("asyncio", "concurrent", "threading", "multiprocessing", "subprocess"),
    *("os", "select", "selectors", "signal", "socket"),
    *("logging", "random", "secrets", "time"),
}


@dataclass(frozen=True)
class Module:
    """A source and its dotted name; made up in the tests of the checkers, read from disk in those of the project."""

    name: str
    source: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        return parsed(self.source)

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree, which each check looks at."""
        return tuple(ast.walk(self.tree))

    @property
    def room(self) -> str:
        return room_of(self.name)

    @property
    def system(self) -> str:
        """``spark`` for ``aflow_connectors.spark.dataframe.source``."""
        return self.name.split(".")[1] if self.name.count(".") else ""


@cache
def parsed(source: str) -> ast.Module:
    """Parse a source once for all checks."""
    return ast.parse(source)


def room_of(module: str) -> str:
    """Return ``machines`` for ``aflow.machines.timer_queue``, ``aflow`` for ``aflow``, else the package."""
    package, _, rest = module.partition(".")
    if package != "aflow" or not rest:
        return package
    room = rest.partition(".")[0]
    if room in FRONT_DOOR:
        return "aflow"
    return "cli" if room == "__main__" else room


def modules_below(folder: Path, root: Path) -> list[Module]:
    """All modules below ``folder``, named from ``root``."""
    found: list[Module] = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        found.append(Module(name, path.read_text(encoding="utf-8"), package))
    return found


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and full name of all that a module imports, wherever: in functions and under TYPE_CHECKING too."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            # `from aflow import errors` imports a room, `from aflow import Flow` comes through the front door.
            if base == "aflow":
                for alias in node.names:
                    room = alias.name in ORDER and alias.name != "aflow"
                    yield node.lineno, f"aflow.{alias.name}" if room else "aflow"
            else:
                yield node.lineno, base


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    drop = node.level - 1 if module.is_package else node.level
    parts = module.name.split(".")
    base = parts[: len(parts) - drop]
    return ".".join([*base, node.module] if node.module else base)


def bad_imports(module: Module) -> list[str]:
    """All imports of ``module`` that its room may not have."""
    reasons = [
        (line, name, _refusal(module.room, name, module.system)) for line, name in imports(module)
    ]
    return [
        f"{module.name}:{line}: imports {name}: {reason}"
        for line, name, reason in reasons
        if reason
    ]


def _refusal(room: str, name: str, system: str) -> str | None:
    target = room_of(name)
    package = name.partition(".")[0]
    if room == "aflow_connectors":
        return _refusal_to_connector(package, target, system)
    if room not in ORDER:
        return f"aflow.{room} is no room; give it a place in tests/architecture/rooms.py"
    if package == "aflow":
        return _refusal_by_order(room, target)
    if room == "machines" and package in IMPURE:
        return "a machine gets time, chance and events as arguments"
    if package in sys.stdlib_module_names:
        return None
    if package == "aflow_connectors":
        return None if room == "cli" else "the core knows no connector; only the command line does"
    if package in THIRD_PARTY:
        allowed = THIRD_PARTY[package]
        return None if room in allowed else f"{package} is for {', '.join(sorted(allowed))}"
    return "third-party clients belong into a connector"


def _refusal_to_connector(package: str, target: str, system: str) -> str | None:
    if package == "aflow" and target not in FOR_CONNECTORS | FOR_ONE.get(system, frozenset()):
        return "a connector uses aflow.connect, aflow.errors and aflow.model only"
    return None


def _refusal_by_order(room: str, target: str) -> str | None:
    if target not in ORDER:
        return f"aflow.{target} is no room; give it a place in tests/architecture/rooms.py"
    if ORDER.index(target) <= ORDER.index(room):
        return None
    return f"imports point down, and {target} is above {room}"
