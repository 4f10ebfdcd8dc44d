"""The queue of a writer: batches, marks of checkpoints, and commits, in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterator
from typing import Any

import pytest

from aflow.connect import Committable, Writer
from aflow.errors import SinkError
from aflow.model.batch import Batch
from aflow.model.questions import Correlation, current_correlation
from aflow.operators.sink import Pending, SinkOperator
from tests.operators.driver import Driver


class Slow(Writer[int]):
    """Is busy with each request until the test ends it; keeps the requests in order."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def write(self, batch: Batch[int]) -> Awaitable[None]:
        self.asked.append(list(batch.values))
        return _nothing()

    def prepare(self, checkpoint: int) -> Awaitable[Committable | None]:
        self.asked.append(f"prepare {checkpoint}")
        return _nothing()

    # Plain, since it is noted when it is asked for, and not when it is awaited.
    def commit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, committable: Committable
    ) -> Coroutine[Any, Any, None]:
        self.asked.append(f"commit {committable}")
        return _nothing()


async def _nothing() -> None:
    return None


class Desk:
    """A sink operator with a writer that is controlled by the test."""

    def __init__(self, joined: int = 1) -> None:
        self.writer = Slow()
        self.sink = SinkOperator(self.writer, lambda: None, joined=joined)
        self.pending: dict[int, Pending] = {}

    def mark(self, checkpoint: int, *, overtaking: bool = False) -> list[list[int]]:
        def done(pending: Pending) -> None:
            self.pending[checkpoint] = pending

        batches = self.sink.mark(checkpoint, done, overtaking=overtaking)
        return [batch.values for batch in batches]

    def bypass(self, checkpoint: int) -> list[list[int]] | None:
        batches = self.sink.bypass(checkpoint)
        return None if batches is None else [batch.values for batch in batches]

    def done(self, result: Committable | None = None) -> None:
        """Finish the current request of the writer."""
        self.sink.close()
        self.sink.written(result)

    def all_done(self) -> None:
        while self.sink.busy:
            self.done()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.sink.close()


def test_a_mark_follows_all_queued_batches(desk: Desk) -> None:
    for value in (1, 2):
        desk.sink.process(Batch([value]))

    overtaken = desk.mark(5)
    desk.sink.process(Batch([3]))
    desk.all_done()

    assert overtaken == []
    assert desk.writer.asked == [[1], [2], "prepare 5", [3]]


def test_an_overtaking_mark_precedes_queued_batches_and_the_checkpoint_stores_them(
    desk: Desk,
) -> None:
    for value in (1, 2, 3):
        desk.sink.process(Batch([value]))

    overtaken = desk.mark(5, overtaking=True)
    desk.all_done()

    assert overtaken == [[2], [3]]  # 1 is being written, and prepared with the checkpoint
    assert desk.writer.asked == [[1], "prepare 5", [2], [3]]


def test_an_overtaking_mark_does_not_overtake_an_older_mark(desk: Desk) -> None:
    desk.sink.process(Batch([1]))
    desk.sink.process(Batch([2]))
    desk.mark(5)
    desk.sink.process(Batch([3]))

    overtaken = desk.mark(6, overtaking=True)
    desk.all_done()

    assert overtaken == [[3]]
    assert desk.writer.asked == [[1], [2], "prepare 5", "prepare 6", [3]]


def test_commits_that_waited_for_the_writer_are_in_the_order_of_their_checkpoints(
    desk: Desk,
) -> None:
    for checkpoint in (5, 6):
        desk.mark(checkpoint)
        desk.done(f"output {checkpoint}")
    desk.sink.process(Batch([1]))
    desk.sink.process(Batch([2]))

    desk.sink.commit_up_to(5)
    desk.sink.commit_up_to(6)
    desk.all_done()

    assert desk.writer.asked[2:] == [[1], "commit output 5", "commit output 6", [2]]


def test_a_checkpoint_remembers_all_that_was_prepared_and_not_committed(desk: Desk) -> None:
    desk.mark(5)
    desk.done("five")
    desk.mark(6)
    desk.done("six")

    assert desk.pending == {5: ((5, "five"),), 6: ((5, "five"), (6, "six"))}


def test_a_complete_checkpoint_commits_the_output_of_older_ones_in_order(
    desk: Desk,
) -> None:
    for checkpoint in (5, 6, 7):
        desk.mark(checkpoint)
        desk.done(f"no. {checkpoint}")

    desk.sink.commit_up_to(6)
    desk.all_done()

    assert desk.writer.asked[3:] == ["commit no. 5", "commit no. 6"]


def test_a_commit_precedes_queued_batches(desk: Desk) -> None:
    desk.mark(5)
    desk.done("five")
    for value in (1, 2):
        desk.sink.process(Batch([value]))

    desk.sink.commit_up_to(5)
    desk.all_done()

    assert desk.writer.asked == ["prepare 5", [1], "commit five", [2]]


def test_output_is_not_committed_twice(desk: Desk) -> None:
    desk.mark(5)
    desk.done("five")

    desk.sink.commit_up_to(5)
    desk.sink.commit_up_to(6)
    desk.all_done()

    assert desk.writer.asked == ["prepare 5", "commit five"]


def test_committed_output_is_in_no_later_checkpoint(desk: Desk) -> None:
    desk.mark(5)
    desk.done("five")
    desk.sink.commit_up_to(5)
    desk.all_done()

    desk.mark(6)
    desk.done("six")

    assert desk.pending[6] == ((6, "six"),)


def test_a_writer_that_has_nothing_to_commit_leaves_nothing_pending(desk: Desk) -> None:
    desk.mark(5)

    desk.done(None)

    assert desk.pending == {5: ()}


def test_batches_that_were_in_flight_are_written_first(desk: Desk) -> None:
    done: list[object] = []
    desk.sink.continue_with(
        [Batch([1]), Batch([2])], (), lambda: done.append(list(desk.writer.asked))
    )

    desk.sink.process(Batch([3]))
    desk.all_done()

    assert desk.writer.asked == [[1], [2], [3]]
    assert len(done) == 1


def test_with_nothing_in_flight_a_sink_has_caught_up_at_once(desk: Desk) -> None:
    done: list[bool] = []

    desk.sink.continue_with([], (), lambda: done.append(True))

    assert done == [True]


def test_a_failure_names_the_request_to_the_writer() -> None:
    class Full(Slow):
        def prepare(self, checkpoint: int) -> Awaitable[Committable | None]:
            raise OSError("no space left")

    sink = Driver(lambda: SinkOperator(Full(), lambda: None)).operator
    assert isinstance(sink, SinkOperator)

    with pytest.raises(SinkError, match="could not prepare checkpoint 5: OSError: no space left"):
        sink.mark(5, lambda pending: None, overtaking=False)


def test_a_mark_after_its_timeout_overtakes_the_batches_before_it(desk: Desk) -> None:
    for value in (1, 2, 3):
        desk.sink.process(Batch([value]))
    desk.mark(5)
    desk.sink.process(Batch([4]))

    overtaken = [batch.values for batch in desk.sink.overtake(5)]
    desk.all_done()

    assert overtaken == [[2], [3]]
    assert desk.writer.asked == [[1], "prepare 5", [2], [3], [4]]


def test_a_mark_at_the_head_overtakes_nothing(desk: Desk) -> None:
    desk.mark(5)
    desk.sink.process(Batch([1]))

    assert desk.sink.overtake(5) == []


@pytest.fixture
def keeping(desk: Desk) -> Desk:
    """A sink that keeps the batches since the last preparation."""
    desk.sink.keep_unprepared()
    return desk


def test_a_checkpoint_that_bypasses_a_writer_stores_all_batches_since_the_last_preparation(
    keeping: Desk,
) -> None:
    keeping.mark(4)
    keeping.done("four")
    for value in (1, 2, 3):
        keeping.sink.process(Batch([value]))
    keeping.done()  # of 1

    overtaken = keeping.mark(5, overtaking=True)
    bypassed = keeping.bypass(5)
    keeping.all_done()

    assert (bypassed, overtaken) == ([[1], [2]], [[3]])
    assert keeping.pending[5] == ((4, "four"),)
    assert keeping.writer.asked == ["prepare 4", [1], [2], [3]]


def test_a_bypassed_checkpoint_is_in_no_way_part_of_the_next_one(keeping: Desk) -> None:
    keeping.sink.process(Batch([1]))
    keeping.mark(5, overtaking=True)
    keeping.bypass(5)
    keeping.done()

    keeping.mark(6)
    keeping.done("six")
    keeping.sink.process(Batch([2]))
    keeping.mark(7, overtaking=True)

    assert keeping.pending == {5: (), 6: ((6, "six"),)}
    assert keeping.bypass(7) == [[2]]


def test_a_bypassed_checkpoint_names_the_newest_committable_also_if_it_was_committed(
    keeping: Desk,
) -> None:
    keeping.mark(4)
    keeping.done("four")
    keeping.sink.commit_up_to(4)
    keeping.all_done()

    keeping.sink.process(Batch([1]))
    keeping.mark(5, overtaking=True)
    keeping.bypass(5)

    assert keeping.pending[5] == ((4, "four"),)


def test_before_the_first_preparation_these_are_those_of_the_restored_checkpoint(
    keeping: Desk,
) -> None:
    keeping.sink.continue_with([Batch([1])], [(3, "three")], lambda: None)

    keeping.mark(5, overtaking=True)
    bypassed = keeping.bypass(5)

    assert bypassed == [[1]]
    assert keeping.pending[5] == [(3, "three")]


def test_a_preparation_that_is_under_way_is_not_bypassed(keeping: Desk) -> None:
    keeping.mark(5)
    keeping.mark(6, overtaking=True)

    assert keeping.bypass(5) is None
    assert keeping.bypass(6) is None


def test_an_earlier_mark_is_not_bypassed(keeping: Desk) -> None:
    keeping.sink.process(Batch([1]))
    keeping.mark(5)
    keeping.mark(6, overtaking=True)

    assert keeping.bypass(6) is None


def test_a_commit_that_is_under_way_is_bypassed(keeping: Desk) -> None:
    keeping.mark(5)
    keeping.done("five")
    keeping.sink.commit_up_to(5)
    keeping.sink.process(Batch([1]))

    overtaken = keeping.mark(6, overtaking=True)

    assert (keeping.bypass(6), overtaken) == ([], [[1]])
    assert keeping.pending[6] == ((5, "five"),)


def test_a_checkpoint_waits_for_a_writer_that_has_written_very_many_records(keeping: Desk) -> None:
    keeping.sink.process(Batch(list(range(65_536))))
    keeping.done()
    keeping.sink.process(Batch([1]))

    keeping.mark(5, overtaking=True)

    assert keeping.bypass(5) is None


@pytest.fixture
def joining() -> Iterator[Desk]:
    made = Desk(joined=3)
    yield made
    made.sink.close()


def test_batches_that_wait_for_the_writer_are_joined_up_to_a_bound(joining: Desk) -> None:
    for values in ([1], [2], [3], [4], [5, 6], [7, 8, 9, 10], [11]):
        joining.sink.process(Batch(values))
    waiting = joining.sink.waiting_records
    joining.done()
    rest = joining.sink.waiting_records
    joining.all_done()

    assert (waiting, rest, joining.sink.waiting_records) == (10, 7, 0)
    assert joining.writer.asked == [[1], [2, 3, 4], [5, 6], [7, 8, 9, 10], [11]]


def test_batches_are_not_joined_across_a_mark_and_all_belong_to_the_checkpoint_that_bypasses(
    joining: Desk,
) -> None:
    joining.sink.keep_unprepared()
    for value in (1, 2, 3):
        joining.sink.process(Batch([value]))
    joining.mark(5)
    for value in (4, 5):
        joining.sink.process(Batch([value]))

    joining.done()
    stored = joining.bypass(5)
    joining.all_done()

    assert stored == [[1], [2, 3]]
    assert joining.writer.asked == [[1], [2, 3], [4, 5]]


def test_the_batch_of_a_question_is_written_alone_and_answers_it() -> None:
    seen: list[tuple[list[int], Correlation | None]] = []
    released: list[int] = []

    class Seeing(Slow):
        def write(self, batch: Batch[int]) -> Awaitable[None]:
            seen.append((batch.values, current_correlation()))
            return super().write(batch)

    question = Correlation(None, on_released=lambda: released.append(len(seen)))
    sink = SinkOperator(Seeing(), lambda: None, joined=9)
    sink.process(Batch([1]))
    sink.process(Batch([2]))
    question.hold()
    question.run(lambda: sink.process(Batch([3])))
    sink.process(Batch([4]))
    sink.process(Batch([5]))
    while sink.busy:
        sink.close()
        sink.written()

    assert seen == [([1], None), ([2], None), ([3], question), ([4, 5], None)]
    assert released == [3]


def test_all_columns_of_batches_are_joined_and_batches_with_other_columns_are_not() -> None:
    given: list[Batch[int]] = []

    class Keeping(Slow):
        def write(self, batch: Batch[int]) -> Awaitable[None]:
            given.append(batch)
            return super().write(batch)

    sink = SinkOperator(Keeping(), lambda: None, joined=9)
    for batch in (
        Batch([1]),
        Batch([2], [20], ("a",), [5]),
        Batch([3], [30], ("b",), [6]),
        Batch([4], [40]),
        Batch([5], [50]),
        Batch([6]),
    ):
        sink.process(batch)
    while sink.busy:
        sink.close()
        sink.written()

    assert given == [
        Batch([1]),
        Batch([2, 3], [20, 30], ["a", "b"], [5, 6]),
        Batch([4, 5], [40, 50]),
        Batch([6]),
    ]
