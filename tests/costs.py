"""Costs of the test run that no test needs: garbage collections, waits for the disk, and examples in ``make unit``.

A plugin that ``tests/conftest.py`` registers.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from _typeshed import HasFileno

#: Profile of Hypothesis for ``make unit``. ``make test`` runs all examples.
UNIT: Final = "unit"

settings.register_profile(UNIT, max_examples=15)


def pytest_configure() -> None:
    os.fsync = check_descriptor


def check_descriptor(fd: int | HasFileno) -> None:
    """Replace ``os.fsync``. A test loses no power, and a pipeline with checkpoints spent half its time in it.

    Processes that a test starts run the real one. Raises ``OSError`` if the descriptor is not open.
    """
    os.fstat(fd if isinstance(fd, int) else fd.fileno())


def pytest_collection() -> None:
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collections: a full one took 0.3 s."""
    gc.enable()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if settings.get_current_profile_name() == UNIT:
        for item in items:
            limit_examples(item)


def limit_examples(item: pytest.Item) -> None:
    """Lower the number of examples of a property to that of the profile, which ``@settings`` overrides."""
    test: Any = getattr(item, "obj", None)
    # Hypothesis reads the settings of a function from this attribute, and those of rules from the class.
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None:
        test._hypothesis_internal_use_settings = _limited(own)
    case: Any = getattr(item, "cls", None)
    if isinstance(getattr(case, "settings", None), settings):
        case.settings = _limited(case.settings)


def _limited(own: settings) -> settings:
    return settings(own, max_examples=min(own.max_examples, settings().max_examples))
