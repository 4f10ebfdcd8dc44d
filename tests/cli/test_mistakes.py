"""Reports of errors: one paragraph, the lines of the user's code, and none of aflow's."""

from __future__ import annotations

import re

import pytest
from click.testing import Result

from tests.cli.conftest import Aflow, Write

FLOW = """
    import aflow as af

    def parse(text):
        return int(text)

    def check(number):
        try:
            return parse(number)
        except ValueError as exc:
            raise RuntimeError("unreadable") from exc

    def build(step: str = "parse") -> af.Flow:
        flow = af.Flow("figures")
        flow.source(["1", "x"]).map(globals()[step], name="parse").to(af.CallbackSink(print))
        return flow
"""


def stderr_of(result: Result, status: int) -> str:
    """Return the stderr of a failed command, which has no traceback and no file of aflow."""
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.stderr
    assert not re.search(r"at \S*(aflow/|asyncio/|importlib)", result.stderr)
    return result.stderr


def test_a_failing_function_is_shown_by_step_record_and_its_own_lines(
    aflow: Aflow, write: Write
) -> None:
    write("figures", FLOW)

    message = stderr_of(aflow("run", "figures:build"), 1)

    assert message == (
        "Error: step 'parse' failed on record 'x': ValueError: invalid literal for int() with base 10: 'x'\n"
        "  at figures.py:5 in parse\n"
        "      return int(text)\n"
        "(--traceback shows everything)\n"
    )


def test_an_exception_raised_from_another_is_shown_with_the_line_that_raised_it(
    aflow: Aflow, write: Write
) -> None:
    write("figures", FLOW)

    message = stderr_of(aflow("run", "figures:build", "--step", "check"), 1)

    assert "step 'parse' failed on record 'x': RuntimeError: unreadable" in message
    assert "at figures.py:11 in check" in message


@pytest.mark.parametrize("place", ["before", "after"])
def test_traceback_shows_everything(aflow: Aflow, write: Write, place: str) -> None:
    write("figures", FLOW)
    options = (
        ("--traceback", "figures:build") if place == "before" else ("figures:build", "--traceback")
    )

    result = aflow("run", *options)

    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert "aflow/operators/stateless.py" in result.stderr
    assert "was the direct cause of" in result.stderr


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        ('source(JsonLinesSource("gone.jsonl"))', "there is no file gone.jsonl"),
        ('source(["{"]).map(json.loads, name="parse")', "step 'parse' failed on record '{'"),
    ],
    ids=["a connector's", "the standard library's"],
)
def test_a_failure_in_code_of_others_is_shown_without_frames(
    aflow: Aflow, write: Write, pipeline: str, says: str
) -> None:
    write(
        "figures",
        f"""
        import json
        import aflow as af
        from aflow_connectors.files import JsonLinesSource

        flow = af.Flow("figures")
        flow.{pipeline}.to(af.CollectSink())
        """,
    )

    message = stderr_of(aflow("run", "figures:flow"), 1)

    assert says in message
    assert "\n  at " not in message


def test_a_wrong_pipeline_is_shown_with_its_line(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW.replace("def parse", "async def parse"))

    for command in ("run", "graph"):
        message = stderr_of(aflow(command, "figures:build"), 1)

        assert "map() calls plain functions" in message
        assert "at figures.py:15 in build" in message


def test_an_incomplete_flow_is_explained(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW.replace(".to(af.CallbackSink(print))", ""))

    message = stderr_of(aflow("run", "figures:build"), 1)

    assert "flow 'figures' has no sink" in message


def test_too_much_parallelism_is_explained(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW.replace(".to(", ".rebalance().to("))

    message = stderr_of(aflow("run", "--parallelism", "1000", "figures:build"), 1)

    assert "1000" in message
    assert "128 key groups" in message


def test_an_exception_in_build_is_shown_with_its_frames(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW)

    message = stderr_of(aflow("run", "figures:build", "--step", "nothing"), 1)

    assert message.startswith("Error: KeyError: 'nothing'\n  at figures.py:15 in build\n")


def test_the_last_frames_of_an_endless_recursion_are_shown(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW.replace("return int(text)", "return parse(text)"))

    message = stderr_of(aflow("run", "figures:build"), 1)

    assert "RecursionError" in message
    assert message.count("at figures.py:5 in parse") == 8


def test_a_missing_module_is_named_with_the_folder_that_was_searched(
    aflow: Aflow, write: Write
) -> None:
    path = write("figures", FLOW)

    message = stderr_of(aflow("run", "letters:build"), 2)

    assert (
        f"there is no module 'letters', neither in the current directory ({path.parent})" in message
    )


def test_a_missing_package_is_named_rather_than_its_module(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW)

    assert "no module 'letters'" in stderr_of(aflow("run", "letters.greek:build"), 2)


def test_a_failing_import_in_a_module_differs_from_a_missing_module(
    aflow: Aflow, write: Write
) -> None:
    write("figures", "import unknown_letters\n")

    message = stderr_of(aflow("run", "figures:build"), 1)

    assert "ModuleNotFoundError: No module named 'unknown_letters'" in message
    assert "at figures.py:1 in <module>" in message


def test_a_syntax_error_is_shown_by_file_and_line(aflow: Aflow, write: Write) -> None:
    write("figures", "import aflow\n\ndef build(:\n    pass\n")

    message = stderr_of(aflow("run", "figures:build"), 1)

    assert message.startswith("Error: SyntaxError at figures.py:3: ")
    assert "\n    def build(:\n" in message


def test_the_error_about_a_missing_name_suggests_others(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW + "\n    _private = parse\n")

    message = stderr_of(aflow("run", "figures:biuld"), 2)

    assert "module 'figures' has no 'biuld', it has build, check, parse" in message
    assert "did you mean figures:build?" in message


def test_a_module_without_a_flow_is_an_error(aflow: Aflow, write: Write) -> None:
    write("figures", "from math import sqrt\nPI = 3\n")

    assert "nor any Flow or function of its own" in stderr_of(aflow("run", "figures:build"), 2)


def test_the_error_about_a_module_alone_lists_its_flows_and_functions(
    aflow: Aflow, write: Write
) -> None:
    write("figures", FLOW)

    message = stderr_of(aflow("run", "figures"), 2)

    assert "write figures:name (in figures: build, check, parse)" in message


@pytest.mark.parametrize(
    ("target", "instead"),
    [
        ("flows/figures.py:build", "flows.figures:build"),
        ("./figures.py", "figures:build"),
        ("figures.py:other", "figures:other"),
    ],
    ids=["folder", "relative", "name"],
)
def test_the_error_about_a_file_names_the_module(aflow: Aflow, target: str, instead: str) -> None:
    message = stderr_of(aflow("run", target), 2)

    assert (
        f"is a file; name the module instead, seen from the current directory: {instead}" in message
    )


@pytest.mark.parametrize("target", [":build", "figures:two words", "figures:a..b", ""], ids=repr)
def test_the_error_about_an_invalid_target_shows_the_form_of_one(aflow: Aflow, target: str) -> None:
    assert "write package.module:build" in stderr_of(aflow("run", target), 2)


def test_a_name_of_another_type_is_refused(aflow: Aflow, write: Write) -> None:
    write("figures", "build = 7\n")

    assert "figures:build is of type int, neither a Flow nor a function" in stderr_of(
        aflow("run", "figures:build"), 2
    )


def test_a_function_that_returns_no_flow_is_refused(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW.replace("        return flow\n", ""))

    assert "returned NoneType, not a Flow; does it end with 'return flow'?" in stderr_of(
        aflow("run", "figures:build"), 2
    )


def test_the_error_about_a_coroutine_function_names_the_remedy(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW.replace("def build", "async def build"))

    message = stderr_of(aflow("run", "figures:build"), 2)

    assert "figures:build is a coroutine function" in message
    assert "make it a plain def" in message


def test_a_parameter_that_the_command_line_cannot_set_is_named(aflow: Aflow, write: Write) -> None:
    write("figures", FLOW.replace("step: str", "figures: af.Source[str], step: str"))

    message = stderr_of(aflow("run", "figures:build"), 2)

    assert (
        "has a parameter that cannot be set on the command line: figures: aflow.connect.Source[str]"
        in message
    )


def test_a_source_that_fails_is_named_with_the_line_of_the_user(aflow: Aflow, write: Write) -> None:
    write(
        "broken",
        """
        import aflow as af

        def rows():
            yield 1
            raise OSError("the disk is gone")

        flow = af.Flow("broken")
        flow.source(rows(), name="rows").to(af.CollectSink())
        """,
    )

    message = stderr_of(aflow("run", "broken:flow"), 1)

    assert "OSError: the disk is gone" in message
    assert "at broken.py:6 in rows" in message
