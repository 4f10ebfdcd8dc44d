"""Content of the wheel."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tests.architecture.rooms import PROJECT, imports, modules_below


def project() -> dict[str, Any]:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def test_each_package_of_the_wheel_contains_py_typed() -> None:
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert "connectors/aflow_connectors" in packages
    assert [name for name in packages if not (PROJECT / name / "py.typed").is_file()] == []


@pytest.mark.slow
def test_each_package_that_is_installed_along_is_imported() -> None:
    needed = [re.match(r"[\w-]+", entry) for entry in project()["project"]["dependencies"]]

    modules = [
        *modules_below(PROJECT / "aflow", PROJECT),
        *modules_below(PROJECT / "connectors", PROJECT),
    ]
    imported = {name.partition(".")[0] for module in modules for _, name in imports(module)}

    assert needed
    assert [name[0] for name in needed if name and name[0] not in imported] == []
