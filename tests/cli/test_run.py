"""``aflow run``: targets, options, results and exit statuses."""

from __future__ import annotations

import importlib
import json
import re
import signal
import tomllib
from collections.abc import Callable, Iterator
from textwrap import dedent

import pytest
from click.testing import Result

from aflow.cli.commands import main
from tests.architecture.rooms import PROJECT
from tests.cli.conftest import Aflow, Write

SQUARES = """
    import aflow as af

    def build(up_to: int = 3) -> af.Flow:
        flow = af.Flow("squares")
        flow.source(range(up_to)).map(lambda n: n * n, name="square").to(af.CallbackSink(print))
        return flow
"""

EVERYTHING = """
    from __future__ import annotations

    import json
    from datetime import timedelta
    from enum import Enum
    from pathlib import Path
    from typing import Literal, Optional, Sequence

    import aflow as af

    class Speed(Enum):
        SLOW = 1
        FAST = 2

    def build(
        first: str, /, count: int, *, rate: float = 0.5, check: bool = False, loud: bool = True,
        out: Path = Path("out"), every: timedelta = timedelta(minutes=90), speed: Speed = Speed.FAST,
        mode: Literal["read", "write"] = "read", limit: int | None = None, label: Optional[str] = None,
        tag: list[str] = [], port: tuple[int, ...] = (), waits: Sequence[timedelta] = (),
        guessed=7, plain="x", hidden: Unknown = None, **more: str,
    ) -> af.Flow:
        print(json.dumps([first, count, rate, check, loud, str(out), every.total_seconds(), speed.name, mode,
                          limit, label, tag, port, [one.total_seconds() for one in waits], guessed, plain]))
        flow = af.Flow("everything")
        flow.source([1]).to(af.CollectSink())
        return flow
"""


def failing(result: Result, status: int) -> str:
    """Return the stderr of a failed command, which has no traceback and prints nothing to stdout."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_flow_runs_to_its_end(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES)

    result = aflow("run", "squares:build")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "0\n1\n4\n", "")


def test_the_pipeline_in_the_help_runs_as_the_help_says(aflow: Aflow, write: Write) -> None:
    shown = re.search(
        r"\n( +import aflow as af\n.*?return flow\n)", aflow("--help").stdout, re.DOTALL
    )
    assert shown is not None
    write("squares", dedent(shown.group(1)))

    result = aflow("run", "squares:build", "--up-to", "5")

    assert result.output == "0\n1\n4\n9\n16\n"


def test_a_flow_object_runs_as_well_as_a_function(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES + "\n    flow = build(2)\n")

    assert aflow("run", "squares:flow").stdout == "0\n1\n"


def test_a_dotted_name_reaches_into_a_class(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES + "\n    class Flows:\n        squares = staticmethod(build)\n")

    assert aflow("run", "squares:Flows.squares", "--up-to", "1").stdout == "0\n"


@pytest.mark.parametrize("options", [(), ("--no-uvloop",)], ids=["uvloop", "no uvloop"])
def test_a_flow_runs_on_uvloop_by_default(
    aflow: Aflow, write: Write, options: tuple[str, ...]
) -> None:
    write(
        "loops",
        """
        import asyncio
        import aflow as af

        def name_loop(value):
            print(type(asyncio.get_running_loop()).__module__.partition(".")[0])

        flow = af.Flow("loops")
        flow.source([1]).to(af.CallbackSink(name_loop))
        """,
    )

    result = aflow("run", *options, "loops:flow")

    assert result.stdout == ("asyncio\n" if options else "uvloop\n")


def test_parameters_that_are_not_given_keep_their_defaults(aflow: Aflow, write: Write) -> None:
    write("everything", EVERYTHING)

    result = aflow("run", "everything:build", "--first", "a", "--count", "2")

    values = ["a", 2, 0.5, False, True, "out", 5400.0, "FAST", "read", None, None]
    assert json.loads(result.stdout) == [*values, [], [], [], 7, "x"]


def test_options_are_converted_as_their_parameters_are_annotated(
    aflow: Aflow, write: Write
) -> None:
    write("everything", EVERYTHING)
    options = (
        "--first a --count 2 --rate 1.5 --check --no-loud --out x/y --every 1h30m500ms --speed Slow --mode write "
        "--limit 3 --label b --tag c --tag d --port 1 --port 2 --waits 5s --guessed 8 --plain y"
    )

    result = aflow("run", "everything:build", *options.split())

    values = ["a", 2, 1.5, True, False, "x/y", 5400.5, "SLOW", "write", 3, "b"]
    assert json.loads(result.stdout) == [*values, ["c", "d"], [1, 2], [5.0], 8, "y"]


def test_a_value_may_follow_an_equals_sign(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES)

    assert aflow("run", "squares:build", "--up-to=1").stdout == "0\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Missing option '--first'"),
        (("--first", "a", "--count", "many"), "Invalid value for '--count': 'many'"),
        (("--counts", "3"), "No such option '--counts'"),
        (("--count",), "Option '--count' requires an argument"),
        (("--first", "a", "--count", "1", "stray"), "unexpected extra argument"),
        (("--every", "5"), "'5' is no duration; write it like 250ms, 5s, 10m, 1h30m or 2d"),
        (("--every", "99999999999d"), "longer than a duration can be"),
        (("--speed", "warp"), "'warp' is none of slow, fast"),
        (("--mode", "append"), "'append' is not one of 'read', 'write'"),
        (("--hidden", "x"), "No such option '--hidden'"),
        (("--more", "x"), "No such option '--more'"),
    ],
    ids=[
        *("missing", "no int", "unknown", "no value", "stray", "no unit", "too long", "no member"),
        *("no choice", "not for the command line", "keywords"),
    ],
)
def test_the_error_about_a_wrong_option_lists_the_options_of_build(
    aflow: Aflow, write: Write, options: tuple[str, ...], message: str
) -> None:
    write("everything", EVERYTHING)

    stderr = failing(aflow("run", "everything:build", *options), 2)

    assert message in stderr
    assert "everything:build takes --first TEXT (required), --count INTEGER (required)" in stderr
    assert "--check|--no-check, " in stderr
    assert "--every DURATION, --speed [slow|fast], --mode [read|write]" in stderr
    assert "Try 'aflow run everything:build --help'." in stderr


def test_the_error_about_a_misspelt_option_suggests_the_right_one(
    aflow: Aflow, write: Write
) -> None:
    write("squares", SQUARES)

    stderr = failing(aflow("run", "squares:build", "--upto", "3"), 2)

    assert "No such option '--upto'. Did you mean '--up-to'? squares:build takes --up-to" in stderr


def test_a_flow_object_takes_no_options(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES + "\n    flow = build(2)\n")

    stderr = failing(aflow("run", "squares:flow", "--up-to", "3"), 2)

    assert "squares:flow takes no options of its own" in stderr


def test_help_after_the_target_is_about_build(aflow: Aflow, write: Write) -> None:
    write(
        "everything", EVERYTHING.replace("print(json", '"""Build all of it."""\n        print(json')
    )

    result = aflow("run", "everything:build", "--help")

    assert result.exit_code == 0
    assert result.stdout.startswith(
        "Usage: aflow run everything:build [OPTIONS]\n\n  Build all of it.\n"
    )
    shown = re.sub(" +", " ", result.stdout)
    assert (
        "Options of everything:build:\n --first TEXT [required]\n --count INTEGER [required]\n"
        in shown
    )
    assert "--every DURATION [default: 1h30m]\n --speed [slow|fast] [default: fast]\n" in shown
    assert "--loud / --no-loud [default: True]" in shown
    assert "Options of aflow:\n --metrics" in shown or "Options of aflow:\n --parallelism" in shown
    assert "hidden" not in shown


def test_options_of_aflow_are_accepted_before_and_after_the_target(
    aflow: Aflow, write: Write
) -> None:
    write(
        "wide",
        """
        import aflow as af

        def build() -> af.Flow:
            flow = af.Flow("wide")
            flow.source([1]).key_by(abs).reduce(max, name="top").to(af.CollectSink())
            return flow
        """,
    )

    before = aflow("graph", "--parallelism", "3", "wide:build")
    after = aflow("graph", "wide:build", "--parallelism", "3")
    both = aflow("graph", "--parallelism", "2", "wide:build", "--parallelism", "3")

    assert "task 1: 3 subtasks" in before.stdout
    assert before.stdout == after.stdout == both.stdout


def test_an_option_of_both_belongs_to_build_after_the_target_and_to_aflow_before_it(
    aflow: Aflow, write: Write
) -> None:
    write(
        "wide",
        """
        import aflow as af

        def build(parallelism: int, metrics: bool = False) -> af.Flow:
            flow = af.Flow("wide")
            flow.source([1], name=f"built for {parallelism} {metrics}").key_by(abs).reduce(max, name="top").to(
                af.CollectSink())
            return flow
        """,
    )

    drawn = aflow("graph", "--parallelism", "3", "wide:build", "--parallelism", "7").stdout
    silent = aflow("run", "wide:build", "--parallelism", "7", "--metrics")

    assert "built for 7 False" in drawn
    assert "task 1: 3 subtasks" in drawn
    assert silent.stderr == ""


def test_a_bad_parallelism_is_a_wrong_command_line(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES)

    assert "--parallelism" in failing(aflow("run", "--parallelism", "0", "squares:build"), 2)
    assert "--parallelism" in failing(aflow("run", "squares:build", "--parallelism", "x"), 2)


def test_metrics_are_a_table_on_stderr(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES)

    result = aflow("run", "--metrics", "squares:build")

    assert result.stdout == "0\n1\n4\n"
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stderr.splitlines()]
    assert ["square", "3", "3", "", "end"] in rows


def test_metrics_show_the_outcomes_of_calls(aflow: Aflow, write: Write) -> None:
    write(
        "asking",
        """
        import aflow as af

        flow = af.Flow("asking")

        async def ask(n: int) -> int:
            if n == 2:
                raise ValueError
            return n

        flow.source([1, 2, 3, 3]).map_async(
            ask, name="ask", capacity=7, on_error=af.calls.Drop(), cache=af.calls.Cache(10)
        ).to(af.CollectSink())
        """,
    )

    result = aflow("run", "--metrics", "asking:flow")

    assert "calls of ask: 3 made, 1 dropped, 1 merged, limit 7" in result.stderr


def test_metrics_of_a_failed_job_are_shown(aflow: Aflow, write: Write) -> None:
    write("squares", SQUARES.replace("n * n", "1 // (n - 1)"))

    result = aflow("run", "--metrics", "squares:build")

    assert result.exit_code == 1
    assert re.search(r"square +│ +3", result.stderr)
    assert "step 'square' failed on record 1" in result.stderr


def test_signal_handlers_are_restored(
    aflow: Aflow, write: Write, own_handler: Callable[[int, object], None]
) -> None:
    write("squares", SQUARES)

    result = aflow("run", "squares:build")

    assert result.exit_code == 0
    assert signal.getsignal(signal.SIGINT) is own_handler
    assert signal.getsignal(signal.SIGTERM) is own_handler


@pytest.fixture
def own_handler() -> Iterator[Callable[[int, object], None]]:
    """A handler for SIGINT and SIGTERM that was set before."""

    def handle(number: int, frame: object) -> None:
        raise AssertionError(f"signal {number}")

    before = {one: signal.signal(one, handle) for one in (signal.SIGINT, signal.SIGTERM)}
    yield handle
    for one, handler in before.items():
        signal.signal(one, handler)


def test_the_installed_command_is_this_one() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))

    module, _, name = project["project"]["scripts"]["aflow"].partition(":")

    assert getattr(importlib.import_module(module), name) is main
