"""Arguments of async calls: mistakes are refused at the call, and plans show the options."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

import aflow as af

SECOND = timedelta(seconds=1)


async def asked(value: int) -> int:
    return value


async def asked_with(value: int, session: object) -> int:
    return value


async def squares(values: list[int]) -> list[int]:
    return [value * value for value in values]


async def pages(value: int) -> AsyncIterator[int]:
    yield value
    yield -value


def numbers() -> Any:
    """Return a stream whose methods accept all arguments, for a type checker."""
    return af.Flow("mistakes").source([1, 2])


class Opened:
    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def results(build: Callable[[af.Stream[int]], af.Stream[Any]]) -> list[Any]:
    flow, sink = af.Flow("results"), af.CollectSink[Any]()
    build(flow.source([1, 2])).to(sink)
    asyncio.run(flow.run())
    return list(sink.values)


def detail(build: Callable[[af.Stream[int]], af.Stream[Any]]) -> str:
    """Return the description of the step in the plan."""
    flow = af.Flow("plan")
    build(flow.source([1, 2])).to(af.CollectSink[Any](), name="end")
    (said,) = [
        node.detail
        for task in flow.plan().tasks
        for node in task.nodes
        if node.what.endswith("async")
    ]
    return said


# ------------------------------------------------------------------------------------------ the function


def test_a_function_that_needs_more_than_the_value_is_refused_and_not_dropped_record_by_record() -> (
    None
):
    with pytest.raises(
        af.FlowDefinitionError, match=r"with the value alone.*'session'; .*using=Resource"
    ):
        numbers().map_async(asked_with, on_error=af.calls.Drop())


def test_a_function_that_has_no_place_for_the_resource_is_refused() -> None:
    with pytest.raises(
        af.FlowDefinitionError, match=r"what its Resource has opened.*second argument"
    ):
        numbers().filter_async(asked, using=af.Resource(Opened))


def test_a_function_of_one_value_is_refused_where_lists_are_passed() -> None:
    with pytest.raises(af.FlowDefinitionError, match=r"map_batch_async\(\).*a list of values"):
        numbers().map_batch_async(asked_with, size=2)


def test_optional_and_bound_arguments_are_not_required() -> None:
    def with_default(value: int, more: int = 0) -> Awaitable[int]:
        return asked(value + more)

    def with_any(*values: int) -> Awaitable[int]:
        return asked(values[0])

    assert results(lambda s: s.map_async(partial(asked_with, session=None))) == [1, 2]
    assert results(lambda s: s.map_async(with_default)) == [1, 2]
    assert results(lambda s: s.map_async(with_any)) == [1, 2]


def test_a_function_without_a_signature_is_accepted() -> None:
    given = numbers().map_async(dict)

    assert isinstance(given, af.Stream)


def test_a_coroutine_in_place_of_its_function_is_named_as_such() -> None:
    called = asked(1)

    with pytest.raises(
        af.FlowDefinitionError, match=r"map_async\(asked\), not map_async\(asked\(…\)\)"
    ):
        numbers().map_async(called)

    called.close()


@pytest.mark.parametrize("method", ["map_async", "filter_async", "map_batch_async"])
def test_an_async_generator_belongs_in_flat_map_async(method: str) -> None:
    more: dict[str, Any] = {"size": 2} if method == "map_batch_async" else {}

    with pytest.raises(af.FlowDefinitionError, match=r"async generator.*flat_map_async\(\)"):
        getattr(numbers(), method)(pages, **more)


def test_flat_map_async_takes_a_lambda_that_returns_an_async_generator() -> None:
    assert results(lambda stream: stream.flat_map_async(lambda value: pages(value))) == [
        1,
        -1,
        2,
        -2,
    ]


def test_flat_map_async_takes_an_async_iterator_that_cannot_be_closed() -> None:
    class Twice:
        def __init__(self, value: int) -> None:
            self.left = [value, value]

        def __aiter__(self) -> Twice:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    assert results(lambda stream: stream.flat_map_async(Twice)) == [1, 1, 2, 2]


def test_flat_map_async_takes_a_lambda_that_returns_a_coroutine_of_a_list() -> None:
    async def twice(value: int) -> Sequence[int]:
        return [value, value]

    assert results(lambda stream: stream.flat_map_async(lambda value: twice(value))) == [1, 1, 2, 2]


# -------------------------------------------------------------------------------------------- the options


async def _later(*_: object) -> Any:
    raise AssertionError("this is never awaited")


later: Any = _later


class AsyncPolicy:
    async def again(self, failed: af.calls.Attempt, random: float) -> timedelta | None:
        raise AssertionError("this is never awaited")


NOT_AWAITED: list[tuple[str, dict[str, Any]]] = [
    (r"into=…", {"into": later}),
    (r"deadline=…", {"deadline": later}),
    (r"on_error=Fallback\(…\)", {"on_error": af.calls.Fallback(later)}),
    (r"retry=Retry\(on=…\)", {"retry": af.Retry(on=later)}),
    (r"retry=Retry\(on_result=…\)", {"retry": af.Retry(on_result=later)}),
    (r"retry=AsyncPolicy", {"retry": AsyncPolicy()}),
    (r"rate=RateLimit\(cost=…\)", {"rate": af.calls.RateLimit(1, SECOND, cost=later)}),
    (r"cache=Cache\(key=…\)", {"cache": af.calls.Cache(1, key=later)}),
    (r"cache=Cache\(negative=…\)", {"cache": af.calls.Cache(1, negative=later)}),
]


@pytest.mark.parametrize(("where", "options"), NOT_AWAITED)
def test_an_async_function_is_refused_by_a_step_that_does_not_await_it(
    where: str, options: dict[str, Any]
) -> None:
    with pytest.raises(
        af.FlowDefinitionError, match=rf"map_async\({where}\) .*is a coroutine function"
    ):
        numbers().map_async(asked, **options)


def test_an_option_with_a_slip_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(
        TypeError, match=r"no argument 'time_out' \(did you mean 'timeout'\?\); it takes .*into"
    ):
        numbers().map_async(asked, time_out=SECOND)


@pytest.mark.parametrize(
    "option", ["timeout", "attempt_timeout", "deadline", "retry", "rate", "breaker", "cache"]
)
def test_none_is_as_good_as_an_option_that_was_left_out(option: str) -> None:
    nothing: Any = {option: None}

    def with_none(stream: af.Stream[int]) -> af.Stream[int]:
        return stream.map_async(asked, **nothing)

    assert results(with_none) == [1, 2]
    assert detail(with_none) == "ordered, 100 at once"


@pytest.mark.parametrize("seconds", [2, 3])
def test_a_timeout_of_an_attempt_that_would_never_end_one_is_refused(seconds: int) -> None:
    with pytest.raises(
        af.FlowDefinitionError, match=r"attempt_timeout=\ds\) never ends .*timeout=2s"
    ):
        numbers().map_async(asked, timeout=2 * SECOND, attempt_timeout=seconds * SECOND)


@pytest.mark.parametrize("given", [timedelta(0), -SECOND, 5])
def test_a_timeout_of_an_attempt_that_is_no_positive_time_is_refused(given: Any) -> None:
    with pytest.raises(af.FlowDefinitionError, match=r"map_async\(attempt_timeout=…\)"):
        numbers().map_async(asked, attempt_timeout=given)


def test_an_object_that_is_no_resource_is_refused_with_an_example() -> None:
    with pytest.raises(af.FlowDefinitionError, match=r"using=Resource\("):
        numbers().map_async(asked_with, using=Opened)


def test_into_is_called_with_each_value_of_a_batch() -> None:
    assert results(
        lambda stream: stream.map_batch_async(
            squares, size=2, into=lambda value, square: (value, square)
        )
    ) == [(1, 1), (2, 4)]


def test_dead_letters_that_no_step_reads_are_refused() -> None:
    flow = af.Flow("unread")
    failed = af.Tag[af.calls.FailedCall[int]]("failed")
    flow.source([1]).map_async(asked, name="ask", on_error=af.calls.DeadLetter(failed)).to(
        af.CollectSink[int]()
    )

    with pytest.raises(
        af.FlowDefinitionError, match=r"step 'ask' sends .*'failed', which no step reads.*Drop\(\)"
    ):
        flow.plan()


# ----------------------------------------------------------------------------------------------- the plan


def test_a_plan_shows_all_given_options() -> None:
    said = detail(
        lambda stream: stream.map_async(
            asked_with,
            ordered=False,
            capacity=af.calls.Adaptive(least=2, most=50),
            timeout=2 * SECOND,
            attempt_timeout=SECOND,
            deadline=lambda value: value,
            retry=af.Retry(attempts=4),
            rate=af.calls.RateLimit(100, SECOND, shared="api"),
            breaker=af.calls.CircuitBreaker(),
            cache=af.calls.Cache(1_000),
            on_error=af.calls.Drop(),
            using=af.Resource(Opened, name="session"),
        )
    )

    assert said == (
        "unordered, adaptive, 2 to 50 at once, timeout 2s, timeout of an attempt 1s, deadline, up to 4 attempts, "
        "100 per 1s shared as 'api', circuit breaker, cache of 1000, failures dropped, using 'session'"
    )


def test_a_plan_shows_batches_own_policies_and_costs() -> None:
    class Never:
        def again(self, failed: af.calls.Attempt, random: float) -> timedelta | None:
            return None

    said = detail(
        lambda stream: stream.map_batch_async(
            squares,
            size=50,
            capacity=8,
            retry=Never(),
            rate=af.calls.RateLimit(1_000, timedelta(minutes=1), cost=lambda value: 2),
            on_error=af.calls.Fallback(lambda value, error: 0),
        )
    )

    assert said == (
        "ordered, 8 at once, up to 50 together, retry Never, 1000 units per 1m, failures replaced"
    )


def test_a_plan_shows_that_keys_keep_their_order_and_where_failures_go() -> None:
    failed = af.Tag[af.calls.FailedCall[int]]("failed")
    flow = af.Flow("keyed")
    asking = (
        flow.source([1])
        .key_by(abs)
        .map_async(asked, name="ask", on_error=af.calls.DeadLetter(failed))
    )
    asking.to(af.CollectSink[int](), name="end")
    asking.side(failed).to(af.CollectSink[af.calls.FailedCall[int]](), name="failed")

    nodes = {node.name: node for task in flow.plan().tasks for node in task.nodes}

    assert nodes["ask"].detail == "ordered by key, 100 at once, failures to 'failed'"


class Handler(af.AsyncKeyedProcess[int, int, int]):
    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[int]:
        return [value]


def test_handlers_are_shown_in_plans_and_their_dead_letters_must_be_read_as_well() -> None:
    flow = af.Flow("handlers")
    failed = af.Tag[af.calls.FailedCall[int]]("failed")
    handled = (
        flow.source([1])
        .key_by(abs)
        .process_async(Handler(), name="handle", capacity=9, on_error=af.calls.DeadLetter(failed))
    )
    handled.to(af.CollectSink[int](), name="end")

    with pytest.raises(af.FlowDefinitionError, match=r"'handle' sends .*which no step reads"):
        flow.plan()

    handled.side(failed).to(af.CollectSink[af.calls.FailedCall[int]](), name="failed")
    nodes = {node.name: node for task in flow.plan().tasks for node in task.nodes}
    assert nodes["handle"].detail == "ordered by key, 9 at once, failures to 'failed'"


# --------------------------------------------------------------------------------- what is seen when it runs


def test_a_call_without_await_fails_the_job_with_the_remedy() -> None:
    async def forgetful(value: int) -> object:
        return asked(value)

    flow = af.Flow("forgetful")
    flow.source([1]).map_async(forgetful, on_error=af.calls.Drop()).to(af.CollectSink[object]())

    with pytest.raises(af.OperatorError, match="nothing awaits"):
        asyncio.run(flow.run())


def test_a_generator_where_one_result_is_wanted_is_shown_the_other_method() -> None:
    async def several(value: int) -> AsyncIterator[int]:
        yield value

    flow = af.Flow("several")
    flow.source([1]).map_async(lambda n: cast("Any", several(n))).to(af.CollectSink[object]())

    with pytest.raises(af.OperatorError, match="flat_map_async"):
        asyncio.run(flow.run())


def test_a_retry_policy_without_on_result_is_not_called_for_results() -> None:
    class ThreeTimes:
        def again(self, failed: af.calls.Attempt, random: float) -> timedelta | None:
            return timedelta(milliseconds=1) if failed.number < 3 else None

    calls: list[int] = []

    async def counted(value: int) -> int:
        calls.append(value)
        return value

    flow = af.Flow("counted")
    flow.source([1, 2]).map_async(counted, retry=ThreeTimes()).to(af.CollectSink[int]())
    asyncio.run(flow.run())

    assert calls == [1, 2]


def test_a_failure_after_retries_says_how_many_attempts_there_were() -> None:
    async def broken(value: int) -> int:
        raise ConnectionError("boom")

    flow = af.Flow("broken")
    retry = af.Retry(attempts=3, delay=timedelta(milliseconds=1))
    flow.source([1]).map_async(broken, name="ask", retry=retry).to(af.CollectSink[int]())

    with pytest.raises(
        af.OperatorError, match="'ask' failed on record 1 after 3 attempts: ConnectionError: boom"
    ):
        asyncio.run(flow.run())
