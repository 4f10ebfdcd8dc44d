"""The project keeps to its rooms and habits, and its public names change on purpose only."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.architecture.habits import violations
from tests.architecture.public_names import DOORS, listed_names, promised, public_names
from tests.architecture.rooms import PROJECT, bad_imports, modules_below

MODULES = [
    *modules_below(PROJECT / "aflow", PROJECT),
    *modules_below(PROJECT / "connectors", PROJECT / "connectors"),
]


def test_modules_are_found_under_the_names_they_are_imported_by() -> None:
    names = {module.name for module in MODULES}

    assert {"aflow", "aflow.errors", "aflow.model.batch", "aflow_connectors"} <= names


@pytest.mark.slow
def test_imports_point_down() -> None:
    assert [bad for module in MODULES for bad in bad_imports(module)] == []


@pytest.mark.slow
def test_each_room_keeps_its_habits() -> None:
    assert [bad for module in MODULES for bad in violations(module)] == []


def test_public_names_change_on_purpose_only() -> None:
    """If they did: ``make public-names``, and a news fragment for what users notice."""
    assert public_names() == listed_names()


@pytest.mark.parametrize("door", DOORS)
def test_a_public_name_exists_and_is_listed_once(door: str) -> None:
    names = promised(door)

    assert [name for name in names if not hasattr(import_module(door), name)] == []
    assert len(set(names)) == len(names)
