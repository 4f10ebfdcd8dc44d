"""``on_error`` of each kind of step: failed records are settled alone, however records are batched."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aflow as af
from aflow.graph.nodes import Edge
from aflow.testing import CollectSink

FAILED = af.Tag[af.calls.FailedRecord[Any]]("failed")
SEEN = af.Tag[int]("seen")

NUMBERS: Final = [(n * 37) % 50 for n in range(60)]
SIZES = (1, 7, 1024)


class Unlucky(Exception):
    """The error of a bad record."""


def bad(number: int) -> bool:
    return number % 5 == 3


def checked(number: int) -> int:
    if bad(number):
        raise Unlucky(f"no {number}")
    return number


def millis(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def tripled(number: int) -> Iterator[int]:
    for _ in range(3):
        yield checked(number) if _ == 1 else number


class Seen(af.ProcessFunction[int, int]):
    """Emit a number twice, and once to a side output; fail in between."""

    def process(self, value: int, ctx: af.ProcessContext) -> Iterator[int]:
        ctx.side(SEEN, value)
        yield value
        yield checked(value)


class Counted(af.KeyedProcess[int, int, tuple[int, int]]):
    """Count the numbers of a key in state of each kind, and set timers; fail at the end."""

    count = af.ValueState("count", of=int)
    numbers = af.ListState("numbers", of=int)
    times = af.MapState("times", key=int, of=int)

    def process(self, value: int, ctx: af.Context[int]) -> Iterable[tuple[int, int]]:
        count = (ctx.state(self.count).get() or 0) + 1
        ctx.state(self.count).set(count)
        ctx.state(self.numbers).add(value)
        times = ctx.state(self.times)
        times.put(value, times.get(value, 0) + 1)
        ctx.set_event_timer(1_000 + value)
        ctx.side(SEEN, value)
        yield (value, count)
        checked(value)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[tuple[int, int]]:
        return [(at, sum(ctx.state(self.numbers).get()) + sum(ctx.state(self.times).values()))]


Ints = af.Stream[int]
Policy = Any


@dataclass(frozen=True)
class Case:
    """A step that fails for bad numbers, and the same step, to which ``build`` gives a policy."""

    build: Callable[[Ints, Policy], af.Stream[Any]]
    fallback: Any = None
    """The result for a bad number by ``Fallback``; None if the step refuses it."""
    replaced: Callable[[int], list[Any]] = lambda _: []
    """Returns the results for a bad number with the fallback."""


def timed(numbers: Ints) -> Ints:
    return numbers.event_time(lambda n: n, max_delay=millis(100), on_error=af.calls.Fail())


def timed_by_good_numbers(numbers: Ints) -> Ints:
    """Let the watermark depend on good numbers only, so that it is the same without the others."""
    return numbers.event_time(lambda n: 0 if bad(n) else n)


def keyed(numbers: Ints) -> af.KeyedStream[int, int]:
    return timed(numbers).key_by(lambda n: n % 4)


def running_sum(total: int, number: int) -> int:
    return total + checked(number)


def negated(number: int, error: BaseException) -> int:
    return -number


def one_negated(number: int) -> list[int]:
    return [-number]


def lists_negated(number: int, error: BaseException) -> list[int]:
    return [-number]


def is_large(number: int, error: BaseException) -> bool:
    return number > 20


def only_large(number: int) -> list[int]:
    return [number] if number > 20 else []


def with_negated(number: int, error: BaseException) -> list[int]:
    return [number, -number]


def of_two(number: int) -> list[int]:
    return [number, -number]


def twice(number: int, error: BaseException) -> Iterator[int]:
    yield number
    yield number


def of_twice(number: int) -> list[int]:
    return [number, number]


def unchanged(number: int, error: BaseException) -> int:
    return number


def one_of(number: int) -> list[int]:
    return [number]


def appended(numbers: list[int], number: int) -> list[int]:
    return [*numbers, checked(number)]


def joined_lists(left: list[int], right: list[int]) -> list[int]:
    return [*left, *right]


def empty_list() -> list[int]:
    return []


CASES: dict[str, Case] = {
    "map": Case(lambda s, p: s.map(checked, on_error=p), negated, one_negated),
    "fused map": Case(
        lambda s, p: s.map(lambda n: n, on_error=p).map(checked, on_error=p).map(int, on_error=p),
        negated,
        one_negated,
    ),
    "fused filter": Case(
        lambda s, p: s.map(checked, on_error=p).filter(lambda n: True, on_error=p).map(int),
        negated,
        one_negated,
    ),
    "timed map": Case(
        lambda s, p: timed(s).map(checked, on_error=p).map(int), negated, one_negated
    ),
    "keyed map": Case(
        lambda s, p: keyed(s).map(checked, on_error=p).deduplicate(name="first"),
    ),
    "filter": Case(
        lambda s, p: s.filter(lambda n: checked(n) >= 0, on_error=p),
        is_large,
        only_large,
    ),
    "timed filter": Case(
        lambda s, p: timed(s).filter(lambda n: checked(n) >= 0, on_error=p),
        is_large,
        only_large,
    ),
    "flat_map": Case(lambda s, p: s.flat_map(tripled, on_error=p), with_negated, of_two),
    "timed flat_map": Case(
        lambda s, p: timed(s).flat_map(tripled, on_error=p),
        twice,
        of_twice,
    ),
    "map_batch": Case(
        lambda s, p: s.map_batch(lambda ns: [checked(n) for n in ns], on_error=p),
        negated,
        one_negated,
    ),
    "process": Case(lambda s, p: s.process(Seen(), on_error=p), lists_negated, one_negated),
    "event_time": Case(lambda s, p: s.event_time(checked, on_error=p), unchanged, one_of),
    "key_by": Case(
        lambda s, p: s.key_by(checked, on_error=p).fold(int, lambda t, n: t + n, name="sum"),
    ),
    "keyed fold": Case(lambda s, p: keyed(s).fold(int, running_sum, name="sum", on_error=p)),
    "keyed process": Case(lambda s, p: keyed(s).process(Counted(), name="count", on_error=p)),
    "fold of tumbling windows": Case(
        lambda s, p: (
            keyed(s).window(af.Tumbling(millis(10))).fold(int, running_sum, name="sum", on_error=p)
        )
    ),
    "fold of late windows": Case(
        lambda s, p: (
            timed_by_good_numbers(s)
            .key_by(lambda n: n % 4)
            .window(af.Tumbling(millis(10)), lateness=millis(1_000))
            .fold(int, running_sum, merge=int.__add__, name="sum", on_error=p)
        )
    ),
    "fold of sliding windows": Case(
        lambda s, p: (
            keyed(s)
            .window(af.Sliding(millis(20), millis(10)))
            .fold(int, running_sum, merge=int.__add__, name="sum", on_error=p)
        )
    ),
    "fold of unshared windows": Case(
        lambda s, p: (
            keyed(s)
            .window(af.Sliding(millis(20), millis(10)))
            .fold(int, running_sum, name="sum", on_error=p)
        )
    ),
    "fold of sessions": Case(
        lambda s, p: (
            keyed(s)
            .window(af.Session(millis(3)))
            .fold(int, running_sum, merge=int.__add__, name="sum", on_error=p)
        )
    ),
    "fold of sessions out of order": Case(
        lambda s, p: (
            timed_by_good_numbers(s)
            .key_by(lambda n: 0)
            .window(af.Session(millis(2)), lateness=millis(1_000))
            .fold(empty_list, appended, merge=joined_lists, name="sum", on_error=p)
        )
    ),
    "fold of counted windows": Case(
        lambda s, p: keyed(s).window(af.Count(3)).fold(int, running_sum, name="sum", on_error=p)
    ),
    "fold with a trigger": Case(
        lambda s, p: (
            keyed(s)
            .window(af.Tumbling(millis(10)), trigger=af.triggers.Count(2))
            .fold(int, running_sum, name="sum", merge=int.__add__, on_error=p)
        )
    ),
}


async def outputs(
    build: Callable[[Ints], af.Stream[Any]], numbers: list[int], size: int, *, letters: bool
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return results, dead letters and records of the side output of the step that ``build`` returns."""
    flow = af.Flow("failures")
    results, failed, seen = CollectSink[Any](), CollectSink[Any](), CollectSink[Any]()
    built = build(flow.source(numbers))
    built.to(results)
    if letters:
        tagged = [node for node in flow.graph if node.dead_letters == FAILED.name]
        streams = [af.Stream[Any](flow.graph, Edge(node, side=FAILED.name)) for node in tagged]
        streams[0].union(*streams[1:]).to(failed)
    if built.step_input.edge.origin.what == "process":
        built.side(SEEN).to(seen)
    await flow.run(options=af.Options(batch_records=size))
    return results.values, failed.values, seen.values


def run(
    build: Callable[[Ints], af.Stream[Any]], numbers: list[int], size: int, *, letters: bool = False
) -> tuple[list[Any], list[Any], list[Any]]:
    return asyncio.run(outputs(build, numbers, size, letters=letters))


def good(numbers: Iterable[int]) -> list[int]:
    return [number for number in numbers if not bad(number)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_a_dropped_record_has_no_effect(case: str, size: int) -> None:
    build = CASES[case].build

    dropped = run(lambda s: build(s, af.calls.Drop()), NUMBERS, size)

    assert dropped == run(lambda s: build(s, af.calls.Fail()), good(NUMBERS), size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_a_dead_letter_has_the_record_and_nothing_else_of_it_is_emitted(
    case: str, size: int
) -> None:
    build = CASES[case].build

    results, letters, seen = run(
        lambda s: build(s, af.calls.DeadLetter(FAILED)), NUMBERS, size, letters=True
    )

    rest, _, rest_seen = run(lambda s: build(s, af.calls.Fail()), good(NUMBERS), size)
    assert (results, seen) == (rest, rest_seen)
    assert letters == [af.calls.FailedRecord(n, "Unlucky", f"no {n}") for n in NUMBERS if bad(n)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.fallback])
def test_a_fallback_replaces_the_result_in_its_place(case: str, size: int) -> None:
    step = CASES[case]
    fallback = af.calls.Fallback[int](step.fallback)

    results, _, _ = run(lambda s: step.build(s, fallback), NUMBERS, size)

    expected: list[Any] = []
    for number in NUMBERS:
        if bad(number):
            expected += step.replaced(number)
        else:
            expected += run(lambda s: step.build(s, af.calls.Fail()), [number], 1)[0]
    assert results == expected


#: Steps that emit at once; others hold their results until a watermark that comes after the failure.
IMMEDIATE = [
    name
    for name in CASES
    if not name.startswith("fold of") and name not in ("event_time", "fold with a trigger")
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", IMMEDIATE)
def test_results_before_the_failed_record_are_emitted_before_the_job_fails(
    case: str, size: int
) -> None:
    build = CASES[case].build
    numbers = [1, 2, 4, 13, 5, 6]
    flow, results = af.Flow("fails"), CollectSink[Any]()
    build(flow.source(numbers), af.calls.Fail()).to(results)

    with pytest.raises(af.OperatorError, match="no 13") as info:
        asyncio.run(flow.run(options=af.Options(batch_records=size)))

    before, _, _ = run(lambda s: build(s, af.calls.Fail()), [1, 2, 4], 1)
    assert results.values == [result for result in before if not _is_of_timer(result)]
    assert info.value.record == 13


def _is_of_timer(result: Any) -> bool:
    match result:
        case (int(at), int()):
            return at > 1_000
        case _:
            return False


def test_the_function_is_called_once_for_each_record() -> None:
    calls: list[int] = []

    def counted(number: int) -> int:
        calls.append(number)
        return checked(number)

    run(lambda s: s.map(int).map(counted, on_error=af.calls.Drop()).map(int), NUMBERS, 1024)

    assert calls == NUMBERS


def test_a_dead_letter_names_the_step_and_the_time() -> None:
    flow, letters = af.Flow("named"), CollectSink[Any]()
    mapped = flow.source([1, 3]).map(checked, name="check", on_error=af.calls.DeadLetter(FAILED))
    mapped.to(CollectSink())
    mapped.side(FAILED).to(letters)

    asyncio.run(flow.run())

    (letter,) = letters.values
    assert (letter.step, letter.attempts) == ("check", 1)
    assert letter.failed_at > 1_600_000_000_000


def zero(record: Any, error: BaseException) -> int:
    return 0


def divided(record: int, error: BaseException) -> int:
    return 1 // 0


def cancelled(number: int) -> int:
    raise asyncio.CancelledError


def failed_in_aflow(number: int) -> int:
    raise af.AflowError("of aflow")


def returns_a_coroutine(number: int) -> Any:
    return _async(number)


POLICIES: list[Policy] = [af.calls.Drop(), af.calls.Fallback[Any](zero)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fn", [cancelled, failed_in_aflow, returns_a_coroutine])
def test_errors_that_belong_to_no_record_fail_the_job(fn: Any, policy: Policy) -> None:
    flow = af.Flow("misuse")
    flow.source([1]).map(fn, on_error=policy).to(CollectSink())

    with pytest.raises(af.AflowError):
        asyncio.run(flow.run())


async def _async(number: int) -> int:
    return number


def listed(number: int) -> Any:
    return [number]


def test_a_key_that_cannot_be_one_fails_the_job() -> None:
    flow = af.Flow("keys")
    keyed: Any = flow.source([1]).key_by(listed)
    keyed.process(Counted(), name="count", on_error=af.calls.Drop()).to(CollectSink())

    with pytest.raises(af.OperatorError, match="key"):
        asyncio.run(flow.run())


def test_an_error_of_a_fallback_fails_the_job() -> None:
    flow = af.Flow("fallback")
    flow.source([3]).map(checked, on_error=af.calls.Fallback(divided)).to(CollectSink())

    with pytest.raises(af.OperatorError, match=r"in its Fallback: ZeroDivisionError"):
        asyncio.run(flow.run())


def test_dropped_records_are_counted() -> None:
    async def dropped() -> int:
        flow = af.Flow("counted")
        flow.source(NUMBERS).map(checked, name="check", on_error=af.calls.Drop()).to(CollectSink())
        async with flow.start() as job:
            await job.wait()
            step = job.metrics().steps["check"]
            return step.sides["dropped"]

    assert asyncio.run(dropped()) == sum(map(bad, NUMBERS))


# ------------------------------------------------------------------------------------ windows and joins


def unlucky_total(numbers: list[int]) -> int:
    return checked(sum(numbers))


class Totals(af.WindowFunction[int, list[int], int]):
    def process(self, value: list[int], ctx: af.WindowContext[int]) -> Iterator[int]:
        ctx.side(SEEN, len(value))
        yield sum(value)
        yield checked(sum(value))


WINDOWS: dict[str, Callable[[Any, Policy], af.Stream[Any]]] = {
    "apply": lambda w, p: w.apply(unlucky_total, name="total", on_error=p),
    "process": lambda w, p: w.process(Totals(), name="total", on_error=p),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "windows", [af.Tumbling(millis(7)), af.Session(millis(2)), af.Sliding(millis(9), millis(4))]
)
@pytest.mark.parametrize("what", WINDOWS)
def test_the_record_of_a_window_function_is_the_window_with_its_contents(
    what: str, windows: Any, size: int
) -> None:
    letter = af.calls.DeadLetter(FAILED)

    results, letters, _ = run(
        lambda s: WINDOWS[what](keyed(s).window(windows), letter), NUMBERS, size, letters=True
    )

    contents, _, _ = run(lambda s: keyed(s).window(windows).apply(list, name="all"), NUMBERS, size)
    lost = [one for one in contents if bad(sum(one.value))]
    assert lost
    assert [one.value for one in letters] == lost
    kept = [sum(one.value) for one in contents if not bad(sum(one.value))]
    if what == "process":
        assert results == [total for total in kept for _ in range(2)]
    else:
        assert [one.value for one in results] == kept


def size_of(window: af.Windowed[int, list[int]], error: BaseException) -> int:
    return len(window.value)


def test_a_fallback_of_a_window_replaces_its_value() -> None:
    fallback = af.calls.Fallback[Any](size_of)

    results, _, _ = run(
        lambda s: (
            keyed(s)
            .window(af.Tumbling(millis(100)))
            .apply(unlucky_total, name="total", on_error=fallback)
        ),
        [3, 7],
        7,
    )

    assert [one.value for one in results] == [10]
    results, _, _ = run(
        lambda s: (
            keyed(s)
            .window(af.Tumbling(millis(100)))
            .apply(unlucky_total, name="total", on_error=fallback)
        ),
        [1, 1, 1],
        7,
    )
    assert [one.value for one in results] == [3]


def pair(left: int | None, right: int | None) -> tuple[int | None, int | None]:
    checked((left or 0) + (right or 0))
    return left, right


def both(left: int | None, right: int | None) -> tuple[int | None, int | None]:
    return left, right


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "interval": lambda a, b: a.interval_join(b, between=(millis(-5), millis(5))).inner,
    "outer interval": lambda a, b: a.interval_join(b, between=(millis(-5), millis(5))).full,
    "as of": lambda a, b: a.as_of_join(b).left,
    "window": lambda a, b: a.window_join(b, af.Tumbling(millis(10))).inner,
    "outer window": lambda a, b: a.window_join(b, af.Tumbling(millis(10))).full,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("join", JOINS)
def test_the_record_of_a_join_is_the_pair(join: str, size: int) -> None:
    def joined(into: Any, policy: Policy) -> Callable[[Ints], af.Stream[Any]]:
        def build(numbers: Ints) -> af.Stream[Any]:
            left = timed(numbers.filter(lambda n: n % 2 == 0)).key_by(lambda n: n % 3)
            right = timed(numbers.filter(lambda n: n % 2 == 1)).key_by(lambda n: n % 3)
            joins: af.Stream[Any] = JOINS[join](left, right)(into, name="join", on_error=policy)
            return joins

        return build

    results, letters, _ = run(
        joined(pair, af.calls.DeadLetter(FAILED)), NUMBERS, size, letters=True
    )

    pairs, _, _ = run(joined(both, None), NUMBERS, size)
    lost = [one for one in pairs if bad(sum(n or 0 for n in one))]
    assert lost
    assert sorted(map(str, results)) == sorted(str(one) for one in pairs if one not in lost)
    assert sorted(str(one.value) for one in letters) == sorted(map(str, lost))


# ------------------------------------------------------------------------------------ whole flows


def test_a_flow_has_one_stream_of_all_dead_letters() -> None:
    flow = af.Flow("all", on_error=af.calls.DeadLetter(FAILED))
    results, letters = CollectSink[int](), CollectSink[str]()
    numbers = flow.source([1, 3, 12, 5]).map(checked, name="first")
    numbers.map(lambda n: 10 // (n - 12), name="second").to(results)
    flow.dead_letters().map(lambda letter: f"{letter.step}: {letter.value}").to(letters)

    asyncio.run(flow.run())

    assert results.values == [10 // -11, 10 // -7]
    assert sorted(letters.values) == ["first: 3", "second: 12"]


def test_the_default_of_a_flow_applies_to_calls() -> None:
    async def asked(number: int) -> int:
        return checked(number)

    flow, results = af.Flow("calls", on_error=af.calls.Drop()), CollectSink[int]()
    flow.source([1, 3, 4]).map_async(asked).to(results)

    asyncio.run(flow.run())

    assert results.values == [1, 4]


def test_a_step_that_reads_dead_letters_fails_the_job() -> None:
    flow = af.Flow("letters", on_error=af.calls.DeadLetter(FAILED))
    flow.source([3]).map(checked).to(CollectSink())
    flow.dead_letters().map(lambda letter: 1 // 0, name="report").to(CollectSink())

    with pytest.raises(af.OperatorError, match="'report'"):
        asyncio.run(flow.run())


def test_dead_letters_without_a_reader_are_refused() -> None:
    flow = af.Flow("unread", on_error=af.calls.DeadLetter(FAILED))
    flow.source([3]).map(checked).to(CollectSink())

    with pytest.raises(af.FlowDefinitionError, match=r"flow\.dead_letters\(\)"):
        flow.plan()


def test_steps_after_the_dead_letters_of_a_flow_are_refused() -> None:
    flow = af.Flow("late", on_error=af.calls.DeadLetter(FAILED))
    numbers = flow.source([3]).map(checked)
    flow.dead_letters().to(CollectSink())

    with pytest.raises(af.FlowDefinitionError, match="after all other steps"):
        numbers.map(checked)


def test_dead_letters_may_be_read_by_any_number_of_steps() -> None:
    flow = af.Flow("long", on_error=af.calls.DeadLetter(FAILED))
    flow.source([3]).map(checked).to(CollectSink())
    letters = flow.dead_letters().map(lambda letter: letter.value)

    for _ in range(sys.getrecursionlimit()):
        letters = letters.map(lambda number: number)


def test_a_flow_without_dead_letters_has_no_stream_of_them() -> None:
    with pytest.raises(af.FlowDefinitionError, match="has no dead letters"):
        af.Flow("none", on_error=af.calls.Drop()).dead_letters()


def test_a_fallback_of_a_whole_flow_is_refused() -> None:
    with pytest.raises(af.FlowDefinitionError, match="depends on the step"):
        af.Flow("fallback", on_error=af.calls.Fallback(zero))  # type: ignore[arg-type]


def test_a_fallback_of_a_fold_is_refused() -> None:
    numbers = af.Flow("fold").source([1]).key_by(lambda n: n)
    policy = af.calls.Fallback[Any](zero)

    with pytest.raises(af.FlowDefinitionError, match="no result of its own"):
        numbers.fold(int, running_sum, name="sum", on_error=policy)
    with pytest.raises(af.FlowDefinitionError, match="no result of its own"):
        numbers.window(af.Count(3)).fold(int, running_sum, name="sum", on_error=policy)


def test_a_fold_into_windows_that_merge_by_a_trigger_is_refused() -> None:
    numbers = timed(af.Flow("fold").source([1])).key_by(lambda n: n)
    sessions = numbers.window(af.Session(millis(5)), trigger=af.triggers.Count(2))

    with pytest.raises(af.FlowDefinitionError, match="windows that merge"):
        sessions.reduce(running_sum, name="sum", on_error=af.calls.Drop())


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(af.FlowDefinitionError, match=r"call it: Fail\(\), Drop\(\)"):
        af.Flow("class").source([1]).map(checked, on_error=af.calls.Drop)  # type: ignore[arg-type]


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 60), max_size=40),
    st.sampled_from(sorted(CASES)),
    st.integers(1, 50),
)
def test_any_stream_gives_the_results_of_its_good_records(
    numbers: list[int], case: str, size: int
) -> None:
    build = CASES[case].build

    results, letters, seen = run(
        lambda s: build(s, af.calls.DeadLetter(FAILED)), numbers, size, letters=True
    )

    expected, _, expected_seen = run(lambda s: build(s, af.calls.Fail()), good(numbers), 1)
    assert (sorted(map(str, results)), seen) == (sorted(map(str, expected)), expected_seen)
    assert [one.value for one in letters] == [n for n in numbers if bad(n)]
