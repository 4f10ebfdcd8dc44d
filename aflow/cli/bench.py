"""``aflow bench``: a load for a flow, the comparison of two runs, and a load for a service over HTTP."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from types import FrameType
from typing import Any, Final, cast

import click
from rich.console import Console

from aflow.cli.errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    USAGE,
    UsageProblem,
    errors_reported,
    logged_to_terminal,
    say,
)
from aflow.cli.options import (
    NAMES,
    NO_UVLOOP,
    TARGETED,
    arrival_options,
    checkpoint_options,
    for_targets,
    given_on_command_line,
    measurement_options,
    recovery_settings,
)
from aflow.cli.parameter_types import Duration
from aflow.cli.runner import loop_factory
from aflow.cli.target import Invocation, invocation
from aflow.errors import FlowDefinitionError
from aflow.model.distribution import install_command

_GROUP_HELP: Final = """Measure a flow under load: latency and throughput at a rate, or the highest rate.

\b
    aflow bench package.module:build --source payments=generator:make --rate 5000 --duration 30s --report report.html
    aflow bench package.module:build --source payments=generator:make --rate 1000 --find-max --p99 50ms
    aflow bench compare before.json after.json
    aflow bench http http://127.0.0.1:8000/score --body generator:make --rate 500

'aflow bench TARGET' is 'aflow bench run TARGET'; 'aflow bench run --help' lists its options.
"""


class _BenchGroup(click.Group):
    """A group whose command ``run`` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named or not args else ["run", *args])


@click.group(cls=_BenchGroup, help=_GROUP_HELP, context_settings=NAMES)
def bench() -> None:
    """The ``aflow bench`` command."""


@bench.command("run", context_settings=TARGETED)
@for_targets
@checkpoint_options
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME=RECORDS",
    help="Replace a source: MODULE:FUNCTION (without parameters, returns an iterable; or of a number, returns a "
    "record), FILE.jsonl or FILE.txt, which is repeated.",
)
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="[NAME=]RATE",
    help="Records per second: 5000, 100..5000 (ramp), 1000:10s,5000:20s (steps).",
)
@arrival_options
@click.option(
    "--times",
    metavar="FIELD",
    help="Take the intended times from a field of the records of a file.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Replay --times so many times as fast.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    help="A closed loop with so many records in the pipeline, in place of --rate.",
)
@click.option(
    "--keep", multiple=True, metavar="SINK", help="Do not replace this sink by a recorder."
)
@click.option("--oracle", metavar="MODULE:FUNCTION", help="Check the records sent and the results.")
@click.option(
    "--equal", multiple=True, metavar="SINK=SINK", help="Check that two sinks get equal results."
)
@click.option(
    "--find-max", is_flag=True, help="Search the highest sustained rate; --rate is the first."
)
@click.option("--p99", type=Duration(), help="Bound of the latency for --find-max.")
@click.option(
    "--percentile",
    type=click.FloatRange(0, 100, min_open=True, max_open=True),
    default=99.0,
    show_default=True,
    help="The percentile that --p99 bounds.",
)
@measurement_options
@NO_UVLOOP
@click.pass_context
def run(
    context: click.Context, /, target: str, arguments: tuple[str, ...], traceback: bool, **_: object
) -> None:
    """Run a flow with generated records, and measure it.

    PACKAGE.MODULE:NAME and the options after it are those of 'aflow run'. Parameters of the function for sources and
    sinks are set. Sinks are replaced by recorders, which count results and drop them.

    Latency counts from the intended time of each record. Ctrl-C ends the run and reports what was measured; a second
    one ends it at once.

    Exit status: 0 measured, 1 the pipeline failed or was slower than the load, 2 the command line is wrong, 130
    interrupted.
    """
    with errors_reported(context, traceback=traceback or "--traceback" in arguments):
        _require_extra()
        from aflow.bench.ends import with_placeholders

        names = _names_of_sources(context, arguments)
        invoked = invocation(
            context, target, arguments, bind=lambda build: with_placeholders(build, names)
        )
        context.exit(_LoadCommand(invoked).run())


@bench.command("compare", context_settings=NAMES)
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.05,
    show_default=True,
    help="The relative difference that does not count.",
)
@click.pass_context
def compare_command(context: click.Context, before: str, after: str, tolerance: float) -> None:
    """Compare two results that --json has written, with confidence intervals.

    Exit status: 0 nothing is worse, 1 a figure is worse or missing in the second result or only that one has errors,
    2 they cannot be compared.
    """
    _require_extra()
    from aflow.bench.comparison import compare
    from aflow.bench.result import BenchError, load_result
    from aflow.cli.bench_view import comparison_view

    try:
        comparison = compare(load_result(before), load_result(after), tolerance=tolerance)
    except BenchError as exc:
        say(f"Error: {exc}")
        context.exit(USAGE)
    _console().print(comparison_view(comparison))
    context.exit(FAILED if comparison.is_worse else DONE)


@bench.command("http", context_settings=NAMES)
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--body",
    metavar="RECORDS",
    help="Bodies: MODULE:FUNCTION, FILE.jsonl or FILE.txt, as for --source; without it, requests have none.",
)
@click.option("--rate", required=True, metavar="RATE", help="Requests per second, as for a source.")
@arrival_options
@click.option("--method", default="POST", show_default=True, help="Method of the requests.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header.")
@click.option("--timeout", type=Duration(), default="30s", show_default=True, help="Of a request.")
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The most requests under way; later ones wait, with their latency running.",
)
@measurement_options
@NO_UVLOOP
@click.pass_context
def http_command(context: click.Context, /, urls: tuple[str, ...], **settings: Any) -> None:
    """Send requests to a service, from this process, and measure the responses.

    Several URLs get requests in turn.

    Exit status: 0 measured, 1 requests failed or the service was slower than the load, 2 the command line is wrong, 130
    interrupted.
    """
    with errors_reported(context, traceback=False):
        _require_extra()
        from aflow.cli.bench_options import check_file, check_given

        check_given(given_on_command_line(context))
        check_file(settings["json_file"])
        check_file(settings["report"])
        work = _measure_http(urls, settings)
        context.exit(_run_loop(work, uvloop=not settings["no_uvloop"], quiet=settings["quiet"]))


def _run_loop(work: Coroutine[Any, Any, int], *, uvloop: bool, quiet: bool) -> int:
    """Run ``work`` on an event loop, and return the exit status. If ``quiet``, no warnings are logged to the terminal.

    A ``FlowDefinitionError`` is one of the command line: the failure of a job that runs is in its result.
    """
    try:
        with (
            logged_to_terminal(logging.ERROR if quiet else logging.WARNING),
            asyncio.Runner(loop_factory=loop_factory(uvloop)) as runner,
        ):
            return runner.run(work)
    except FlowDefinitionError as exc:
        raise UsageProblem(str(exc)) from exc
    except KeyboardInterrupt:
        say("stopped at once: nothing is reported")
        return INTERRUPTED


async def _measure_http(urls: Sequence[str], settings: dict[str, Any]) -> int:
    from aflow.bench.http_load import HttpTarget, http_load
    from aflow.bench.load_run import default_warmup
    from aflow.bench.record_supply import SourceLoad
    from aflow.cli.bench_options import LoadOptions, loads_of, pairs_of, schedule_of
    from aflow.cli.bench_view import sample_display

    duration, warmup = settings["duration"], settings["warmup"]
    whole = duration + (default_warmup(duration) if warmup is None else warmup)
    options = LoadOptions(
        sources=[f"body={settings['body']}"],
        rates=[settings["rate"]],
        poisson=settings["poisson"],
        seed=settings["seed"],
        times=None,
        speed=1.0,
        in_flight=None,
        whole=whole,
    )
    bodies = (
        SourceLoad([None], schedule_of(settings["rate"], options))
        if settings["body"] is None
        else loads_of(options)["body"]
    )
    stop = asyncio.Event()
    display = sample_display(_console(stderr=True), say, quiet=settings["quiet"])
    with _first_interrupt(stop), display as show:
        result = await http_load(
            HttpTarget(
                urls=urls,
                method=settings["method"],
                headers=dict(pairs_of(settings["headers"], "--header", "authorization=secret")),
                timeout=settings["timeout"],
                in_flight=settings["in_flight"],
            ),
            bodies,
            duration=duration,
            warmup=warmup,
            on_sample=show,
            stop=stop,
        )
    return _shown(result, settings["json_file"], settings["report"])


def _shown(result: Any, json_file: str | None, report: str | None) -> int:
    """Print and write a result; return the exit status."""
    from aflow.bench.report import save_report
    from aflow.cli.bench_view import result_view

    _console().print(result_view(result))
    if json_file is not None:
        result.save(json_file)
    if report is not None:
        save_report(result, report)
    if result.problems:
        return FAILED
    return INTERRUPTED if result.interrupted else DONE


@dataclass(frozen=True, slots=True)
class _LoadCommand:
    """One run of ``aflow bench run``."""

    invoked: Invocation

    def run(self) -> int:
        """Run, print and write; return the exit status."""
        from aflow.cli.bench_options import check_file, check_given

        check_given(self.invoked.given)
        check_file(self.invoked.text("json_file"))
        check_file(self.invoked.text("report"))
        return _run_loop(
            self._run(),
            uvloop=not self.invoked.flag("no_uvloop"),
            quiet=self.invoked.flag("quiet"),
        )

    async def _run(self) -> int:
        stop = asyncio.Event()
        with _first_interrupt(stop):
            if self.invoked.flag("find_max"):
                return await self._search(stop)
            return await self._measure(stop)

    async def _measure(self, stop: asyncio.Event) -> int:
        from aflow.bench.load_run import run as run_load
        from aflow.cli.bench_view import sample_display

        with sample_display(_console(stderr=True), say, quiet=self.invoked.flag("quiet")) as show:
            result = await run_load(
                self.invoked.flow, self._loads(), **self._settings(), on_sample=show, stop=stop
            )
        return self._show(result)

    def _show(self, result: Any) -> int:
        return _shown(result, self.invoked.text("json_file"), self.invoked.text("report"))

    async def _search(self, stop: asyncio.Event) -> int:
        from aflow.bench.arrivals import ConstantRate, PoissonArrivals
        from aflow.bench.rate_search import find_max
        from aflow.bench.record_supply import SourceLoad
        from aflow.cli.bench_options import first_rate
        from aflow.cli.bench_view import max_view, trial_line

        bound = self.invoked.settings["p99"]
        start, seed = first_rate(self._many("rates")), self.invoked.number("seed")
        if not isinstance(bound, timedelta):
            raise click.UsageError("--find-max needs --p99 with a duration, such as --p99 50ms")
        loads = {name: SourceLoad(one.records) for name, one in self._loads().items()}
        percentile = self.invoked.settings["percentile"]
        assert isinstance(percentile, float)
        found = await find_max(
            self.invoked.flow,
            loads,
            bound=bound,
            percentile=percentile,
            start=start,
            schedule=(lambda rate: PoissonArrivals(rate, seed))
            if self.invoked.flag("poisson")
            else ConstantRate,
            on_trial=None if self.invoked.flag("quiet") else lambda trial: say(trial_line(trial)),
            stop=stop,
            **self._settings(),
        )
        best = found.result or (found.trials[-1].result if found.trials else None)
        click.echo(max_view(found))
        if best is not None:
            self._show(best)
        if stop.is_set():
            return INTERRUPTED
        return DONE if found.rate is not None else FAILED

    def _load_options(self) -> Any:
        from aflow.bench.load_run import default_warmup
        from aflow.cli.bench_options import FIRST_RATE, LoadOptions

        duration = self.invoked.duration("duration")
        invoked = self.invoked
        speed, in_flight = invoked.settings["speed"], invoked.settings["in_flight"]
        assert isinstance(speed, float)
        assert in_flight is None or isinstance(in_flight, int)
        rates = self._many("rates")
        return LoadOptions(
            sources=self._many("sources"),
            rates=rates or ([f"{FIRST_RATE:g}"] if invoked.flag("find_max") else []),
            poisson=invoked.flag("poisson"),
            seed=invoked.number("seed"),
            times=invoked.text("times"),
            speed=speed,
            in_flight=in_flight,
            whole=duration + (default_warmup(duration) if self._warmup is None else self._warmup),
        )

    def _loads(self) -> dict[str, Any]:
        from aflow.cli.bench_options import loads_of

        return dict(loads_of(self._load_options()))

    def _settings(self) -> dict[str, Any]:
        from aflow.cli.bench_options import oracle_of, pairs_of

        invoked = self.invoked
        recovery = recovery_settings(invoked.given, invoked.settings)
        return {
            "duration": invoked.duration("duration"),
            "warmup": self._warmup,
            "in_flight": invoked.settings["in_flight"],
            "keep": self._many("keep"),
            "oracle": oracle_of(invoked.text("oracle")),
            "equal": pairs_of(self._many("equal"), "--equal", "old=new"),
            "parallelism": invoked.number("parallelism"),
            "checkpointing": recovery.checkpointing,
            **({"restore": recovery.restore} if "restore" in invoked.given else {}),
            "allow_dropped_state": recovery.allow_dropped_state,
            "restart": recovery.restarts,
        }

    @property
    def _warmup(self) -> timedelta | None:
        value = self.invoked.settings["warmup"]
        return value if isinstance(value, timedelta) else None

    def _many(self, name: str) -> list[str]:
        """Return the values of a repeated option."""
        return _texts(self.invoked.settings[name])


def _texts(values: object) -> list[str]:
    """Return the values of a repeated option of click, which is a tuple."""
    return [str(one) for one in cast("tuple[object, ...]", values)]


def _names_of_sources(context: click.Context, arguments: tuple[str, ...]) -> list[str]:
    """Return the names of ``--source`` before and after the target."""
    texts = _texts(context.params.get("sources") or ())
    for number, one in enumerate(arguments):
        if one == "--source" and number + 1 < len(arguments):
            texts.append(arguments[number + 1])
        elif one.startswith("--source="):
            texts.append(one.removeprefix("--source="))
    return [one.partition("=")[0] for one in texts]


@contextmanager
def _first_interrupt(stop: asyncio.Event) -> Generator[None]:
    """Set ``stop`` at the first SIGINT or SIGTERM during the block; later ones have their usual effect."""
    loop = asyncio.get_running_loop()
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int, _: FrameType | None) -> None:
        say("stopping: the report has what was measured; Ctrl-C again stops at once")
        for one, handler in before.items():
            signal.signal(one, handler)
        loop.call_soon_threadsafe(stop.set)

    for one in before:
        signal.signal(one, receive)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _require_extra() -> None:
    if find_spec("hdrh") is None:
        raise click.ClickException(
            f"aflow bench needs hdrhistogram, which is in the extra 'bench': {install_command('bench')}"
        )


def _console(*, stderr: bool = False) -> Console:
    return Console(markup=False, highlight=False, stderr=stderr)
