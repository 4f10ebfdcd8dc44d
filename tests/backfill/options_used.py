"""Public options of steps, found by inspection, and those that a function passes to the steps that it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final, cast, get_type_hints

import pytest

import aflow as af
from aflow.api.windowed import WindowedStream
from aflow.runtime.calls.options import CallOptions

#: Classes whose public methods add steps.
STREAMS: Final[list[type]] = [
    af.Stream,
    af.KeyedStream,
    WindowedStream,
    af.streams.ConnectedStreams,
]
#: Public classes and functions whose results are passed to steps.
VALUES: Final[list[tuple[ModuleType, str]]] = [
    *((af, name) for name in ("Tumbling", "Sliding", "Session", "Count", "Retry", "Resource")),
    (af.windows, "DynamicSession"),
    *((af.calls, name) for name in ("Adaptive", "Cache", "CircuitBreaker", "RateLimit")),
    *((af.calls, name) for name in ("Fallback", "DeadLetter")),
    *((af.triggers, name) for name in ("ContinuousEventTime", "Count", "Delta", "EventTime")),
    *((af.triggers, name) for name in ("Purging", "ContinuousProcessingTime")),
    *((af.evictors, name) for name in ("Count", "Delta", "Time")),
    *((af.aggregates, name) for name in af.aggregates.__all__),
]

_CALL_OPTIONS: Final = tuple(get_type_hints(CallOptions))


def known() -> set[str]:
    """All public options."""
    methods = {
        f"{cls.__name__}.{name}({option})"
        for cls in STREAMS
        for name, method in _methods(cls)
        for option in _options(method, own=True)
    }
    values = {
        f"{_called(module, name)}({option})"
        for module, name in VALUES
        for option in _options(getattr(module, name), own=False)
    }
    return methods | values


def used_by(make: Callable[[], object]) -> set[str]:
    """Options passed while ``make`` runs."""
    used: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for cls in STREAMS:
            for name, method in _methods(cls):
                patch.setattr(cls, name, _noting(method, f"{cls.__name__}.{name}", used))
        for module, name in VALUES:
            made = getattr(module, name)
            if inspect.isclass(made):
                patch.setattr(made, "__init__", _noting(made.__init__, _called(module, name), used))
            else:
                patch.setattr(module, name, _noting(made, _called(module, name), used))
        make()
    return used


def _methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            yield name, method


def _called(module: ModuleType, name: str) -> str:
    return name if module is af else f"{module.__name__.rpartition('.')[2]}.{name}"


def _options(function: Callable[..., Any], *, own: bool) -> Iterator[str]:
    """Parameters of ``function``, without ``self``."""
    for name, parameter in list(inspect.signature(function).parameters.items())[own:]:
        if parameter.kind is parameter.VAR_KEYWORD and name == "options":
            yield from _CALL_OPTIONS
        elif parameter.kind is not parameter.VAR_KEYWORD:
            yield name


def _noting(function: Callable[..., Any], name: str, used: set[str]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    is_method = next(iter(signature.parameters), "") == "self"

    def noted(*given: Any, **named: Any) -> Any:
        for option, value in signature.bind(*given, **named).arguments.items():
            # Options in ``**options`` are in a dict of any name.
            more = cast("dict[str, Any]", value) if option in ("options", "kwargs") else [option]
            used.update(f"{name}({one})" for one in more if not (is_method and one == "self"))
        return function(*given, **named)

    return noted
