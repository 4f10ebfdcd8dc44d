"""A process function without keys sees records one by one, with their time, and may send to side outputs."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, cast

import pytest

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.model.tags import Tag
from aflow.model.time import MIN_TIMESTAMP
from aflow.operators.context import ProcessContext
from aflow.operators.process import ProcessFunction, ProcessOperator, check_process_function
from tests.operators.driver import Drive, Driver

BAD: Tag[str] = Tag("bad")


class Parse(ProcessFunction[str, int]):
    def process(self, value: str, ctx: ProcessContext) -> Iterable[int]:
        if not value.isdigit():
            ctx.side(BAD, value)
            return []
        return [int(value)]


class Repeat(ProcessFunction[int, int]):
    def process(self, value: int, ctx: ProcessContext) -> Iterator[int]:
        for _ in range(value):
            yield value


class Times(ProcessFunction[str, tuple[int | None, int, int]]):
    def process(self, value: str, ctx: ProcessContext) -> list[tuple[int | None, int, int]]:
        return [(ctx.timestamp, ctx.watermark, ctx.processing_time)]


class Returning(ProcessFunction[Any, Any]):
    """Returns the value itself."""

    def process(self, value: Any, ctx: ProcessContext) -> Any:
        return value


def test_results_have_the_timestamp_of_their_record(drive: Drive) -> None:
    step = drive(lambda: ProcessOperator(Repeat()))

    step.push(2, 0, 1, at=[10, 20, 30])

    assert step.batches() == [Batch([2, 2, 1], [10, 10, 30])]


def test_results_of_records_without_timestamps_have_none(drive: Drive) -> None:
    step = drive(lambda: ProcessOperator(Repeat()))

    step.push(1, 2)

    assert step.batches() == [Batch([1, 2, 2])]


@pytest.mark.parametrize(
    "results",
    [["a", "b"], ("a", "b"), {"a": 1, "b": 2}.keys(), deque(["a", "b"])],
    ids=["list", "tuple", "view", "deque"],
)
def test_results_may_be_any_iterable(drive: Drive, results: object) -> None:
    step = drive(lambda: ProcessOperator(Returning()))

    step.push(results)

    assert step.new_values() == ["a", "b"]


def test_none_means_no_results_and_no_batch_is_emitted_for_it(drive: Drive) -> None:
    step = drive(lambda: ProcessOperator(Returning()))

    step.push(None, [])

    assert step.batches() == []


def test_side_outputs_are_emitted_as_one_batch_with_the_timestamps_of_their_records(
    drive: Drive,
) -> None:
    step = drive(lambda: ProcessOperator(Parse()))

    step.push("1", "x", "2", "y", at=[10, 20, 30, 40])

    assert step.recorder.sides == {"bad": [Batch(["x", "y"], [20, 40])]}
    assert step.batches() == [Batch([1, 2], [10, 30])]


def test_side_outputs_are_sent_once_and_without_timestamps_where_records_have_none(
    drive: Drive,
) -> None:
    step = drive(lambda: ProcessOperator(Parse()))

    step.push("x").push("1").push("y")

    assert step.recorder.sides == {"bad": [Batch(["x"]), Batch(["y"])]}


def test_the_context_has_the_timestamp_the_watermark_and_the_clock(drive: Drive) -> None:
    step = drive(lambda: ProcessOperator(Times()))
    step.time.at = 7

    step.push("before", at=[1])
    step.operator.on_watermark(5)
    step.push("after", at=[6])

    assert step.batches() == [
        Batch([(1, MIN_TIMESTAMP, 7)], [1]),
        Watermark(5),
        Batch([(6, 5, 7)], [6]),
    ]


def test_an_error_of_the_function_names_step_and_record() -> None:
    class Divide(ProcessFunction[int, float]):
        def process(self, value: int, ctx: ProcessContext) -> list[float]:
            return [1 / value]

    step = Driver(lambda: ProcessOperator(Divide()))

    with pytest.raises(OperatorError, match=r"'step' failed on record 0, timestamp 20 .*Zero") as e:
        step.push(1, 0, 2, at=[10, 20, 30])

    assert (e.value.record, e.value.timestamp) == (0, 20)
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_an_error_of_a_generator_after_some_results_names_step_and_record() -> None:
    class Countdown(ProcessFunction[int, float]):
        def process(self, value: int, ctx: ProcessContext) -> Iterator[float]:
            for left in (value, 0):
                yield 1 / left

    with pytest.raises(OperatorError) as e:
        Driver(lambda: ProcessOperator(Countdown())).push(5)

    assert e.value.record == 5


@pytest.mark.parametrize(
    "result", ["alert", b"alert", {"alert": 1}, 5], ids=["str", "bytes", "dict", "int"]
)
def test_a_single_result_that_is_no_list_is_refused_with_the_remedy(result: object) -> None:
    step = Driver(lambda: ProcessOperator(Returning()))

    with pytest.raises(OperatorError, match=r"not a list of results; return \[result\]"):
        step.push(result)


def test_a_returned_coroutine_is_refused_and_closed() -> None:
    async def later() -> list[int]:
        return [1]

    step = Driver(lambda: ProcessOperator(Returning()))

    with pytest.raises(OperatorError, match="returned a coroutine"):
        step.push(later())


def test_the_context_gives_no_side_output_outside_of_the_handler() -> None:
    class Keeping(ProcessFunction[int, int]):
        kept: list[ProcessContext] = []  # noqa: RUF012 - the mistake that this test makes

        def process(self, value: int, ctx: ProcessContext) -> None:
            self.kept.append(ctx)

    Driver(lambda: ProcessOperator(Keeping())).push(1)

    with pytest.raises(OperatorError, match="'bad' outside of its handlers"):
        Keeping.kept[0].side(BAD, "too late")


class Lookup(ProcessFunction[int, str]):
    """Loads a table when it opens, as a step with a reference file would."""

    table: dict[int, str] | None = None

    def open(self) -> None:
        self.table = {1: "one"}

    def process(self, value: int, ctx: ProcessContext) -> list[str]:
        assert self.table is not None
        return [self.table[value]]

    def close(self) -> None:
        self.table = None


def test_attributes_assigned_in_open_belong_to_one_subtask() -> None:
    function = Lookup()

    step = Driver(lambda: ProcessOperator(function)).push(1)

    assert step.new_values() == ["one"]
    assert function.table is None


def test_close_is_called_once_and_only_after_open() -> None:
    log: list[str] = []

    class Logged(ProcessFunction[int, int]):
        def open(self) -> None:
            log.append("open")

        def process(self, value: int, ctx: ProcessContext) -> None: ...

        def close(self) -> None:
            log.append("close")

    never_opened = ProcessOperator(Logged())
    never_opened.close()
    opened = Driver(lambda: ProcessOperator(Logged())).operator
    opened.close()
    opened.close()

    assert log == ["open", "close"]


def test_an_error_of_open_names_the_step_and_close_is_not_called() -> None:
    class Broken(ProcessFunction[int, int]):
        def open(self) -> None:
            raise FileNotFoundError("rates.csv")

        def process(self, value: int, ctx: ProcessContext) -> None: ...

        def close(self) -> None:
            raise AssertionError("closed what was never open")

    operator = ProcessOperator(Broken())

    with pytest.raises(
        OperatorError, match=r"'step' failed in Broken\.open\(\): FileNotFoundError"
    ):
        Driver(lambda: operator)
    operator.close()


def test_an_error_of_close_names_the_step() -> None:
    class Broken(ProcessFunction[int, int]):
        def process(self, value: int, ctx: ProcessContext) -> None: ...

        def close(self) -> None:
            raise OSError("disk full")

    step = Driver(lambda: ProcessOperator(Broken()))

    with pytest.raises(OperatorError, match=r"'step' failed in Broken\.close\(\): OSError: disk"):
        step.operator.close()


class GivesUp(ProcessFunction[int, int]):
    """Raises a ``CancelledError`` of its own in one method."""

    def __init__(self, where: str) -> None:
        self.where = where

    def open(self) -> None:
        self._give_up("open()")

    def process(self, value: int, ctx: ProcessContext) -> None:
        self._give_up("process()")

    def close(self) -> None:
        self._give_up("close()")

    def _give_up(self, where: str) -> None:
        if where == self.where:
            raise CancelledError("given up")


@pytest.mark.parametrize("where", ["open()", "process()", "close()"])
def test_a_cancelled_error_of_the_function_is_its_failure(where: str) -> None:
    with pytest.raises(OperatorError, match=r"'step' failed .*CancelledError: given up") as error:
        Driver(lambda: ProcessOperator(GivesUp(where))).push(1).operator.close()

    assert isinstance(error.value.__cause__, CancelledError)


def test_an_operator_error_of_the_function_is_wrapped_like_any_other() -> None:
    inner = OperatorError("no such rate", operator="rates")

    class Raising(ProcessFunction[str, str]):
        def process(self, value: str, ctx: ProcessContext) -> None:
            raise inner

    with pytest.raises(
        OperatorError, match=r"'step' failed on record 'eur', timestamp 5 .*no such rate"
    ) as error:
        Driver(lambda: ProcessOperator(Raising())).push("eur", at=[5])

    assert (error.value.operator, error.value.record) == ("step", "eur")
    assert error.value.__cause__ is inner
    assert inner.__cause__ is None


class AsyncProcess(ProcessFunction[int, int]):
    async def process(self, value: int, ctx: ProcessContext) -> list[int]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return [value]


class AsyncStream(ProcessFunction[int, int]):
    async def process(self, value: int, ctx: ProcessContext) -> AsyncIterator[int]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        yield value


@pytest.mark.parametrize("function", [AsyncProcess(), AsyncStream()], ids=["coroutine", "stream"])
def test_a_handler_that_would_have_to_be_awaited_is_refused(function: object) -> None:
    with pytest.raises(
        FlowDefinitionError, match=r"\.process is a coroutine function.*plain method"
    ):
        check_process_function(function)


def test_a_class_in_place_of_an_object_is_refused_with_the_remedy() -> None:
    with pytest.raises(FlowDefinitionError, match=r"not its class; write Parse\(\)"):
        check_process_function(Parse)


def test_something_else_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="a ProcessFunction is needed, not 5"):
        check_process_function(cast("object", 5))


def test_a_plain_process_function_is_accepted() -> None:
    check_process_function(Parse())
