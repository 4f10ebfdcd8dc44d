"""Parameters of a user's ``build`` function as options of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
from click.core import ParameterSource

from aflow.cli.errors import UsageProblem
from aflow.cli.parameter_types import ParameterType, default_text, parameter_type

_MISSING: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class BuildOption:
    """One parameter of ``build`` that the command line can set."""

    parameter: inspect.Parameter
    type: ParameterType

    @property
    def name(self) -> str:
        """Name for click, different from those of aflow's own options."""
        return f"build_{self.parameter.name}"

    def as_click(self) -> click.Option:
        """Return the option of click. If it is not given, the default of ``build`` itself applies."""
        flag = f"--{self.parameter.name.replace('_', '-')}"
        required = self.parameter.default is _MISSING
        default = None if required else self.parameter.default
        text = f"no-{flag[2:]}" if default is False else default_text(default)
        negatable = self.type.element is click.BOOL and self.type.collection is None
        return click.Option(
            [f"{flag}/--no-{flag[2:]}" if negatable else flag, self.name],
            type=self.type.element,
            required=required,
            multiple=self.type.collection is not None,
            help=None if default is None else f"[default: {text}]",
        )

    def value(self, given: Any) -> object:
        """Convert the value of click for ``build``."""
        return given if self.type.collection is None else self.type.collection(given)


def build_options(target: str, function: Callable[..., object]) -> list[BuildOption]:
    """Return the options of ``function``. Raises ``UsageProblem`` if a parameter cannot be set on the command line."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageProblem(
            f"{target} is a coroutine function; a build function describes a pipeline and does not wait, "
            f"so make it a plain def and open connections in sources, sinks and process functions"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as exc:
        raise UsageProblem(f"cannot read the parameters of {target}: {exc}") from exc
    return [
        option
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and (option := _build_option(target, function, parameter)) is not None
    ]


def call_build(
    function: Callable[..., object], options: Sequence[BuildOption], context: click.Context
) -> object:
    """Call ``function`` with the values of a parsed command line, and its own defaults for the rest."""
    given = {
        option.parameter.name: option.value(context.params[option.name])
        for option in options
        if context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }
    in_order = [
        given.pop(parameter.name, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.POSITIONAL_ONLY
    ]
    return function(*in_order, **given)


def _build_option(
    target: str, function: Callable[..., object], parameter: inspect.Parameter
) -> BuildOption | None:
    """Return None for a parameter with a default that cannot be set on the command line."""
    annotation = _annotation(function, parameter)
    found = parameter_type(annotation)
    if found is not None:
        return BuildOption(parameter, found)
    if parameter.default is not _MISSING:
        return None
    raise UsageProblem(
        f"{target} has a parameter that cannot be set on the command line: {parameter}; give it a default, or add a "
        f"function that takes str, int, float, bool, Path, timedelta, an Enum, a Literal of strings or "
        f"a list of these, and calls it"
    )


def _annotation(function: Callable[..., object], parameter: inspect.Parameter) -> object:
    """Return the type of the parameter: as annotated, else that of its default, else str.

    A string (``from __future__ import annotations``) is evaluated in the module of the function, each separately, so a
    name that exists for type checkers only affects no other parameter.
    """
    annotation: object = parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, getattr(inspect.unwrap(function), "__globals__", {}))
        except Exception:
            return annotation
    if annotation is not _MISSING:
        return annotation
    default: object = parameter.default
    return str if default is _MISSING or default is None else type(default)
