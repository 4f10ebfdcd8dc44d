"""Costs of the test run that no test needs: garbage collections, waits for the disk, and examples in ``make unit``.

It also removes the limits of Hypothesis on elapsed time, which fail tests on a busy machine.

A plugin that ``tests/conftest.py`` registers.
"""

from __future__ import annotations

import gc
import math
import os
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from _typeshed import HasFileno

#: The checks of Hypothesis on the time that it takes to draw values.
TIMED: Final = (HealthCheck.too_slow,)

#: Profiles of Hypothesis. ``ALL`` checks as many examples of a property as it says, or 100: ``make properties``.
#: ``SUITE``, the default, checks half of them: ``make test``. In CI, Hypothesis chooses the same examples in each run.
#: ``UNIT`` checks ten at most, and no more than ``SUITE``: ``make unit``.
ALL: Final = "all"
SUITE: Final = "suite"
UNIT: Final = "unit"

settings.register_profile(ALL, settings(), deadline=None, suppress_health_check=TIMED)
settings.register_profile(SUITE, settings.get_profile(ALL), max_examples=50)
settings.register_profile(UNIT, settings.get_profile(ALL), max_examples=10)
settings.load_profile(SUITE)


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
    for item in items:
        limit_property(item)


def limit_property(item: pytest.Item) -> None:
    """Apply the profile to a property where its ``@settings`` override it: limits on time and on examples."""
    test: Any = getattr(item, "obj", None)
    # Hypothesis reads the settings of a function from this attribute, and those of rules from the class.
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None:
        test._hypothesis_internal_use_settings = _limited(own)
    case: Any = getattr(item, "cls", None)
    if isinstance(getattr(case, "settings", None), settings):
        case.settings = _limited(case.settings)


def _limited(own: settings) -> settings:
    return settings(
        own,
        deadline=None,
        suppress_health_check=tuple({*own.suppress_health_check, *TIMED}),
        max_examples=_examples(own),
    )


def _examples(own: settings) -> int:
    profile = settings.get_current_profile_name()
    if profile == ALL or own.max_examples == settings().max_examples:  # that of the profile
        return own.max_examples
    half = math.ceil(own.max_examples / 2)
    return min(half, settings().max_examples) if profile == UNIT else half
