"""The code of README and docs runs, prints the documented output, and links to existing files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.checkpointed import checkpointed
from tests.docs.snippets import ELSEWHERE, SnippetError, run, snippets

PROJECT = Path(__file__).parents[2]
FILES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted((PROJECT / "docs").rglob("*.md")),
    *sorted((PROJECT / "bench").glob("*.md")),
]
NAMES = [str(path.relative_to(PROJECT)) for path in FILES]
WITHOUT_SERVERS = [PROJECT / name for name in NAMES if name not in ELSEWHERE]


@pytest.mark.parametrize("path", WITHOUT_SERVERS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_what_a_document_shows_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    run(snippets(path.read_text(encoding="utf-8")), path)


@pytest.mark.parametrize(("document", "test"), ELSEWHERE.items(), ids=list(ELSEWHERE))
def test_a_document_that_needs_a_server_is_run_by_the_tests_that_are_named(
    document: str, test: str
) -> None:
    assert document in NAMES
    assert f'run_document("{document}"' in (PROJECT / test).read_text(encoding="utf-8")


#: Pages of the guide with code.
WITH_CHECKPOINTS = [
    path
    for path in WITHOUT_SERVERS
    if path.parent.name == "guide" and snippets(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("path", WITH_CHECKPOINTS, ids=lambda path: path.stem)
def test_what_the_guide_shows_is_the_same_with_checkpoints(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with checkpointed(every=None):
        run(snippets(path.read_text(encoding="utf-8")), path)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_linked_files_exist(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))

    missing = [link for link in links if ":" not in link and not (path.parent / link).exists()]

    assert missing == []


def test_each_decision_is_in_the_index() -> None:
    folder = PROJECT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")

    missing = [path.name for path in folder.glob("[0-9]*.md") if f"({path.name})" not in index]

    assert missing == []


def test_blocks_of_a_document_share_a_namespace_and_may_await() -> None:
    found = snippets(
        "```python\nimport asyncio\nx = 1\n```\n"
        "text\n```python\nawait asyncio.sleep(0)\nprint(x + 1)\n```\n"
        "<!-- output -->\n```text\n2\n```\n"
    )

    assert [(snippet.line, snippet.output) for snippet in found] == [(2, None), (7, "2\n")]
    run(found, Path("shared.md"))


def test_output_that_differs_from_the_text_is_an_error() -> None:
    found = snippets("```python\nprint(2)\n```\n\n<!-- output -->\n```text\n3\n```\n")

    with pytest.raises(SnippetError, match=r"promises\n3\n\nbut the block prints\n2"):
        run(found, Path("different.md"))


def test_a_session_shares_the_namespace_and_its_output_is_compared() -> None:
    found = snippets(
        "```python\nx = 1\n```\n```python\n>>> y = x + 1\n>>> y\n2\n```\n```python\ny\n```\n"
    )

    run(found, Path("session.md"))


def test_a_session_that_prints_something_else_is_an_error() -> None:
    found = snippets("# Title\n```python\n>>> 1 + 1\n3\n```\n")

    with pytest.raises(SnippetError, match=r'File "session.md", line 3'):
        run(found, Path("session.md"))


def test_an_error_of_a_block_points_to_its_line_in_the_document() -> None:
    found = snippets("# Title\n\n```python\nx = 1\nx / 0\n```\n")

    with pytest.raises(ZeroDivisionError) as caught:
        run(found, Path("broken.md"))

    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == ("broken.md", 5)


def test_a_class_of_a_block_finds_its_annotations() -> None:
    found = snippets(
        "```python\nfrom __future__ import annotations\nimport typing\nclass A:\n    b: B\n"
        "class B: ...\nassert typing.get_type_hints(A) == {'b': B}\n```\n"
    )

    run(found, Path("annotated.md"))


def test_a_document_may_run_as_the_main_program_with_variables_that_are_given() -> None:
    main = sys.modules["__main__"]
    found = snippets(
        "```python\nclass A: ...\nassert A.__module__ == '__main__'\nprint(x)\n```\n"
        "<!-- output -->\n```text\n1\n```\n"
    )

    run(found, Path("main.md"), name="__main__", given={"x": 1})

    assert sys.modules["__main__"] is main


def test_a_block_with_a_reason_above_is_not_run() -> None:
    assert snippets("<!-- not run: needs a server -->\n\n```python\n1 / 0\n```\n") == []


@pytest.mark.parametrize("fence", ["python no-run", "py", "pycon", "python3"])
def test_a_block_that_would_not_run_without_a_reason_is_an_error(fence: str) -> None:
    with pytest.raises(SnippetError, match=r"line 2: .* would not run"):
        snippets(f"```{fence}\n1 / 0\n```\n")


def test_an_indented_block_is_an_error_because_it_would_not_run() -> None:
    with pytest.raises(SnippetError, match=r"line 2: .* at the margin"):
        snippets("- An item\n  ```python\n  1 / 0\n  ```\n")


def test_output_without_a_block_that_prints_it_is_an_error() -> None:
    with pytest.raises(SnippetError, match="output of nothing"):
        snippets("<!-- output -->\n```text\n2\n```\n")


def test_a_block_within_a_longer_fence_is_text() -> None:
    assert snippets("````markdown\n```python\n1 / 0\n```\n````\n") == []
