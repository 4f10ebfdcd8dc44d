"""The project's language: the parts of its rules that a program can check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.language import (
    all_violations,
    gerund_names,
    persons,
    relative_docstrings,
    repeated_classes,
)


@pytest.mark.slow
def test_no_file_violates_the_rules_of_language() -> None:
    assert [line for lines in all_violations().values() for line in lines] == []


@pytest.mark.parametrize("word", ["What", "Who", "Whose", "Those", "Whether", "How", "Which"])
def test_a_docstring_that_begins_with_a_relative_clause_is_found(word: str) -> None:
    source = f'"""Timers of one key."""\n\ndef due():\n    """{word} is due."""\n'

    assert [line for line, _ in relative_docstrings(source)] == [4]


@pytest.mark.parametrize(
    "source", ['x = 1\n"""What is due."""\n', "a = 1\n#: Where it is.\nx = 1\n"]
)
def test_the_docstring_and_the_comment_of_an_attribute_are_docstrings(source: str) -> None:
    assert [line for line, _ in relative_docstrings(source)] == [2]


def test_only_the_first_line_of_a_comment_is_its_begin() -> None:
    assert list(relative_docstrings("#: The place\n#: where it is.\n#: That holds.\nx = 1\n")) == []


def test_a_docstring_with_a_verb_or_a_noun_phrase_is_not_found() -> None:
    source = 'class Whatever:\n    """Whatsoever."""\n    def f(self):\n        """Return the count."""\n'

    assert list(relative_docstrings(source)) == []


@pytest.mark.parametrize("line", ["# nobody waits", "def _nobody(): ...", '"Somebody else"'])
def test_a_word_for_a_person_in_place_of_a_part_is_found(line: str) -> None:
    assert [number for number, _ in persons(f"x = 1\n{line}\n")] == [2]


def test_a_file_that_is_named_after_an_activity_is_found() -> None:
    paths = [Path("a/feeding.py"), Path("a/settings.py"), Path("a/cutting/__init__.py")]

    assert [path for path, _ in gerund_names(paths)] == [paths[0], paths[2]]


def test_the_room_for_tests_of_users_is_a_noun() -> None:
    assert list(gerund_names([Path("aflow/testing/__init__.py"), Path("a/string.py")])) == []


def test_a_class_that_two_files_define_is_found_in_both() -> None:
    sources = [(Path("a.py"), "class Place: ...\n"), (Path("b.py"), "class Place: ...\n")]

    assert [path for path, _ in repeated_classes(sources)] == [Path("a.py"), Path("b.py")]


def test_private_classes_may_share_a_name() -> None:
    sources = [(Path("a.py"), "class _Place: ...\n"), (Path("b.py"), "class _Place: ...\n")]

    assert list(repeated_classes(sources)) == []
