"""The rules of language that a program can check: docstrings, persons, file names, class names.

``python -m tests.architecture.language`` prints all violations, and writes the debt of files that have some anew.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.architecture.rooms import PROJECT

#: Folders with code, all of whose docstrings are checked.
FOLDERS: Final = ("aflow", "connectors", "tests", "bench", "examples")

#: Folders whose parts are no persons.
ENGINE: Final = ("aflow", "connectors")

#: Files that have violations, with their number. It may only fall.
DEBT: Final = Path(__file__).with_name("language_debt.txt")

#: A docstring names its subject first, or a verb in the imperative.
RELATIVE: Final = re.compile(r"(What|Who|Whose|Whom|Which|Those|Whether|How|Where|When|Why|That)\b")

PERSONS: Final = re.compile(r"(?<![A-Za-z])(nobody|somebody|everybody)(?![A-Za-z])", re.IGNORECASE)

#: Words in ``ing`` that are nouns of their own.
NOUNS: Final = frozenset({"string", "testing", "timing", "embedding"})


def relative_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first words of each docstring that begins with a relative clause or a question."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented):
            text = ast.get_docstring(node)
            if text and RELATIVE.match(text):
                yield (
                    node.body[0].lineno,
                    f"the docstring begins with {text[:30]!r}; name the thing",
                )


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
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    for name, paths in places.items():
        if len(paths) > 1:
            for path in paths:
                others = (
                    ", ".join(str(other) for other in paths if other != path) or "the same file"
                )
                yield path, f"class {name!r} is also defined in {others}"


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


def debt() -> Counter[str]:
    """Return the number of violations that each file may still have."""
    if not DEBT.exists():
        return Counter()
    lines = DEBT.read_text(encoding="utf-8").split("\n")
    return Counter(
        {path: int(number) for number, path in (line.split(" ", 1) for line in lines if line)}
    )


if __name__ == "__main__":
    violations = all_violations()
    for path in sorted(violations):
        print("\n".join(violations[path]))
    DEBT.write_text(
        "".join(f"{len(violations[path])} {path}\n" for path in sorted(violations)),
        encoding="utf-8",
    )
