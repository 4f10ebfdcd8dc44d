"""Commands that take a flow: their own options, the target, and behind it the options of its build function.

Whatever comes behind the target is parsed again, by a command that is made from the signature of the build function. So
click converts, explains and refuses a user's options as it does ours, and ``--help`` behind the target is about both.
Where both have an option of one name, it is the build function's behind the target and aflow's before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import click
from click.core import ParameterSource

from aflow.api.flow import Flow
from aflow.cli.builders import BuildOption, build_options, call_build
from aflow.cli.recovering import given_on_command_line
from aflow.cli.target import Target, find, parse_target
from aflow.cli.usage import UsageProblem


@dataclass(frozen=True, slots=True)
class Ordered:
    """What the command line asked for: the flow, and the values of the command's own options."""

    flow: Flow
    settings: Mapping[str, object]
    given: frozenset[str]
    """The names of those that were not left to their defaults."""

    def flag(self, name: str) -> bool:
        """Whether the option ``name`` was given."""
        return self.settings[name] is True

    def text(self, name: str) -> str | None:
        """The value of the option ``name``; None if it was not given."""
        value = self.settings[name]
        return None if value is None else str(value)

    def duration(self, name: str) -> timedelta:
        """The value of the option ``name``."""
        value = self.settings[name]
        assert isinstance(value, timedelta)
        return value

    def number(self, name: str) -> int:
        """The value of the option ``name``."""
        value = self.settings[name]
        assert isinstance(value, int)
        return value


def ordered(context: click.Context, target: str, arguments: Sequence[str]) -> Ordered:
    """Import, parse and build. ``context`` is that of the command whose own options may stand behind the target, too.

    Raises ``UsageProblem`` for a wrong command line, ``click.exceptions.Exit`` after ``--help``, and whatever the
    user's module or function raises.
    """
    place = parse_target(target)
    found = find(place)
    options = [] if isinstance(found, Flow) else build_options(place, found)
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
    return Ordered(flow, {**context.params, **given}, given_on_command_line(context) | given.keys())


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
        """The options of the build function first, apart from those of aflow."""
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

    def takes(self, ctx: click.Context) -> str:
        """What the build function can be given, in one sentence."""
        if not self.build:
            return f"{self.place} takes no options of its own."
        said = [
            f"{'|'.join((*one.opts, *one.secondary_opts))}"
            f"{'' if one.is_flag else ' ' + one.make_metavar(ctx)}{' (required)' if one.required else ''}"
            for one in self.build
        ]
        return f"{self.place} takes {', '.join(said)}."


def _parsed(
    command: _TargetCommand, context: click.Context, arguments: Sequence[str]
) -> click.Context:
    name = f"{context.command_path} {command.name}"
    try:
        return command.make_context(name, list(arguments))
    except click.UsageError as exc:
        said = exc.format_message().rstrip(".")
        wrong = said if said.endswith("?") else f"{said}."
        takes = command.takes(exc.ctx or click.Context(command, info_name=name))
        raise UsageProblem(f"{wrong} {takes}", command=name) from None
