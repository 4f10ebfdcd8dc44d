"""The demos on the command line: the replay, the one that asks for the weather, and the one on Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Aflow


def test_help_of_the_replay_names_the_other_demos(aflow: Aflow) -> None:
    result = aflow("demo", "--help")

    assert result.exit_code == 0
    assert "--kill-after" in result.stdout
    assert "\n  weather " in result.stdout
    assert "\n  backfill " in result.stdout


def test_the_demo_that_asks_explains_itself_and_its_exit_status(aflow: Aflow) -> None:
    result = aflow("demo", "weather", "--help")

    text = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert text.startswith("Usage: aflow demo weather [OPTIONS] ")
    assert "0 all answers are right, 1 some are not" in text
    assert "[default: aflow-demo/asked]" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--records", "0"), "--records"),
        (("--parallelism", "0"), "--parallelism"),
        (("--seed", "one"), "--seed"),
        (("--output", __file__), "is a file"),
        (("--kill-after", "1s"), "No such option"),
    ],
    ids=["records", "parallelism", "seed", "output", "an option of the replay"],
)
def test_it_refuses_options_that_make_no_sense(
    aflow: Aflow, options: tuple[str, ...], message: str
) -> None:
    result = aflow("demo", "weather", *options)

    assert result.exit_code == 2
    assert message in result.stderr


def test_options_in_front_of_a_demo_that_would_not_see_them_are_refused(aflow: Aflow) -> None:
    result = aflow("demo", "--records", "5", "--max-delay", "1h", "weather")

    assert result.exit_code == 2
    assert "--records and --max-delay in front of 'weather' would have no effect" in result.stderr
    assert "'aflow demo weather --help'" in result.stderr


def test_without_aiohttp_it_says_what_to_install(
    aflow: Aflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)

    result = aflow("demo", "weather")

    assert result.exit_code == 1
    assert "aiohttp, which is not installed" in result.stderr
    assert 'pip install "aflow-streams[demo]"' in result.stderr


def test_a_demo_that_is_not_there_is_refused(aflow: Aflow) -> None:
    result = aflow("demo", "whether")

    assert result.exit_code == 2
    assert "No such command 'whether'" in result.stderr


def test_the_demo_on_spark_explains_itself_and_its_exit_status(aflow: Aflow) -> None:
    result = aflow("demo", "backfill", "--help")

    text = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert text.startswith("Usage: aflow demo backfill [OPTIONS] ")
    assert "0 both ways give the same rows, 1 they do not" in text
    assert "[default: aflow-demo/backfill]" in text
    assert "[default: 2013-07-01]" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--until", "midsummer"), "--until"),
        (("--since", "2013-08-01"), "--until must not be before --since, nor after --end"),
        (("--end", "2013-06-01"), "--until must not be before --since, nor after --end"),
        (("--partitions", "0"), "--partitions"),
        (("--parallelism", "0"), "--parallelism"),
        (("--output", __file__), "is a file"),
    ],
    ids=["until", "since", "end", "partitions", "parallelism", "output"],
)
def test_the_demo_on_spark_refuses_options_that_make_no_sense(
    aflow: Aflow, options: tuple[str, ...], message: str
) -> None:
    result = aflow("demo", "backfill", *options)

    assert result.exit_code == 2
    assert message in result.stderr


def test_without_java_the_demo_on_spark_says_what_to_install_and_writes_nothing(
    aflow: Aflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    result = aflow("demo", "backfill", "--output", str(tmp_path / "demo"))

    assert result.exit_code == 1
    assert "Spark needs Java 17 or newer" in result.stderr
    assert "apt-get install openjdk-17-jre-headless" in result.stderr
    assert not (tmp_path / "demo").exists()
