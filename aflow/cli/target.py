"""``package.module:name`` on the command line, and what it stands for in the user's code."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import ModuleType

from aflow.api.flow import Flow
from aflow.cli.usage import UsageProblem


@dataclass(frozen=True, slots=True)
class Target:
    """Where a flow is: a module, and in it a ``Flow`` or a function that builds one.

    A dotted name reaches into classes.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def parse_target(text: str) -> Target:
    """Raises ``UsageProblem`` for what is no ``package.module:name``, saying how to write it."""
    module, colon, name = text.partition(":")
    if "/" in module or module.endswith(".py"):
        parts = [part for part in Path(module.removesuffix(".py")).parts if part not in ("/", ".")]
        raise UsageProblem(
            f"{text!r} is a file; name the module instead, seen from the current directory: "
            f"{'.'.join(parts)}:{name or 'build'}"
        )
    if colon and module and name and all(part.isidentifier() for part in name.split(".")):
        return Target(module, name)
    if module and not name:
        names = _candidates(_imported(module))
        known = f" (in {module}: {', '.join(names)})" if names else ""
        raise UsageProblem(f"{text!r} does not say which flow to take; write {module}:name{known}")
    raise UsageProblem(f"{text!r} is no place of a flow; write package.module:build")


def find(target: Target) -> Flow | Callable[..., object]:
    """Import the module, the current directory included, and look up the name.

    Raises ``UsageProblem`` if there is no such module or name, or something else is there. What the module itself
    raises while it is imported comes through as it is.
    """
    module = _imported(target.module)
    try:
        found: object = attrgetter(target.name)(module)
    except AttributeError:
        raise UsageProblem(_no_such_name(target, module)) from None
    if isinstance(found, Flow) or callable(found):
        return found
    raise UsageProblem(
        f"{target} is of type {type(found).__name__}, neither a Flow nor a function that returns one"
    )


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        missing = exc.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise
        raise UsageProblem(
            f"there is no module {missing!r}, neither in the current directory ({here}) nor installed for "
            f"{sys.executable}; write package.module:name as an import there would"
        ) from None


def _no_such_name(target: Target, module: ModuleType) -> str:
    names = _candidates(module)
    close = get_close_matches(target.name, names, n=1)
    meant = f"; did you mean {target.module}:{close[0]}?" if close else ""
    known = f", it has {', '.join(names)}" if names else ", nor any Flow or function of its own"
    return f"module {target.module!r} has no {target.name!r}{known}{meant}"


def _candidates(module: ModuleType) -> list[str]:
    """Public names that may build a flow: flows, and functions that the module itself defines; likely ones first."""
    found = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Flow)
            or (inspect.isfunction(value) and value.__module__ == module.__name__)
        )
    }
    return sorted(found, key=lambda name: (not _says_flow(found[name]), name))


def _says_flow(value: object) -> bool:
    return isinstance(value, Flow) or "Flow" in str(
        getattr(value, "__annotations__", {}).get("return")
    )
