"""Costs of the test run that no test needs: garbage collections, waits for the disk, and examples in ``make unit``.

Hypothesis also draws constants from the source code of all imported modules. The profiles that check few examples do
without: reading the modules takes 3 s in each process, and the examples of a property would depend on what the process
has imported before.

It also removes the limits of Hypothesis on elapsed time, which fail tests on a busy machine.

A plugin that ``tests/conftest.py`` registers.
"""

from __future__ import annotations

import gc
import math
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.charmap import intervals_from_codec

if TYPE_CHECKING:
    from _typeshed import HasFileno

#: The checks of Hypothesis on the time that it takes to draw values.
TIMED: Final = (HealthCheck.too_slow,)

#: Profiles of Hypothesis. ``ALL`` checks as many examples of a property as it says, or 100: ``make properties``.
#: ``SUITE``, the default, checks a quarter of them: ``make test``. In CI, Hypothesis chooses the same in each run.
#: ``UNIT`` checks ten at most, and no more than ``SUITE``: ``make unit``.
ALL: Final = "all"
SUITE: Final = "suite"
UNIT: Final = "unit"

#: Fewest examples of a property in ``SUITE``, if it does not say fewer.
_FEWEST: Final = 15

#: The module of Hypothesis that draws values, and its function that reads the constants of modules.
_PROVIDERS: Final[Any] = import_module("hypothesis.internal.conjecture.providers")
_READ_CONSTANTS: Final = "_get_local_constants"
_constants_of_modules: Final[Any] = getattr(_PROVIDERS, _READ_CONSTANTS, None)

#: Attribute of functions and classes whose settings are limited.
_LIMITED: Final = "_aflow_limited"

settings.register_profile(ALL, settings(), deadline=None, suppress_health_check=TIMED)
settings.register_profile(SUITE, settings.get_profile(ALL), max_examples=25)
settings.register_profile(UNIT, settings.get_profile(ALL), max_examples=10)
settings.load_profile(SUITE)


def pytest_configure() -> None:
    os.fsync = check_descriptor
    setattr(_PROVIDERS, _READ_CONSTANTS, _constants)


def _constants() -> object:
    """Read the constants of imported modules in ``ALL`` only."""
    if settings.get_current_profile_name() == ALL:
        return _constants_of_modules()
    return _PROVIDERS._local_constants  # none were read


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compute the characters of text once for all processes of xdist, while they collect: it takes 2 s.

    Hypothesis stores them in a file.
    """
    if getattr(session.config.option, "numprocesses", None):
        intervals_from_codec("utf-8")


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


class _Exempt:
    """The file before whose first test all objects were exempted from garbage collections."""

    file = ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Exempt what earlier files left, such as the results of a session's fixture, before the first test of a file.

    Some tests end the exemption, of the collected tests too.
    """
    file, _, _ = item.location
    if file != _Exempt.file:
        _Exempt.file = file
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The parameters of a test share its function.
    tests = {id(test): test for item in items if (test := getattr(item, "obj", None)) is not None}
    cases = {id(case): case for item in items if (case := getattr(item, "cls", None)) is not None}
    for test in tests.values():
        limit_property(test)
    for case in cases.values():
        limit_rules(case)


def limit_property(test: Any) -> None:
    """Apply the profile to a property where its ``@settings`` override it: limits on time and on examples."""
    # Methods share the settings of their function.
    function = getattr(test, "__func__", test)
    # Hypothesis reads the settings of a function from this attribute.
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None and not hasattr(function, _LIMITED):
        function._hypothesis_internal_use_settings = _limited(own)
        setattr(function, _LIMITED, True)


def limit_rules(case: Any) -> None:
    """Apply the profile to a state machine of Hypothesis, as to a property."""
    if isinstance(getattr(case, "settings", None), settings) and _LIMITED not in vars(case):
        case.settings = _limited(case.settings)
        setattr(case, _LIMITED, True)


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
    quarter = max(math.ceil(own.max_examples / 4), min(own.max_examples, _FEWEST))
    return min(quarter, settings().max_examples) if profile == UNIT else quarter
