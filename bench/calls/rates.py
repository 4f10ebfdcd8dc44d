"""Calls a second: equal ones, some slow ones, calls by key, calls that complete at once."""

from __future__ import annotations

import asyncio
import heapq
import random
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from bench.calls import flows, programs
from bench.calls.answers import Answers
from bench.calls.programs import CallOne
from bench.calls.trials import Check, Program, Times, run_in_turn
from bench.harness import Budget, run_async

#: Seconds that a call takes.
TAKES = 0.01
#: Seconds that a slow one takes, and which share is slow.
SLOW, SLOW_SHARE = 0.5, 0.01
#: The same where watermarks precede the step.
SLOW_BETWEEN_WATERMARKS, SHARE_BETWEEN_WATERMARKS = 1.5, 0.03
#: Calls under way where nothing but calls takes time, and where the program does, too.
FEW, MANY = 100, 1_000
#: Calls in flight where the program takes all of the CPU.
SATURATING = 5_000
KEYS = 10_000

Figures = dict[str, float | int | bool | str]

BUDGETS = [
    Budget("waiting_ratio", at_least=0.99),
    Budget("ratio", at_least=0.90),
    Budget("ordered_ratio", at_least=0.90),
    Budget("by_key_ratio", at_least=0.90),
    Budget("some_slow_ratio", at_least=0.90),
    Budget("watermarks_ratio", at_least=0.90),
    Budget("cpu_ratio", at_least=0.80),
    Budget("cpu_ratio_5000", at_least=0.75),
    Budget("ratio_5000", at_least=0.75),
]


async def called(value: int) -> int:
    """Answers after 10 ms."""
    await asyncio.sleep(TAKES)
    return value + 1


async def called_at_once(value: int) -> int:
    """Answers without waiting."""
    return value + 1


def at_the_limit(values: Sequence[int], rounds: int) -> Figures:
    """``waiting_ratio`` against coroutines that do nothing but wait; ``limit_ratio`` against workers by hand.

    ``limit_share…`` are the shares of the rate that calls of 10 ms can have at most. The calls ask a service that
    answers exactly after 10 ms. ``timers_share…`` are the same with calls that sleep, whose timers are late.
    """
    with Answers(TAKES) as service:

        async def asked(value: int) -> int:
            await service.answer()
            return value + 1

        times = run_in_turn(
            {
                "pipeline": (partial(_pipeline, asked, FEW), _in_order),
                "by hand": (partial(_workers, asked, FEW), _complete),
                "waiting": (partial(_waiting, service.answer, FEW), _as_many),
                "timers": (partial(_pipeline, called, FEW), _in_order),
                "timers by hand": (partial(_workers, called, FEW), _complete),
                "timers waiting": (partial(_waiting, partial(asyncio.sleep, TAKES), FEW), _as_many),
            },
            values,
            rounds,
        )
    ideal = len(values) * TAKES / FEW
    share = {name: round(ideal / one.median, 3) for name, one in times.items()}
    return {
        "waiting_ratio": round(times["waiting"].median / times["pipeline"].median, 3),
        "limit_ratio": round(times["by hand"].median / times["pipeline"].median, 3),
        "limit_share": share["pipeline"],
        "limit_share_by_hand": share["by hand"],
        "limit_share_waiting": share["waiting"],
        "timers_share": share["timers"],
        "timers_share_by_hand": share["timers by hand"],
        "timers_share_waiting": share["timers waiting"],
    }


def beside_programs_by_hand(values: Sequence[int], rounds: int) -> Figures:
    """``ratio`` and ``ordered_ratio`` against the fastest program; ``by_key_ratio`` against without keys."""
    by_hand: dict[str, tuple[Program, Check]] = {
        "workers": (partial(_workers, called, MANY), _complete),
        "workers in order": (partial(_workers_in_order, called, MANY), _in_order),
        "task for each": (partial(_task_for_each, called, MANY), _complete),
        "gather": (partial(_gathered, called, MANY), _in_order),
    }
    ours: dict[str, tuple[Program, Check]] = {
        "unordered": (partial(_pipeline, called, MANY, ordered=False), _complete),
        "ordered": (partial(_pipeline, called, MANY), _in_order),
        "by key": (partial(_by_key, called, MANY), _in_order_of_keys),
    }
    times = run_in_turn(by_hand | ours, values, rounds)
    fastest = min(by_hand, key=lambda name: times[name].median)
    seconds, baseline = times["unordered"].median, times[fastest].median
    return {
        "seconds": round(seconds, 4),
        "records_per_s": round(len(values) / seconds),
        "baseline_records_per_s": round(len(values) / baseline),
        "baseline": fastest,
        "ratio": round(baseline / seconds, 3),
        "ordered_ratio": round(baseline / times["ordered"].median, 3),
        "by_key_ratio": round(seconds / times["by key"].median, 3),
        "cpu_ratio": _cpu_ratio(times),
        **{f"{name.replace(' ', '_')}_cpu_us": _cpu_us(one, values) for name, one in times.items()},
    }


def saturated(values: Sequence[int], rounds: int) -> Figures:
    """Compare with workers by hand where the CPU is busy: 5,000 calls in flight."""
    times = run_in_turn(
        {
            "workers": (partial(_workers, called, SATURATING), _complete),
            "unordered": (partial(_pipeline, called, SATURATING, ordered=False), _complete),
            "ordered": (partial(_pipeline, called, SATURATING), _in_order),
            "by key": (partial(_by_key, called, SATURATING), _in_order_of_keys),
        },
        values,
        rounds,
    )
    workers = times["workers"].median
    return {
        "ratio_5000": round(workers / times["unordered"].median, 3),
        "ordered_ratio_5000": round(workers / times["ordered"].median, 3),
        "by_key_ratio_5000": round(workers / times["by key"].median, 3),
        "cpu_ratio_5000": _cpu_ratio(times),
        **{
            f"{name.replace(' ', '_')}_cpu_us_5000": _cpu_us(one, values)
            for name, one in times.items()
        },
    }


def with_some_slow(values: Sequence[int], rounds: int) -> Figures:
    """``some_slow_ratio`` against workers by hand, and the share of what no program can exceed."""
    chance = random.Random(5)
    takes = [SLOW if chance.random() < SLOW_SHARE else TAKES for _ in values]

    async def call(value: int) -> int:
        await asyncio.sleep(takes[value])
        return value + 1

    times = run_in_turn(
        {
            "pipeline": (partial(_pipeline, call, FEW, ordered=False), _complete),
            "by hand": (partial(_workers, call, FEW), _complete),
        },
        values,
        rounds,
    )
    times |= run_in_turn({"ordered": (partial(_pipeline, call, FEW), _in_order)}, values, 1)
    ideal = shortest(takes, FEW)
    return {
        "some_slow_ratio": round(times["by hand"].median / times["pipeline"].median, 3),
        "some_slow_limit_share": round(ideal / times["pipeline"].median, 3),
        "some_slow_limit_share_by_hand": round(ideal / times["by hand"].median, 3),
        "some_slow_ordered_ratio": round(times["by hand"].median / times["ordered"].median, 3),
    }


def behind_watermarks(values: Sequence[int], rounds: int) -> Figures:
    """``watermarks_ratio``: unordered calls of which some are slow, with watermarks between the records by without."""
    chance = random.Random(5)
    takes = [
        SLOW_BETWEEN_WATERMARKS if chance.random() < SHARE_BETWEEN_WATERMARKS else TAKES
        for _ in values
    ]

    async def call(value: int) -> int:
        await asyncio.sleep(takes[value])
        return value + 1

    times = run_in_turn(
        {
            "with": (partial(_in_small_batches, call, watermarks=True), _complete),
            "without": (partial(_in_small_batches, call, watermarks=False), _complete),
        },
        values,
        rounds,
    )
    return {"watermarks_ratio": round(times["without"].median / times["with"].median, 3)}


def at_once(values: Sequence[int], rounds: int) -> Figures:
    """Microseconds for a call that never waits, beside ``await`` in a loop."""
    times = run_in_turn(
        {
            "pipeline": (partial(_pipeline, called_at_once, FEW), _in_order),
            "by hand": (partial(_one_by_one, called_at_once), _in_order),
        },
        values,
        rounds,
    )
    ours, theirs = (times[name].median / len(values) * 1e6 for name in ("pipeline", "by hand"))
    return {
        "at_once_us": round(ours, 2),
        "at_once_by_hand_us": round(theirs, 2),
        "at_once_overhead_us": round(ours - theirs, 2),
    }


def shortest(takes: Iterable[float], in_flight: int) -> float:
    """Seconds for calls that take so long, each begun in its turn as soon as one of ``in_flight`` places is free."""
    free = [0.0] * in_flight
    for seconds in takes:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def key_of(value: int) -> int:
    """One of 10,000, all of them as often, in no order to speak of."""
    return value * 2_654_435_761 % 2**32 * KEYS >> 32


def _pipeline(
    call: CallOne, in_flight: int, values: Sequence[int], *, ordered: bool = True
) -> list[int]:
    return flows.called(values, call, in_flight, ordered=ordered)


def _in_small_batches(call: CallOne, values: Sequence[int], *, watermarks: bool) -> list[int]:
    return flows.called_in_small_batches(values, call, FEW, watermarks=watermarks)


def _by_key(call: CallOne, in_flight: int, values: Sequence[int]) -> list[int]:
    return flows.called_by_key(values, key_of, call, in_flight)


def _workers(call: CallOne, in_flight: int, values: Sequence[int]) -> list[int]:
    return run_async(programs.workers(values, call, in_flight))


def _workers_in_order(call: CallOne, in_flight: int, values: Sequence[int]) -> list[int]:
    return run_async(programs.workers_in_order(values, call, in_flight))


def _task_for_each(call: CallOne, in_flight: int, values: Sequence[int]) -> list[int]:
    return run_async(programs.task_for_each(values, call, in_flight))


def _gathered(call: CallOne, in_flight: int, values: Sequence[int]) -> list[int]:
    return run_async(programs.gathered(values, call, in_flight))


def _one_by_one(call: CallOne, values: Sequence[int]) -> list[int]:
    return run_async(programs.one_by_one(values, call))


def _waiting(
    answer: Callable[[], Awaitable[None]], in_flight: int, values: Sequence[int]
) -> list[int]:
    return [run_async(programs.waiting(answer, len(values) // in_flight, in_flight))]


def _as_many(results: list[int], values: Sequence[int]) -> bool:
    return results == [len(values)]


def _in_order(results: list[int], values: Sequence[int]) -> bool:
    return results == [value + 1 for value in values]


def _complete(results: list[int], values: Sequence[int]) -> bool:
    return _in_order(sorted(results), values)


def _in_order_of_keys(results: list[int], values: Sequence[int]) -> bool:
    by_key: defaultdict[int, list[int]] = defaultdict(list)
    for result in results:
        by_key[key_of(result - 1)].append(result)
    return _complete(results, values) and all(one == sorted(one) for one in by_key.values())


def _cpu_ratio(times: Mapping[str, Times]) -> float:
    """Return the CPU time of a call of workers by hand, divided by that of a call of the pipeline.

    The median of the ratios of all rounds: the CPU time of one program differs by half between rounds if other programs
    of the machine use its caches, and so do the programs of one round.
    """
    pairs = zip(times["workers"].cpu, times["unordered"].cpu, strict=True)
    return round(statistics.median(theirs / ours for theirs, ours in pairs), 3)


def _cpu_us(times: Times, values: Sequence[int]) -> float:
    return round(times.median_cpu / len(values) * 1e6, 2)
