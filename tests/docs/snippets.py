"""Finds the Python of a Markdown file and runs it, block after block, as one program would.

A block fenced as ``python`` runs. The blocks of a file share one namespace, and `await` outside of
a function is fine. A ``text`` block under ``<!-- output -->`` is what the block before it prints. A
block of ``>>>`` lines is a session, compared as doctest does. A block that cannot run here says why,
in ``<!-- not run: the reason -->`` right above it; there is no other way out.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import io
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FENCE: Final = re.compile(r"^(`{3,})(.*)$")
INDENTED: Final = re.compile(r"^\s+`{3,}\s*(py|ipy)")
NOT_RUN: Final = re.compile(r"^<!-- not run: \S.* -->$")
OUTPUT: Final = "<!-- output -->"
_PROJECT: Final = Path(__file__).parents[2]

#: Documents whose snippets need a server or Spark, and the tests that run them.
ELSEWHERE: Final = {
    "docs/connectors/formats.md": "tests/connectors/schemas/test_page.py",
    "docs/connectors/http.md": "tests/connectors/http/test_page.py",
    "docs/connectors/kafka.md": "tests/connectors/kafka/test_page.py",
    "docs/connectors/mqtt.md": "tests/connectors/mqtt/test_page.py",
    "docs/connectors/nats.md": "tests/connectors/nats/test_page.py",
    "docs/connectors/postgres.md": "tests/connectors/postgres/test_page.py",
    "docs/connectors/rabbitmq.md": "tests/connectors/rabbitmq/test_page.py",
    "docs/connectors/redis.md": "tests/connectors/redis/test_page.py",
    "docs/connectors/s3.md": "tests/connectors/s3/test_page.py",
    "docs/guide/spark.md": "tests/spark/test_guide.py",
}
#: Other words for Python, under which a block would be shown in colour but would not run.
ALIASES: Final = {"py", "python3", "pycon", "ipython"}


class SnippetError(AssertionError):
    """A block that is not fenced as the rules say, or prints something else than the text says."""


@dataclass(slots=True)
class Snippet:
    """A block of Python; ``line`` is that of its first line of code, from 1."""

    line: int
    code: str
    output: str | None = None


@dataclass(slots=True)
class Block:
    """Any fenced block, with the last line of text above it."""

    line: int
    language: str
    above: str
    lines: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def blocks(markdown: str) -> Iterator[Block]:
    """All fenced blocks that start at the margin, in order."""
    block: Block | None = None
    fence = above = ""
    for number, line in enumerate(markdown.splitlines(), start=1):
        match = FENCE.match(line)
        if block is None and match:
            fence = match[1]
            block = Block(number + 1, match[2].strip(), above)
        elif block is not None and line.rstrip() == fence:
            yield block
            block, above = None, ""
        elif block is not None:
            block.lines.append(line)
        elif INDENTED.match(line):
            raise SnippetError(f"line {number}: Python that is to run is fenced at the margin")
        elif line.strip():
            above = line.strip()


def snippets(markdown: str) -> list[Snippet]:
    """Return the blocks of a Markdown text that run."""
    found: list[Snippet] = []
    for block in blocks(markdown):
        words = block.language.split()
        if block.above == OUTPUT:
            if not found:
                raise SnippetError(f"line {block.line}: output of nothing: no block runs before it")
            found[-1].output = block.text
        elif not words or words[0] not in ALIASES | {"python"}:
            continue
        elif words != ["python"]:
            raise SnippetError(
                f"line {block.line}: ```{block.language} would not run; say ```python, "
                "with `<!-- not run: the reason -->` above if it cannot"
            )
        elif not NOT_RUN.match(block.above):
            found.append(Snippet(block.line, block.text))
    return found


def run_document(
    document: str, *, name: str | None = None, given: Mapping[str, object] | None = None
) -> None:
    """Run the snippets of a document, given by its path in the project, as ``run`` does."""
    path = _PROJECT / document
    run(snippets(path.read_text(encoding="utf-8")), path, name=name, given=given)


def run(
    found: Sequence[Snippet],
    path: Path,
    *,
    name: str | None = None,
    given: Mapping[str, object] | None = None,
) -> None:
    """Run ``found`` in order in one module; an error's traceback shows lines of ``path``.

    The module is called ``name``, which may be ``__main__``, and begins with the variables ``given``.
    """
    # A real module, because annotations of classes are looked up by the module's name.
    module = types.ModuleType(name or f"snippets_of_{path.stem}")
    vars(module).update(given or {})
    covered = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        for snippet in found:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                _run_one(snippet, path, module)
            if snippet.output is not None and snippet.output != printed.getvalue():
                raise SnippetError(
                    f"{path}:{snippet.line}: the text promises\n{snippet.output}\n"
                    f"but the block prints\n{printed.getvalue()}"
                )
    finally:
        del sys.modules[module.__name__]
        if covered is not None:
            sys.modules[module.__name__] = covered


def _run_one(snippet: Snippet, path: Path, module: types.ModuleType) -> None:
    if snippet.code.startswith(">>>"):
        _run_session(snippet, path, module)
        return
    code = compile(
        "\n" * (snippet.line - 1) + snippet.code,
        str(path),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    result = eval(code, module.__dict__)
    if asyncio.iscoroutine(result):
        asyncio.run(result)


def _run_session(snippet: Snippet, path: Path, module: types.ModuleType) -> None:
    parser, said = doctest.DocTestParser(), io.StringIO()
    session = parser.get_doctest(snippet.code, {}, path.name, str(path), snippet.line - 1)
    session.globs = module.__dict__
    result = doctest.DocTestRunner(verbose=False).run(session, out=said.write, clear_globs=False)
    if result.failed:
        raise SnippetError(said.getvalue())
