"""``aflow graph``: the plan of a flow, without running it."""

from __future__ import annotations

from tests.cli.conftest import Aflow, Write

FLOW = """
    import aflow as af

    class Untouched(af.Source):
        async def splits(self):
            raise AssertionError("a plan reads nothing")

        async def reader(self, split, position):
            raise AssertionError("a plan reads nothing")

    def build(size: int = 1) -> af.Flow:
        flow = af.Flow("totals")
        flow.source(Untouched(), name="in").key_by(lambda n: n % size).reduce(max, name=f"top {size}").to(
            af.CollectSink(), name="out")
        return flow
"""


def test_the_text_shows_the_plan_for_a_parallelism_and_names_the_option_for_mermaid(
    aflow: Aflow, write: Write
) -> None:
    write("totals", FLOW)

    result = aflow("graph", "totals:build", "--size", "5", "--parallelism", "2")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("flow 'totals': 2 tasks in 4 subtasks, 128 key groups\n")
    assert "top 5  reduce · keyed state" in result.stdout
    assert "end-to-end guarantee with checkpoints: at least once" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("--mermaid prints ")


def test_output_as_mermaid_contains_nothing_else(aflow: Aflow, write: Write) -> None:
    write("totals", FLOW)

    result = aflow("graph", "--mermaid", "totals:build")

    lines = result.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("flowchart LR", "    end")


def test_help_after_the_target_lists_the_options_of_build(aflow: Aflow, write: Write) -> None:
    write("totals", FLOW)

    result = aflow("graph", "totals:build", "--help")

    assert "Usage: aflow graph totals:build" in result.stdout
    assert "--size INTEGER" in result.stdout
    assert "--mermaid" in result.stdout
    assert "--metrics" not in result.stdout
