"""Help of the command and its commands."""

from __future__ import annotations

import pytest

import aflow as package
from tests.cli.conftest import Aflow


def test_help_names_every_command_and_shows_a_pipeline(aflow: Aflow) -> None:
    result = aflow("--help")

    assert result.exit_code == 0
    for part in (
        "import aflow as af",
        "aflow run squares:build",
        "graph",
        "run",
        "savepoint",
        "top",
    ):
        assert part in result.stdout


def test_the_version_is_that_of_the_package(aflow: Aflow) -> None:
    assert aflow("--version").stdout == f"aflow {package.__version__}\n"


@pytest.mark.parametrize("command", ["run", "graph", "savepoint", "top"])
def test_each_command_explains_itself(aflow: Aflow, command: str) -> None:
    result = aflow(command, "-h")

    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: aflow {command} ")


def test_help_of_run_lists_the_exit_statuses(aflow: Aflow) -> None:
    text = " ".join(aflow("run", "--help").stdout.split())

    assert (
        "0 done or drained, 1 the pipeline failed, 2 the command line is wrong, 130 stopped" in text
    )


@pytest.mark.parametrize("command", ["demo", "ruin"])
def test_an_unknown_command_is_refused(aflow: Aflow, command: str) -> None:
    result = aflow(command)

    assert result.exit_code == 2
    assert f"No such command '{command}'" in result.stderr
