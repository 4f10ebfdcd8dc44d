"""The rules of language that a program can check: docstrings, persons, file names, class names.

``python -m tests.architecture.language`` prints all violations.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.architecture.rooms import PROJECT, parsed

#: Folders with code, all of whose docstrings are checked.
FOLDERS: Final = ("aflow", "connectors", "tests", "bench", "examples")

#: Folders whose parts are no persons.
ENGINE: Final = ("aflow", "connectors")

#: A docstring names its subject first, or a verb in the imperative.
RELATIVE: Final = re.compile(r"(What|Who|Whose|Whom|Which|Those|Whether|How|Where|When|Why|That)\b")

#: The begin of a string that may be such a docstring, with escaped whitespace. Files without one are not parsed.
CANDIDATE: Final = re.compile(rf"""["'](?:\s|\\.)*{RELATIVE.pattern}""", re.DOTALL)

PERSONS: Final = re.compile(r"(?<![A-Za-z])(nobody|somebody|everybody)(?![A-Za-z])", re.IGNORECASE)

#: Words in ``ing`` that are nouns of their own.
NOUNS: Final = frozenset({"string", "testing", "timing", "embedding"})


#: Public classes that share a name on purpose, each reached through a group of its own.
INTENDED: Final = {
    "Count": "a window, a trigger and an evictor: af.Count, af.triggers.Count, af.evictors.Count",
    "Delta": "a trigger and an evictor: af.triggers.Delta, af.evictors.Delta",
    "Results": "af.streams.Results, and aflow_connectors.spark.Results",
}


#: A comment that documents an attribute.
ATTRIBUTE_COMMENT: Final = re.compile(r"\s*#: (.*)")


def relative_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first words of each docstring that begins with a relative clause or a question.

    Docstrings of attributes and ``#:`` comments above them are docstrings, too.
    """
    for line, text in sorted([*_docstrings(source), *_attribute_comments(source)]):
        if RELATIVE.match(text):
            yield line, f"the docstring begins with {text[:30]!r}; name the thing"


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes, functions and attributes, if one of them may be relative."""
    if CANDIDATE.search(source) is None:
        return
    for node in _statements(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.lineno, value.value.lstrip()


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below ``node``, at any depth, and what holds them. Most nodes of a tree are expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


def _attribute_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line of each comment of an attribute."""
    inside = False
    for number, line in enumerate(source.splitlines(), start=1):
        found = ATTRIBUTE_COMMENT.match(line)
        if found and not inside:
            yield number, found[1]
        inside = found is not None


def persons(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each mention of a person that stands for a part or for nothing."""
    for number, line in enumerate(source.splitlines(), start=1):
        for found in PERSONS.finditer(line):
            yield number, f"{found[0]!r} is for people; name the part"


def gerund_names(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each path whose file or folder is named after an activity."""
    for path in paths:
        name = path.parent.name if path.name == "__init__.py" else path.stem
        last = name.removeprefix("_").rpartition("_")[2]
        is_test = name.startswith("test_")
        if last.endswith("ing") and last not in NOUNS and not is_test:
            yield path, f"{name!r} is an activity; name the file after the noun that it defines"


def repeated_classes(sources: Iterable[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    """Yield each file that defines a public class whose name another file defines as well."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path, source in sources:
        for node in _statements(parsed(source)):
            if isinstance(node, ast.ClassDef) and _is_compared(node.name):
                places[node.name].append(path)
    for name, paths in places.items():
        if len(paths) > 1:
            for path in paths:
                others = (
                    ", ".join(str(other) for other in paths if other != path) or "the same file"
                )
                yield path, f"class {name!r} is also defined in {others}"


def _is_compared(name: str) -> bool:
    return not name.startswith("_") and name not in INTENDED


def all_violations() -> dict[str, list[str]]:
    """Return the violations of the project by file, relative to the project."""
    found: dict[str, list[str]] = defaultdict(list)
    files = [
        path.relative_to(PROJECT)
        for folder in FOLDERS
        for path in sorted((PROJECT / folder).rglob("*.py"))
        if "__pycache__" not in path.parts
    ]
    sources = {path: (PROJECT / path).read_text(encoding="utf-8") for path in files}
    for path, source in sources.items():
        in_file = list(relative_docstrings(source))
        if path.parts[0] in ENGINE:
            in_file += persons(source)
        found[str(path)] += [f"{path}:{line}: {what}" for line, what in sorted(in_file)]
    engine = [path for path in files if path.parts[0] in ENGINE]
    for path, what in gerund_names(engine):
        found[str(path)].append(f"{path}: {what}")
    for path, what in repeated_classes((path, sources[path]) for path in engine):
        found[str(path)].append(f"{path}: {what}")
    return {path: lines for path, lines in found.items() if lines}


if __name__ == "__main__":
    for lines in all_violations().values():
        print("\n".join(lines))
