"""Rounds of clients and kills, and the table of their figures."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.crash.attempt import ProgramFailed
from bench.crash.cpu import limited
from bench.crash.payments.clients import Client, Ledger, Sent, WrongAnswer, clients
from bench.crash.payments.oracle import differences, duplicates, lost
from bench.crash.payments.results import Results, read_results
from bench.crash.payments.server import Kill, Moment, Server, random_kill, running

#: Kills of a round.
_MOST: Final = 25
#: Milliseconds of a row of ``minutes``, and of the delay after which a payment is late: some payments are.
_MINUTE_MS: Final = 2_000
_DELAY_MS: Final = 1_000
#: Milliseconds between the clock and the payment that ends all minutes; the service takes up to 60 s.
_AHEAD_MS: Final = 50_000
#: Timeout in seconds of a round, for each kill, without those in which the clients wait for a CPU.
_SECONDS: Final = 10

#: A small log, which is full at times; short minutes; checkpoints about as often as kills.
SETTINGS: Final[Mapping[str, str]] = {
    "FRAUD_MAX_BYTES": "150000",
    "FRAUD_FULL_SECONDS": "0.05",
    "FRAUD_ID_SECONDS": "20",  # longer than it takes to start after a kill and get repeated payments
    "FRAUD_WINDOW_SECONDS": str(_MINUTE_MS / 1000),
    "FRAUD_DELAY_SECONDS": str(_DELAY_MS / 1000),
    "FRAUD_CHECKPOINT_SECONDS": "0.2",
}


@dataclass(frozen=True, slots=True)
class Round:
    """Result of a round."""

    kills: Sequence[Kill]
    ledger: Ledger
    results: Results | None
    """None if the service has failed."""
    wrong: Sequence[str]
    """Differences from what the clients know, or the failure of the service; empty if there is none."""


async def run_round(folder: Path, kills: Sequence[Kill], seed: str) -> Round:
    """Kill the service in ``folder``, which is empty, under requests, and compare its results."""
    place, ledger, closed_before = folder, Ledger(), 0
    failures: list[str] = []
    try:
        async with running(folder, SETTINGS) as server:
            place = server.place
            play = _play(server, kills, ledger, seed)
            closed_before = await limited(play, _SECONDS * (len(kills) + 10))
    except* TimeoutError:
        failures.append("the clients do not come to an end")
    except* (ProgramFailed, WrongAnswer) as group:
        failures += [str(error) for error in leaves(group)]
    if failures:
        return Round(kills, ledger, None, failures)
    results = read_results(place)
    wrong = differences(ledger, results, minute_ms=_MINUTE_MS, closed_before=closed_before)
    return Round(kills, ledger, results, wrong)


def leaves(group: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """Yield the errors of a group and its groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


async def _play(server: Server, kills: Sequence[Kill], ledger: Ledger, seed: str) -> int:
    """Kill the service under requests, and stop it. Return the time before which minutes ended."""
    async with clients(server, ledger, seed):
        for kill in kills:
            await server.start_and_kill(kill)
        await server.start()
        await asyncio.sleep(0.5)
    return await _finish(server, ledger, seed)


async def _finish(server: Server, ledger: Ledger, seed: str) -> int:
    """End all minutes by a payment in the future, and stop the service. Return the time before which minutes ended."""
    at = time.time_ns() // 1_000_000 + _AHEAD_MS
    last = Sent("closing", "the last payment", "shop", 1, at, is_valid=True)
    async with aiohttp.ClientSession() as session:
        # Its decision follows those of all other payments.
        await Client(-1, server, session, ledger, seed).settle(last, asks=True)
    await server.stop()
    return at - _DELAY_MS


@dataclass(slots=True)
class Total:
    """Figures of all rounds."""

    rounds: int = 0
    kills: int = 0
    accepted: int = 0
    refused: int = 0
    repeats: int = 0
    answers: int = 0
    """Answers to questions that were compared."""
    unscored: int = 0
    late: int = 0
    duplicates: int = 0
    lost: int = 0
    rounds_that_differ: int = 0

    def add(self, one: Round) -> None:
        """Add the figures of a round."""
        self.rounds += 1
        self.kills += len(one.kills)
        self.accepted += len(one.ledger.accepted)
        self.refused += len(one.ledger.refused)
        self.repeats += one.ledger.repeats
        self.answers += len(one.ledger.decisions)
        self.rounds_that_differ += bool(one.wrong)
        if one.results is not None:
            self.unscored += len(one.results.unscored)
            self.late += len(one.results.late)
            self.duplicates += duplicates(one.results)
            self.lost += lost(one.ledger, one.results)


def prove_service(
    kills: int, seed: int, folder: Path, *, console: Console
) -> tuple[bool, dict[str, Any]]:
    """Kill the service ``kills`` times, print a report, and return True if all results are right, and the figures.

    The folders of rounds with other results are kept.
    """
    total, moments = Total(), Counter[Moment]()
    while total.kills < kills and not total.rounds_that_differ:
        with console.status(f"service: {total.kills} of {kills} kills"):
            name = f"service-{total.rounds}"
            random = Random(f"{seed} {name}")
            planned = [random_kill(random) for _ in range(min(_MOST, kills - total.kills))]
            (folder / name).mkdir(parents=True)
            one = asyncio.run(run_round(folder / name, planned, f"{seed} {name}"))
        total.add(one)
        moments.update(kill.moment for kill in planned)
        if one.wrong:
            console.print(f"[bold red]service[/]: the results in {folder / name} are wrong")
            for line in one.wrong[:20]:
                console.print(escape(line), soft_wrap=True)
        else:
            shutil.rmtree(folder / name)
    console.print(_table(total, moments))
    figures = {name: getattr(total, name) for name in Total.__slots__}
    figures["moments"] = {moment.name.lower(): moments[moment] for moment in Moment}
    return not total.rounds_that_differ, figures


def _table(total: Total, moments: Counter[Moment]) -> Table:
    table = Table("figure", "value", title="service")
    for name in Total.__slots__:
        table.add_row(name.replace("_", " "), f"{getattr(total, name):,}")
    for moment in Moment:
        table.add_row(f"kills after: {moment.value}", f"{moments[moment]:,}")
    return table
