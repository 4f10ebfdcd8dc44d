"""Type checkers find mistakes: each wrong line of ``negative/`` names the violated rule.

A wrong line ends in ``# error: mypy[attr-defined] pyright[reportAttributeAccessIssue]``. Both
checkers must report these lines under these rules, and nothing else. What merely follows from an
error on the same line (a value of unknown type) needs no mention.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

import pytest

PROJECT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "negative"
FILES = sorted(FOLDER.glob("*.py"))
MARKER = re.compile(r"# error:((?: (?:mypy|pyright)\[[\w, -]+\])+)$")
RULES = re.compile(r"(mypy|pyright)\[([\w, -]+)\]")

#: Rules by "file:line".
Reported: TypeAlias = dict[str, set[str]]


def expected(checker: str, files: list[Path]) -> Reported:
    found: Reported = {}
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            marker = MARKER.search(line)
            rules = dict(RULES.findall(marker[1])) if marker else {}
            if checker in rules:
                found[f"{path.name}:{number}"] = {
                    rule.strip() for rule in rules[checker].split(",")
                }
    return found


def by_mypy(files: list[Path]) -> Reported:
    output = _output("mypy", "--output=json", *map(str, files))
    reports = [json.loads(line) for line in output.splitlines()]
    errors = [report for report in reports if report["severity"] == "error"]
    return _grouped([(report["file"], report["line"], report["code"]) for report in errors])


def by_pyright(folder: Path) -> Reported:
    # With a project file of its own: the main one excludes the folder, even for files that are named.
    # And with the packages of this very Python: the environment that the project file names need not be there.
    options = ["--outputjson", "--project", str(folder), "--pythonpath", sys.executable]
    report = json.loads(_output("basedpyright", *options))
    return _grouped(
        [
            (found["file"], found["range"]["start"]["line"] + 1, found.get("rule", "syntax"))
            for found in report["generalDiagnostics"]
        ]
    )


def _output(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    # Both return 1 when they find what they are to find; anything above is a failure of their own.
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


def _grouped(reports: list[tuple[str, int, str]]) -> Reported:
    grouped: defaultdict[str, set[str]] = defaultdict(set)
    for file, line, rule in reports:
        grouped[f"{Path(file).name}:{line}"].add(rule)
    return {where: _without_consequences(rules) for where, rules in grouped.items()}


def _without_consequences(rules: set[str]) -> set[str]:
    causes = {rule for rule in rules if not rule.startswith(("reportUnknown", "no-any-return"))}
    return causes or rules


@pytest.mark.slow
def test_mypy_reports_exactly_the_expected_errors() -> None:
    assert by_mypy(FILES) == expected("mypy", FILES)


@pytest.mark.slow
def test_pyright_reports_exactly_the_expected_errors() -> None:
    assert by_pyright(FOLDER) == expected("pyright", FILES)


def test_each_remark_on_an_error_is_one_that_is_checked() -> None:
    lines = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines()]
    remarks = [line for line in lines if "# error" in line]

    assert remarks
    assert [line for line in remarks if not MARKER.search(line)] == []
