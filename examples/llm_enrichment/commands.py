"""The command line: ``run``, ``replay``, ``demo``, and for experiments ``tickets`` and ``fake-server``."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec

import aflow as af
from llm_enrichment.fake_server import FakeProvider, Faults, served
from llm_enrichment.job import Report, Run, execute
from llm_enrichment.pipeline import Limits
from llm_enrichment.sample import sample_tickets

#: Exit status after an interrupt, as a shell reports it.
_INTERRUPTED: Final = 130
_FOLDER: Final = click.Path(file_okay=False, path_type=Path)


def _model_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        (
            click.option(
                "--url", envvar="LLM_URL", default="https://api.openai.com/v1", show_default=True
            ),
            click.option(
                "--key", envvar="LLM_API_KEY", default="", help="Or the variable LLM_API_KEY."
            ),
            click.option("--model", default="gpt-4o-mini", show_default=True),
            click.option(
                "--tokens-per-minute",
                type=click.IntRange(min=1),
                default=Limits.tokens_per_minute,
                show_default=True,
            ),
            click.option(
                "--most-in-flight",
                type=click.IntRange(min=1),
                default=Limits.most_in_flight,
                show_default=True,
                help="The limit adapts to the provider, up to this.",
            ),
            click.option(
                "--attempt-timeout", type=float, default=30.0, show_default=True, metavar="SECONDS"
            ),
            click.option(
                "--checkpoint-every", type=float, default=5.0, show_default=True, metavar="SECONDS"
            ),
        )
    ):
        function = option(function)
    return function


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Classify support tickets with a language model; pay for no ticket twice."""


@main.command()
@click.argument("tickets", type=click.Path(exists=True, path_type=Path))
@click.option("--folder", type=_FOLDER, required=True, help="Output and checkpoints.")
@_model_options
def run(tickets: Path, folder: Path, **options: Any) -> None:
    """Classify TICKETS, a file of JSON lines or a folder of such files.

    The same command continues a run that was interrupted or killed.
    """
    _execute(_run(tickets, folder, **options))


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_model_options
def replay(folder: Path, **options: Any) -> None:
    """Classify the dead letters of the run in FOLDER again, into FOLDER/replay.

    Those that fail again are in FOLDER/replay/dead, and can be replayed with FOLDER/replay.
    """
    _execute(_run(folder / "dead", folder / "replay", **options))


@main.command()
@click.option("--count", type=click.IntRange(min=1), default=1_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def tickets(count: int, seed: int) -> None:
    """Print sample tickets as JSON lines."""
    for ticket in sample_tickets(count, seed=seed):
        click.echo(msgspec.json.encode(ticket))


@main.command()
@click.option("--port", type=int, default=8089, show_default=True, help="0 chooses a free one.")
@click.option("--errors", type=float, default=0.0, help="Share of requests with status 500.")
@click.option("--busy", type=float, default=0.0, help="Share of requests with status 429.")
@click.option("--stalls", type=float, default=0.0, help="Share of requests without an answer.")
@click.option("--latency", type=float, default=0.1, show_default=True, metavar="SECONDS")
@click.option("--tokens-per-minute", type=int, help="Default: no limit.")
def fake_server(
    port: int,
    errors: float,
    busy: float,
    stalls: float,
    latency: float,
    tokens_per_minute: int | None,
) -> None:
    """Serve a stand-in for a provider until Ctrl-C, with the models "small" and "large"."""
    faults = Faults(
        errors=errors,
        busy=busy,
        stalls=stalls,
        latency_s=latency,
        tokens_per_minute=tokens_per_minute,
    )

    async def serve() -> None:
        async with served(FakeProvider(faults), port=port) as url:
            print(f"serving {url}", flush=True)
            await asyncio.Event().wait()

    asyncio.run(serve())


@main.command()
@click.option("--count", type=click.IntRange(min=1), default=1_000, show_default=True)
def demo(count: int) -> None:
    """Classify sample tickets with a stand-in for a provider, and replay the dead letters with its larger model."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_demo(count, Path(folder)))


async def _demo(count: int, folder: Path) -> None:
    tickets, output = folder / "tickets.jsonl", folder / "output"
    tickets.write_bytes(msgspec.json.Encoder().encode_lines(list(sample_tickets(count))))
    provider = FakeProvider(Faults(errors=0.03, busy=0.03, stalls=0.005))
    limits = Limits(tokens_per_minute=2_000_000, attempt_timeout=timedelta(seconds=2))
    async with served(provider) as url:
        first = Run(tickets=tickets, folder=output, url=url, model="small", limits=limits)
        _show(await execute(first))
        print("\nreplay of the dead letters with the large model:")
        again = Run(
            tickets=output / "dead", folder=output / "replay", url=url, model="large", limits=limits
        )
        _show(await execute(again))
    print("\nthe provider counted:", dict(sorted(provider.counts.items())))


def _run(
    tickets: Path,
    folder: Path,
    *,
    url: str,
    key: str,
    model: str,
    tokens_per_minute: int,
    most_in_flight: int,
    attempt_timeout: float,
    checkpoint_every: float,
) -> Run:
    limits = Limits(
        tokens_per_minute=tokens_per_minute,
        most_in_flight=most_in_flight,
        attempt_timeout=timedelta(seconds=attempt_timeout),
    )
    return Run(
        tickets=tickets,
        folder=folder,
        url=url,
        model=model,
        key=key,
        limits=limits,
        checkpoint_every=timedelta(seconds=checkpoint_every),
    )


def _execute(run: Run) -> None:
    try:
        report = asyncio.run(execute(run))
    except af.AflowError as error:
        raise click.ClickException(str(error)) from error
    _show(report)
    if not report.is_complete:
        print("interrupted; the same command continues")
        click.get_current_context().exit(_INTERRUPTED)


def _show(report: Report) -> None:
    print("\n".join(report.lines()), flush=True)
