"""Options of ``aflow bench``: the loads of sources, and schedules of arrivals."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import click
import orjson

from aflow.bench.arrivals import (
    ArrivalSchedule,
    ConstantRate,
    PoissonArrivals,
    RampedRate,
    RecordedArrivals,
    SteppedRate,
)
from aflow.bench.record_supply import SourceLoad
from aflow.cli.parameter_types import Duration
from aflow.cli.target import load_object
from aflow.errors import described

#: The first rate of a search without ``--rate``.
FIRST_RATE: Final = 1000.0

_RATE_HELP: Final = "write 5000, 100..5000 for a ramp, or 1000:10s,5000:20s for steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options about loads, as texts."""

    sources: Sequence[str]
    rates: Sequence[str]
    poisson: bool
    seed: int
    times: str | None
    speed: float
    in_flight: int | None
    whole: timedelta
    """Warm-up and measured part together: the time of a ramp."""


#: Options that change another one, which must be given too.
_NEEDS: Final = {
    "p99": ("find_max", "--p99 is the bound of --find-max"),
    "percentile": ("find_max", "--percentile belongs to --find-max"),
    "speed": ("times", "--speed belongs to --times"),
    "seed": ("poisson", "--seed belongs to --poisson"),
}

#: Options that contradict each other.
_EXCLUDE: Final = (
    ("times", "poisson", "--times are the arrivals of a file, which are not those of --poisson"),
    ("find_max", "times", "--find-max searches a rate, so it has no --times"),
    (
        "find_max",
        "in_flight",
        "--find-max searches a rate, so it is no closed loop: no --in-flight",
    ),
)


def check_given(given: Collection[str]) -> None:
    """Raise ``click.UsageError`` if one of the options that were given would be ignored."""
    for name, (needed, text) in _NEEDS.items():
        if name in given and needed not in given:
            raise click.UsageError(f"{text}, which is missing")
    for one, other, text in _EXCLUDE:
        if one in given and other in given:
            raise click.UsageError(text)


def check_file(path: str | None) -> None:
    """Raise ``click.UsageError`` if ``path`` cannot be written after the run."""
    if path is None:
        return
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise click.UsageError(f"{path} cannot be written: there is no folder {str(folder)!r}")
    if not os.access(path if Path(path).exists() else folder, os.W_OK):
        raise click.UsageError(f"{path} cannot be written: permission denied")


def first_rate(rates: Sequence[str]) -> float:
    """Return the first rate of a search. Raises ``click.UsageError``."""
    if not rates:
        return FIRST_RATE
    if len(rates) > 1 or "=" in rates[0]:
        raise click.UsageError(
            "--find-max searches one rate, which all sources get: write --rate 1000 once, without a name"
        )
    if ".." in rates[0] or ":" in rates[0]:
        raise click.UsageError(
            "--find-max searches a constant rate: --rate is the first one, such as --rate 1000"
        )
    return _number(rates[0])


def loads_of(options: LoadOptions) -> dict[str, SourceLoad]:
    """Return the loads by the name of the source. Raises ``click.UsageError``."""
    if not options.sources:
        raise click.UsageError(
            "--source is missing; write --source NAME=MODULE:FUNCTION or --source NAME=FILE.jsonl"
        )
    pairs = [_pair(text, "--source", "payments=generator:make") for text in options.sources]
    default, of_source = _rates(options.rates)
    names = {name for name, _ in pairs}
    for name in of_source:
        if name not in names:
            raise click.UsageError(f"--rate {name}=… names a source without --source {name}=…")
    if options.in_flight is not None and (options.rates or options.times or options.poisson):
        raise click.UsageError(
            "--in-flight is a closed loop, which has no --rate, --poisson or --times"
        )
    return {name: _load(name, spec, of_source.get(name, default), options) for name, spec in pairs}


def _load(name: str, spec: str, rate: str | None, options: LoadOptions) -> SourceLoad:
    is_file = Path(spec).suffix in (".jsonl", ".ndjson", ".txt")
    records: Any = _records_of(Path(spec)) if is_file else load_object(spec)
    if options.in_flight is not None:
        return SourceLoad(records)
    if options.times is not None:
        if not is_file or rate is not None:
            raise click.UsageError(
                "--times takes the intended times from a file: use --source NAME=FILE.jsonl, without --rate"
            )
        schedule: ArrivalSchedule = RecordedArrivals(
            _times_in(records, options.times, spec), options.speed
        )
        return SourceLoad(records, schedule)
    if rate is None:
        raise click.UsageError(f"source {name!r} has no rate; {_RATE_HELP}, after --rate")
    return SourceLoad(records, schedule_of(rate, options))


def schedule_of(text: str, options: LoadOptions) -> ArrivalSchedule:
    """Return the schedule that ``text`` describes. Raises ``click.UsageError``."""
    if options.poisson:
        return PoissonArrivals(_number(text), options.seed)
    if ".." in text:
        start, _, end = text.partition("..")
        return RampedRate(_number(start), _number(end), options.whole)
    if ":" in text:
        steps: list[tuple[float, timedelta]] = []
        for part in text.split(","):
            rate, _, duration = part.partition(":")
            try:
                steps.append((_number(rate), Duration().convert(duration, None, None)))
            except click.BadParameter as exc:
                raise click.UsageError(f"--rate {text!r}: {exc.message}") from exc
        return SteppedRate(steps)
    return ConstantRate(_number(text))


def _rates(texts: Sequence[str]) -> tuple[str | None, Mapping[str, str]]:
    """Return the rate of all sources, and those of single ones."""
    default: str | None = None
    of_source: dict[str, str] = {}
    for text in texts:
        name, equals, rate = text.partition("=")
        if (name in of_source) if equals else (default is not None):
            raise click.UsageError(f"--rate {text} is a second rate of the same sources")
        if equals:
            of_source[name] = rate
        else:
            default = text
    return default, of_source


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise click.UsageError(f"{option} {text!r} is no pair; write {option} {example}")
    return name, value


def pairs_of(texts: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    """Return the pairs of a repeated option. Raises ``click.UsageError``."""
    return [_pair(text, option, example) for text in texts]


def _number(text: str) -> float:
    try:
        rate = float(text.replace("_", ""))
    except ValueError:
        raise click.UsageError(f"--rate: {text!r} is no number; {_RATE_HELP}") from None
    return rate


def _records_of(path: Path) -> list[Any]:
    """Return the lines of a file: texts, or objects of JSON."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        is_text = path.suffix == ".txt"
        records = [line.decode() if is_text else orjson.loads(line) for line in lines]
    except (OSError, ValueError) as exc:
        raise click.UsageError(f"{path} cannot be read: {described(exc)}") from exc
    if not records:
        raise click.UsageError(f"{path} has no records")
    return records


def _times_in(records: Sequence[Any], field: str, path: str) -> list[float]:
    """Return the values of ``field`` in seconds: numbers (epoch s, or ms above 1e11) or ISO 8601."""
    return list(_seconds(records, field, path))


def _seconds(records: Sequence[Any], field: str, path: str) -> Iterator[float]:
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise click.UsageError(f"{path}, line {number}: is no object, so it has no {field!r}")
        value = cast("dict[str, object]", record).get(field)
        if isinstance(value, str):
            try:
                yield datetime.fromisoformat(value).timestamp()
            except ValueError:
                raise click.UsageError(
                    f"{path}, line {number}: {value!r} is no time of ISO 8601"
                ) from None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield value / 1000 if value > 1e11 else float(value)
        else:
            raise click.UsageError(f"{path}, line {number}: has no time {field!r}")


def oracle_of(text: str | None) -> Callable[..., object] | None:
    """Return the function that ``--oracle`` names. Raises ``click.UsageError``."""
    if text is None:
        return None
    found = load_object(text)
    if not callable(found):
        raise click.UsageError(
            f"--oracle {text} is no function of the records sent and the results received"
        )
    return found
