"""The work of a job that a stop waits for, named for people.

A stop ends when all records that were read are processed, all calls have ended, all sinks have written, and, with
checkpoints, the last one is completed. So each of these is named, with its number of records where they are counted.
Timers and windows that have not fired are not: a stop without ``drain`` does not wait for them, and with it they fire
at the end of the input, as the unfinished work of their step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from aflow.runtime.attempt import JobAttempt
from aflow.runtime.source_input import SourceInput
from aflow.runtime.task import StreamTask


def unfinished_work(attempt: JobAttempt) -> str:
    """Return a phrase that names the work in flight of ``attempt``, in the order of the stream."""
    tasks = attempt.built.tasks
    if not tasks:
        return "the start of the job, which has not ended"
    phrases = [*_queued(tasks), *_calls(tasks), *_pieces(tasks), *_sinks(tasks)]
    if attempt.coordinator is not None:
        phrases += [f"{one.kind.value} {one.id}" for one in attempt.coordinator.pending]
    if attempt.closing:
        phrases.append("the close of resources and writers")
    return ", ".join(phrases) or "nothing that is counted"


def _queued(tasks: Sequence[StreamTask]) -> Iterator[str]:
    """Name records that no operator has got, and readers that do not end."""
    queued = Counter[str]()
    reading: set[str] = set()
    for task in tasks:
        queued[task.name] += task.input.queued_records
        if isinstance(task.input, SourceInput) and task.input.is_ending:
            reading.add(task.id.step)
    yield from _counted(queued, "record", "queued for")
    yield from (f"the reader of source {name!r}" for name in sorted(reading))


def _calls(tasks: Sequence[StreamTask]) -> Iterator[str]:
    """Name calls under way, and the records of their steps that have none: before a call, a retry or their turn."""
    running, waiting, with_timers = Counter[str](), Counter[str](), Counter[str]()
    for task in tasks:
        for operator in task.chain.slots:
            counters = operator.counted()
            running[operator.name] += counters.in_flight
            held = with_timers if operator.has_handlers else waiting
            held[operator.name] += counters.waiting
    yield from _counted(running, "call", "of")
    yield from _counted(waiting, "record", "waiting in")
    yield from _counted(with_timers, "record or timer", "waiting in", "records and timers")


def _pieces(tasks: Sequence[StreamTask]) -> Iterator[str]:
    """Name operators that have not fired everything that is due, or not processed the whole batch."""
    names = {one.name for task in tasks for one in task.chain.pieces.unfinished}
    return (f"unfinished work of step {name!r}" for name in sorted(names))


def _sinks(tasks: Sequence[StreamTask]) -> Iterator[str]:
    """Name writers that write, and the records that wait for them."""
    waiting = Counter[str]()
    writing: set[str] = set()
    for task in tasks:
        for sink in task.chain.sinks:
            waiting[sink.name] += sink.waiting_records
            if sink.busy:
                writing.add(sink.name)
    yield from _counted(waiting, "record", "waiting for sink")
    yield from (f"the writer of sink {name!r}" for name in sorted(writing))


def _counted(counts: Counter[str], one: str, doing: str, several: str = "") -> Iterator[str]:
    """Yield a phrase for each name with a count: ``3 records queued for 'sums'``."""
    several = several or f"{one}s"
    for name, count in counts.items():
        if count:
            yield f"{count:,} {one if count == 1 else several} {doing} {name!r}"
