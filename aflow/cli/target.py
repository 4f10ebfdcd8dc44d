"""``package.module:name`` on the command line: the flow that it names, and the options of its build function.

A command that takes a flow has its own options, the target, and after it the options of the build function. The part
after the target is parsed again, by a command that is made from the signature of the build function. So click
converts, explains and rejects a user's options as it does those of aflow, and ``--help`` after the target covers
both. If both have an option of one name, it belongs to the build function after the target and to aflow before it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import click
from click.core import ParameterSource

from aflow.api.flow import Flow
from aflow.cli.build_options import BuildOption, build_options, call_build
from aflow.cli.errors import UsageProblem
from aflow.cli.options import given_on_command_line


@dataclass(frozen=True, slots=True)
class Target:
    """A module, and in it a ``Flow`` or a function that builds one.

    A dotted name denotes an attribute of a class.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class Invocation:
    """The flow of a command line, and the values of the command's own options."""

    flow: Flow
    settings: Mapping[str, object]
    given: frozenset[str]
    """Names of the options that do not have their defaults."""

    def flag(self, name: str) -> bool:
        """Return True if the option ``name`` was given."""
        return self.settings[name] is True

    def text(self, name: str) -> str | None:
        """Return the value of the option ``name``; None if it was not given."""
        value = self.settings[name]
        return None if value is None else str(value)

    def duration(self, name: str) -> timedelta:
        """Return the value of the option ``name``."""
        value = self.settings[name]
        assert isinstance(value, timedelta)
        return value

    def number(self, name: str) -> int:
        """Return the value of the option ``name``."""
        value = self.settings[name]
        assert isinstance(value, int)
        return value


def invocation(
    context: click.Context,
    target: str,
    arguments: Sequence[str],
    *,
    bind: Callable[[Callable[..., object]], Callable[..., object]] | None = None,
) -> Invocation:
    """Import, parse and build. ``context`` is that of the command; its options are accepted after the target, too.

    ``bind`` sets parameters of the build function that are no options.

    Raises ``UsageProblem`` for a wrong command line, ``click.exceptions.Exit`` after ``--help``, and any error of the
    user's module or function.
    """
    place = parse_target(target)
    found = find(place)
    if bind is not None and not isinstance(found, Flow):
        found = bind(found)
    options = [] if isinstance(found, Flow) else build_options(str(place), found)
    command = _TargetCommand(place, found, options, context.command)
    inner = _parsed(command, context, arguments)
    flow = found if isinstance(found, Flow) else call_build(found, options, inner)
    if not isinstance(flow, Flow):
        raise UsageProblem(
            f"{place} returned {type(flow).__name__}, not a Flow; does it end with 'return flow'?"
        )
    given = {
        name: inner.params[name]
        for name in context.params
        if inner.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    all_given = given_on_command_line(context) | given.keys()
    return Invocation(flow, {**context.params, **given}, all_given)


class _TargetCommand(click.Command):
    """``aflow run package.module:build`` as a command of its own."""

    def __init__(
        self, place: Target, found: object, options: list[BuildOption], outer: click.Command
    ) -> None:
        build = [option.as_click() for option in options]
        taken = {flag for one in build for flag in (*one.opts, *one.secondary_opts)}
        self.build = build
        self.place = place
        self.ours = [
            one
            for one in outer.params
            if isinstance(one, click.Option) and not taken & {*one.opts, *one.secondary_opts}
        ]
        help_text = None if isinstance(found, Flow) else inspect.getdoc(found)
        super().__init__(
            str(place),
            params=[*build, *self.ours],
            help=help_text or f"The flow {place}.",
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the build function first, and those of aflow after them."""
        sections: dict[str, Sequence[click.Option | None]] = {
            f"Options of {self.place}": self.build,
            "Options of aflow": [*self.ours, self.get_help_option(ctx)],
        }
        for title, options in sections.items():
            records = [one.get_help_record(ctx) for one in options if one is not None]
            lines = [record for record in records if record is not None]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def usage(self, ctx: click.Context) -> str:
        """Return the options of the build function in one sentence."""
        if not self.build:
            return f"{self.place} takes no options of its own."
        options = [
            f"{'|'.join((*one.opts, *one.secondary_opts))}"
            f"{'' if one.is_flag else ' ' + one.make_metavar(ctx)}{' (required)' if one.required else ''}"
            for one in self.build
        ]
        return f"{self.place} takes {', '.join(options)}."


def _parsed(
    command: _TargetCommand, context: click.Context, arguments: Sequence[str]
) -> click.Context:
    name = f"{context.command_path} {command.name}"
    try:
        return command.make_context(name, list(arguments))
    except click.UsageError as exc:
        message = exc.format_message().rstrip(".")
        problem = message if message.endswith("?") else f"{message}."
        usage = command.usage(exc.ctx or click.Context(command, info_name=name))
        raise UsageProblem(f"{problem} {usage}", command=name) from None


def parse_target(text: str) -> Target:
    """Parse ``package.module:name``. Raises ``UsageProblem`` with the right form for anything else."""
    module, colon, name = text.partition(":")
    if "/" in module or module.endswith(".py"):
        parts = [part for part in Path(module.removesuffix(".py")).parts if part not in ("/", ".")]
        raise UsageProblem(
            f"{text!r} is a file; name the module instead, seen from the current directory: "
            f"{'.'.join(parts)}:{name or 'build'}"
        )
    if colon and module and name and all(part.isidentifier() for part in name.split(".")):
        return Target(module, name)
    if module and not name:
        names = _candidates(_imported(module))
        known = f" (in {module}: {', '.join(names)})" if names else ""
        raise UsageProblem(f"{text!r} does not name a flow; write {module}:name{known}")
    raise UsageProblem(f"{text!r} is no target; write package.module:build")


def find(target: Target) -> Flow | Callable[..., object]:
    """Import the module, also from the current directory, and look up the name.

    Raises ``UsageProblem`` if there is no such module or name, or if it is neither a flow nor a function. Errors that
    the module raises during the import are not caught.
    """
    found = load_object(str(target))
    if isinstance(found, Flow) or callable(found):
        return found
    raise UsageProblem(
        f"{target} is of type {type(found).__name__}, neither a Flow nor a function that returns one"
    )


def load_object(text: str) -> object:
    """Import ``package.module:name``, also from the current directory. Raises ``UsageProblem``."""
    target = parse_target(text)
    module = _imported(target.module)
    try:
        return attrgetter(target.name)(module)
    except AttributeError:
        raise UsageProblem(_no_such_name(target, module)) from None


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        missing = exc.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise
        raise UsageProblem(
            f"there is no module {missing!r}, neither in the current directory ({here}) nor installed for "
            f"{sys.executable}; write package.module:name as in an import"
        ) from None


def _no_such_name(target: Target, module: ModuleType) -> str:
    names = _candidates(module)
    close = get_close_matches(target.name, names, n=1)
    meant = f"; did you mean {target.module}:{close[0]}?" if close else ""
    known = f", it has {', '.join(names)}" if names else ", nor any Flow or function of its own"
    return f"module {target.module!r} has no {target.name!r}{known}{meant}"


def _candidates(module: ModuleType) -> list[str]:
    """Return the public flows and functions that the module defines, the likely ones first."""
    found = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Flow)
            or (inspect.isfunction(value) and value.__module__ == module.__name__)
        )
    }
    return sorted(found, key=lambda name: (not _is_flow_or_builder(found[name]), name))


def _is_flow_or_builder(value: object) -> bool:
    return isinstance(value, Flow) or "Flow" in str(
        getattr(value, "__annotations__", {}).get("return")
    )
