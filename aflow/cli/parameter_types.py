"""Types of click for the annotations of parameters."""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

import click

_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)

_PLAIN: Final[dict[object, click.ParamType[Any]]] = {
    str: click.STRING,
    int: click.INT,
    float: click.FLOAT,
    bool: click.BOOL,
    Path: click.Path(path_type=Path),
}


@dataclass(frozen=True, slots=True)
class ParameterType:
    """Type of a parameter: ``element``, given once, or repeatedly if there is a type of ``collection``."""

    element: click.ParamType[Any]
    collection: type[list[Any]] | type[tuple[Any, ...]] | None = None


class Duration(click.ParamType[timedelta]):
    """``5s``, ``10m``, ``1h30m``, ``250ms``, ``2d``. A number without a unit is rejected."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        text = str(value).strip()
        if not _DURATION.fullmatch(text):
            self.fail(
                f"{text!r} is no duration; write it like 250ms, 5s, 10m, 1h30m or 2d", param, ctx
            )
        try:
            return sum(
                (float(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta()
            )
        except OverflowError:
            self.fail(f"{text!r} is longer than a duration can be", param, ctx)


class Member(click.ParamType[Enum]):
    """A member of an enum, by its name in any case."""

    name = "member"

    def __init__(self, enum: type[Enum]) -> None:
        self._members = {name.lower(): member for name, member in enum.__members__.items()}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self._members)}]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Enum:
        if isinstance(value, Enum):
            return value
        member = self._members.get(str(value).lower())
        if member is None:
            self.fail(f"{value!r} is none of {', '.join(self._members)}", param, ctx)
        return member


def parameter_type(annotation: object) -> ParameterType | None:
    """Return the type for ``annotation``; None if the command line cannot set it."""
    inner = _without_none(annotation)
    origin, arguments = get_origin(inner), get_args(inner)
    if inner is list or origin in (list, Sequence):
        return _repeated(arguments[0] if arguments else str, list)
    if inner is tuple or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        return _repeated(arguments[0] if arguments else str, tuple)
    single = _single(inner)
    return None if single is None else ParameterType(single)


def default_text(value: object) -> str:
    """Return a default as a user would write it on the command line."""
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, list | tuple):
        items = cast(Sequence[object], value)  # any element is an object
        return ", ".join(default_text(item) for item in items) or "none"
    return str(value)


def _repeated(
    annotation: object, collection: type[list[Any]] | type[tuple[Any, ...]]
) -> ParameterType | None:
    single = _single(annotation)
    return None if single is None else ParameterType(single, collection)


def _single(annotation: object) -> click.ParamType[Any] | None:
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return click.Choice(choices) if all(type(one) is str for one in choices) else None
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return Member(annotation)
    if annotation is timedelta:
        return Duration()
    return next((type_ for known, type_ in _PLAIN.items() if known is annotation), None)


def _without_none(annotation: object) -> object:
    """Return ``X`` for ``X | None``, and any other annotation unchanged."""
    if get_origin(annotation) in (Union, types.UnionType):
        others = [one for one in get_args(annotation) if one is not types.NoneType]
        if len(others) == 1:
            return others[0]
    return annotation


def _duration(value: timedelta) -> str:
    if value < timedelta(0):
        return str(value)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, value = divmod(value, _UNITS[unit])
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"
