"""The distribution has one name in `pyproject.toml`, messages and documents.

On PyPI the name `aflow` belongs to an unrelated project, which a command with this name would install.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import aflow
from aflow.model.distribution import NAME, VERSION, install_command, with_extras
from aflow_connectors.spark.environment import VERSIONS

PROJECT: Final = Path(__file__).parents[2]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
EXTRAS: Final[dict[str, list[str]]] = PYPROJECT["project"]["optional-dependencies"]

#: Files that users, executors and developers read.
FOLDERS: Final = ("aflow", "connectors", "docs", "examples", "newsfragments", "scripts", "tests")
FILES: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
SUFFIXES: Final = {".py", ".md", ".toml", ".txt", ""}

#: `aflow[spark]`, also as a regular expression quotes it; `aflow` as an argument of pip.
WRONG: Final = (
    re.compile(r"(?<![\w-])aflow\\?\[[a-z]+(,[a-z]+)*\\?\]"),
    re.compile(r"""pip install [^\n`"']*["']?(?<![\w./-])aflow(?![\w/-])"""),
)
REQUIREMENT: Final = re.compile(rf"{NAME}\\?\[([a-z,]+)\\?\]")


def texts() -> Iterator[tuple[Path, str]]:
    below = [path for folder in FOLDERS for path in sorted((PROJECT / folder).rglob("*"))]
    for path in [*below, *(PROJECT / name for name in FILES)]:
        wanted = path.suffix in SUFFIXES and "__pycache__" not in path.parts
        if path.is_file() and wanted and path != Path(__file__):
            yield path, path.read_text(encoding="utf-8")


def test_the_project_file_and_the_code_have_one_name_and_version() -> None:
    assert PYPROJECT["project"]["name"] == NAME
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT / PYPROJECT["tool"]["hatch"]["version"]["path"] == (
        PROJECT / "aflow" / "model" / "distribution.py"
    )
    assert aflow.__version__ == VERSION


def test_no_text_recommends_the_unrelated_package() -> None:
    found_in = [
        f"{path.relative_to(PROJECT)}: {found[0]}"
        for path, text in texts()
        for wrong in WRONG
        for found in wrong.finditer(text)
    ]

    assert found_in == []


@pytest.mark.parametrize(
    "line",
    ['pip install "aflow[spark]"', r"aflow\[zstd\]", "pip install aflow", "pip install 'aflow>=1'"],
)
def test_a_line_that_names_the_unrelated_package_is_found(line: str) -> None:
    assert any(wrong.search(line) for wrong in WRONG)


@pytest.mark.parametrize(
    "line",
    [install_command("spark"), "pip install /src/aflow", "batch aflow[0]", f"pip install {NAME}"],
)
def test_a_line_that_names_something_else_is_not(line: str) -> None:
    assert not any(wrong.search(line) for wrong in WRONG)


def test_each_extra_that_is_recommended_exists() -> None:
    named = {
        (extra, str(path.relative_to(PROJECT)))
        for path, text in texts()
        for found in REQUIREMENT.finditer(text)
        for extra in found[1].split(",")
    }

    assert named
    assert {(extra, path) for extra, path in named if extra not in EXTRAS} == set()


def test_an_extra_that_is_made_of_others_names_this_distribution() -> None:
    assert EXTRAS["files"] == [with_extras("parquet", "zstd")]


def test_the_connector_of_spark_checks_the_versions_of_its_extra() -> None:
    dotted = {
        name: tuple(None if end is None else ".".join(map(str, end)) for end in ends)
        for name, ends in VERSIONS.items()
    }
    asked = {
        re.split(r"[\[<>=]", requirement)[0]: (
            re.search(r">=([\d.]+)", requirement),
            re.search(r"<([\d.]+)", requirement),
        )
        for requirement in EXTRAS["spark"]
    }

    assert dotted == {
        name: tuple(found and found[1] for found in ends) for name, ends in asked.items()
    }
