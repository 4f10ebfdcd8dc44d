"""The notebook runs in a kernel, on the event loop of that kernel, and has the outputs that are stored in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.notebook import NOTEBOOK, outputs

PROJECT = Path(__file__).parents[2]
SECONDS = 300


@pytest.mark.slow
def test_the_notebook_has_the_outputs_that_are_stored_in_it(
    require: Callable[[str, str], None], tmp_path: Path
) -> None:
    for package in ("nbclient", "ipykernel"):
        require(package, "make setup")
    executed = tmp_path / "executed.ipynb"
    command = [sys.executable, "-m", "tests.examples.notebook", str(executed)]

    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=SECONDS)

    assert done.returncode == 0, done.stderr
    assert outputs(executed) == outputs(NOTEBOOK)


def test_each_cell_of_the_notebook_has_an_output() -> None:
    assert [source for source, texts in outputs(NOTEBOOK) if not texts] == []
