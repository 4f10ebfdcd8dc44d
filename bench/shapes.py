"""``shapes``: designs of batches, steps and exchanges, each as a fraction of a plain loop (decision 001)."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from functools import partial
from itertools import compress, islice
from operator import itemgetter
from timeit import Timer

from bench.harness import Measurement, timed
from bench.stateless import ADD, DOUBLE, KEEP

Form = Callable[[int], int]

Column = list[int]


def measure(records: int, rounds: int) -> Measurement:
    """Measure steps over batches of several sizes and forms, and partitioning for two and for seven readers."""
    forms: dict[str, Form] = {f"batch_{size}": _comprehensions(size) for size in (1, 16, 256, 1024)}
    forms |= {"map_filter_1024": _builtins, "fused_1024": _fused}
    expected = _loop(records)
    times: dict[str, list[float]] = {name: [] for name in ("loop", *forms)}
    for _ in range(rounds):
        for name, form in {"loop": _loop, **forms}.items():
            seconds, total = timed(partial(form, records))
            if total != expected:
                raise SystemExit(f"shapes: {name} returned a different sum")
            times[name].append(seconds)
    loop = statistics.median(times["loop"])
    figures: dict[str, float | int | bool | str] = {"records": records, "rounds": rounds}
    figures |= {name: round(loop / statistics.median(times[name]), 3) for name in forms}
    for readers in (2, 7):
        figures |= {f"{name}_{readers}_ns": cost for name, cost in _partitioning(readers).items()}
    return Measurement("shapes", figures | {"verified": True})


def _loop(records: int) -> int:
    total = 0
    for number in range(records):
        more = ADD(number)
        if KEEP(more):
            total += DOUBLE(more)
    return total


def _comprehensions(size: int) -> Form:
    def run(records: int) -> int:
        numbers, total = iter(range(records)), 0
        while batch := list(islice(numbers, size)):
            more = [ADD(number) for number in batch]
            kept = [number for number in more if KEEP(number)]
            total += sum([DOUBLE(number) for number in kept])
        return total

    return run


def _builtins(records: int) -> int:
    numbers, total = iter(range(records)), 0
    while batch := list(islice(numbers, 1024)):
        total += sum(list(map(DOUBLE, list(filter(KEEP, list(map(ADD, batch)))))))
    return total


def _fused(records: int) -> int:
    numbers, total = iter(range(records)), 0
    while batch := list(islice(numbers, 1024)):
        total += sum([DOUBLE(more) for number in batch if KEEP(more := ADD(number))])
    return total


def _partitioning(readers: int, records: int = 1024, times: int = 500) -> dict[str, float]:
    """Return the nanoseconds per record to partition three columns for ``readers``, by way."""
    rng = random.Random(3)
    targets = [rng.randrange(readers) for _ in range(records)]
    columns = [list(range(records)) for _ in range(3)]
    ways = {
        "one_loop": _one_loop,
        "loop_each": _loop_each,
        "indices": _indices,
        "compress": _compress,
    }
    costs: dict[str, float] = {}
    for name, way in ways.items():
        partition = Timer(partial(way, columns, targets, readers))
        costs[name] = round(statistics.median(partition.repeat(times, 1)) / records * 1e9)
    return costs


def _one_loop(columns: list[Column], targets: list[int], readers: int) -> object:
    out: list[tuple[Column, Column, Column]] = [([], [], []) for _ in range(readers)]
    first, second, third = columns
    for one, two, three, target in zip(first, second, third, targets, strict=True):
        ones, twos, threes = out[target]
        ones.append(one)
        twos.append(two)
        threes.append(three)
    return out


def _loop_each(columns: list[Column], targets: list[int], readers: int) -> object:
    out: list[list[Column]] = []
    for column in columns:
        parts: list[Column] = [[] for _ in range(readers)]
        for item, target in zip(column, targets, strict=True):
            parts[target].append(item)
        out.append(parts)
    return out


def _indices(columns: list[Column], targets: list[int], readers: int) -> object:
    indices: list[Column] = [[] for _ in range(readers)]
    for index, target in enumerate(targets):
        indices[target].append(index)
    pickers = [itemgetter(*some) for some in indices]
    return [[list(pick(column)) for column in columns] for pick in pickers]


def _compress(columns: list[Column], targets: list[int], readers: int) -> object:
    chosen = [[target == reader for target in targets] for reader in range(readers)]
    return [[list(compress(column, some)) for column in columns] for some in chosen]
