"""Byte code of a new checkout: each process of pytest-xdist compiles its share of the modules before it collects.

Else each process compiles all modules at the same time as the others, which took 10 s of processor time in each.

A plugin that ``tests/conftest.py`` registers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from compileall import compile_file
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

_PROJECT: Final = Path(__file__).parents[1]
#: Folders with modules that tests import.
_FOLDERS: Final = ("aflow", "bench", "connectors", "examples", "tests")

#: The module of pytest that compiles tests: it shows the values in a failed assertion, and stores the code by itself.
_REWRITE: Final[Any] = import_module("_pytest.assertion.rewrite")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    process: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if process is None or sys.dont_write_bytecode:
        return
    number, count = int(process["workerid"].removeprefix("gw")), process["workercount"]
    for path in list(_modules())[number % count :: count]:
        store_byte_code(path, session.config)


def _modules() -> Iterator[Path]:
    for folder in _FOLDERS:
        yield from sorted((_PROJECT / folder).rglob("*.py"))


def store_byte_code(path: Path, config: pytest.Config) -> None:
    """Compile the module at ``path`` as its import would, unless its byte code is stored. The import reports errors."""
    if not _is_rewritten(path, config):
        compile_file(path, quiet=2)
        return
    folder = _REWRITE.get_cache_dir(path)
    stored = folder / (path.stem + _REWRITE.PYC_TAIL)
    # The import replaces byte code of an older source.
    if stored.exists() or not _REWRITE.try_makedirs(folder):
        return
    with suppress(SyntaxError, ValueError, OSError):
        source, code = _REWRITE._rewrite_test(path, config)
        _REWRITE._write_pyc(config.stash[_REWRITE.assertstate_key], code, source, stored)


def _is_rewritten(path: Path, config: pytest.Config) -> bool:
    """Return True if pytest compiles the module by itself."""
    return path.name == "conftest.py" or any(map(path.match, config.getini("python_files")))
