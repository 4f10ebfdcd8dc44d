"""The parameters of a user's ``build`` function as options of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
from click.core import ParameterSource

from aflow.cli.target import Target
from aflow.cli.usage import UsageProblem
from aflow.cli.values import Reading, reading, written

_MISSING: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class BuildOption:
    """One parameter of ``build``, as far as the command line can give it."""

    parameter: inspect.Parameter
    reading: Reading

    @property
    def name(self) -> str:
        """What click calls it: apart from every option that aflow itself has."""
        return f"build_{self.parameter.name}"

    def as_click(self) -> click.Option:
        """The option as click reads it. What is not given is left to the default of ``build`` itself."""
        flag = f"--{self.parameter.name.replace('_', '-')}"
        required = self.parameter.default is _MISSING
        default = None if required else self.parameter.default
        said = f"no-{flag[2:]}" if default is False else written(default)
        negatable = self.reading.one is click.BOOL and self.reading.collected is None
        return click.Option(
            [f"{flag}/--no-{flag[2:]}" if negatable else flag, self.name],
            type=self.reading.one,
            required=required,
            multiple=self.reading.collected is not None,
            help=None if default is None else f"[default: {said}]",
        )

    def value(self, given: Any) -> object:
        """``given`` by click, as ``build`` wants it."""
        return given if self.reading.collected is None else self.reading.collected(given)


def build_options(target: Target, function: Callable[..., object]) -> list[BuildOption]:
    """What can be given to ``function``. Raises ``UsageProblem`` if it needs what no command line can give."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageProblem(
            f"{target} is a coroutine function; a build function only describes a pipeline and waits for nothing, "
            f"so make it a plain def and open connections in sources, sinks and process functions"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as exc:
        raise UsageProblem(f"{target} cannot be asked for its parameters: {exc}") from exc
    return [
        option
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and (option := _build_option(target, function, parameter)) is not None
    ]


def call_build(
    function: Callable[..., object], options: Sequence[BuildOption], context: click.Context
) -> object:
    """Call ``function`` with what a parsed command line gives, and its own defaults for the rest."""
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
    target: Target, function: Callable[..., object], parameter: inspect.Parameter
) -> BuildOption | None:
    """None for a parameter with a default that no command line can change."""
    annotation = _annotation(function, parameter)
    found = reading(annotation)
    if found is not None:
        return BuildOption(parameter, found)
    if parameter.default is not _MISSING:
        return None
    raise UsageProblem(
        f"{target} needs a parameter that no command line can give: {parameter}; give it a default, or write a "
        f"function beside it that takes str, int, float, bool, Path, timedelta, an Enum, a Literal of strings or "
        f"a list of these, and calls it"
    )


def _annotation(function: Callable[..., object], parameter: inspect.Parameter) -> object:
    """The parameter's type: as annotated, else that of its default, else str.

    A string (``from __future__ import annotations``) is evaluated where the function was written, each on its own, so a
    name that exists for type checkers only spoils no more than its own parameter.
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
