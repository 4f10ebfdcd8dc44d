"""The command line as a user writes it, in a folder with the user's pipelines."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from aflow.cli import main

#: ``write("orders", source)`` makes ``orders.py`` in the current directory.
Write: TypeAlias = Callable[[str, str], Path]

#: ``aflow("run", "orders:build")`` is that command line.
Aflow: TypeAlias = Callable[..., Result]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules of a user; remove them, and the current directory from the path, afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written: list[str] = []

    def write_module(name: str, source: str) -> Path:
        assert name in written or name not in sys.modules, f"there is another module {name}"
        written.append(name)
        path = tmp_path / f"{name}.py"
        path.write_text(dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        return path

    yield write_module

    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def aflow() -> Aflow:
    """Run a command line in this process."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, prog_name="aflow")

    return call
