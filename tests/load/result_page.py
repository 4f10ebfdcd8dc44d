"""The reference page of results of loads, from the classes. ``python -m tests.load.result_page`` writes it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aflow.bench import machine, result

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "bench-result.md"

_HEAD: Final = f"""# The format of load results

`aflow bench --json FILE` and `BenchResult.save` write one JSON object, a `BenchResult`; `aflow.bench.load_result`
reads it. Its `schema` is `{result.SCHEMA}`, with another number for each change that readers notice. Names end with
their unit: `_s` seconds, `_ms` milliseconds, `_per_s` records per second. Shares are of one core or of the time, 1 for
all of it. `json_schema()` of `aflow.bench.result` returns the JSON schema. This page is written from the classes.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    classes = [one for module in (result, machine) for one in _classes(module.__file__ or "")]
    order = {"BenchResult": 0}
    for one in sorted(classes, key=lambda node: order.get(node.name, 1)):
        rows = list(_rows(one))
        if rows:
            text = (
                inspect.cleandoc(ast.get_docstring(one) or "").replace("\n", " ").replace("``", "`")
            )
            parts.append(
                f"## {one.name}\n\n{text}\n\n| name | type | |\n|---|---|---|\n"
                + "\n".join(rows)
                + "\n"
            )
    return "\n".join(parts)


def _classes(file: str) -> Iterator[ast.ClassDef]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


def _rows(node: ast.ClassDef) -> Iterator[str]:
    enum = any(isinstance(base, ast.Name) and base.id == "Enum" for base in node.bases)
    for number, one in enumerate(node.body):
        text = _doc(node.body[number + 1 : number + 2])
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            kind = ast.unparse(one.annotation).replace("|", "or")
            yield f"| `{one.target.id}` | {kind} | {text} |"
        elif enum and isinstance(one, ast.Assign):
            yield f"| `{ast.literal_eval(one.value)}` | text | {text} |"


def _doc(following: list[ast.stmt]) -> str:
    match following:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return " ".join(text.split()).replace("``", "`").replace("|", "or")
        case _:
            return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
