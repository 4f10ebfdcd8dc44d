"""What a newcomer reads, and the options of the demo."""

from __future__ import annotations

import pytest

import aflow as package
from tests.cli.conftest import Aflow


def test_help_names_every_command_and_shows_a_pipeline(aflow: Aflow) -> None:
    result = aflow("--help")

    assert result.exit_code == 0
    for part in ("import aflow as af", "aflow run squares:build", "aflow demo", "graph", "run"):
        assert part in result.stdout


def test_the_version_is_that_of_the_package(aflow: Aflow) -> None:
    assert aflow("--version").stdout == f"aflow {package.__version__}\n"


@pytest.mark.parametrize("command", ["run", "graph", "demo"])
def test_each_command_explains_itself(aflow: Aflow, command: str) -> None:
    result = aflow(command, "-h")

    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: aflow {command} ")


def test_help_of_run_lists_the_exit_statuses(aflow: Aflow) -> None:
    text = " ".join(aflow("run", "--help").stdout.split())

    assert (
        "0 done or drained, 1 the pipeline failed, 2 the command line is wrong, 130 stopped" in text
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--records", "0"), "--records"),
        (("--parallelism", "0"), "--parallelism"),
        (("--max-delay", "2"), "'2' is no duration"),
        (("--output", __file__), "is a file"),
    ],
    ids=["records", "parallelism", "max-delay", "output"],
)
def test_the_demo_refuses_options_that_make_no_sense(
    aflow: Aflow, options: tuple[str, ...], message: str
) -> None:
    result = aflow("demo", *options)

    assert result.exit_code == 2
    assert message in result.stderr


def test_the_demo_says_what_its_options_are_by_default(aflow: Aflow) -> None:
    text = " ".join(aflow("demo", "--help").stdout.split())

    assert "[default: aflow-demo]" in text
    assert "[default: 2h]" in text
