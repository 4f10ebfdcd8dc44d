"""Executes a notebook in a kernel of its own.

``python -m tests.examples.notebook`` executes ``examples/notebook.ipynb`` and stores the outputs in it; run it after a
change of the cells. With a path it writes the executed notebook there.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
SECONDS_OF_A_CELL = 60


def execute(source: Path, target: Path) -> None:
    """Write ``source`` with the outputs of a new kernel to ``target``. Raises the error of the first failed cell."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    nbformat: Any = import_module("nbformat")  # without types
    notebook = nbformat.read(source, as_version=4)
    sockets = Config({"KernelManager": {"transport": "ipc"}})  # no ports
    NotebookClient(
        notebook, timeout=SECONDS_OF_A_CELL, record_timing=False, config=sockets
    ).execute()
    notebook.metadata.pop("language_info", None)  # the version of Python
    nbformat.write(notebook, target)


def outputs(path: Path) -> list[tuple[str, list[str]]]:
    """Return each cell of code with the text of its outputs. Raises ``AssertionError`` for other outputs."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        ("".join(cell["source"]), [_text(output) for output in cell["outputs"]])
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def _text(output: dict[str, Any]) -> str:
    """Return the text of an output; what is printed on the standard error is none that a notebook should have."""
    if output["output_type"] == "stream":
        assert output["name"] == "stdout", "".join(output["text"])
        return "".join(output["text"])
    assert output["output_type"] == "execute_result", output
    return "".join(output["data"]["text/plain"])


if __name__ == "__main__":
    execute(NOTEBOOK, Path(sys.argv[1]) if len(sys.argv) > 1 else NOTEBOOK)
