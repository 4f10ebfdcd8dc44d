"""The guarantee of each sink after a crash, with and without checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aflow.api.flow import Flow
from aflow.connect import (
    Delivery,
    Position,
    Reader,
    Sink,
    Source,
    Split,
    Writer,
    WriterContext,
)
from aflow.graph.guarantee import AfterCrash, Guarantee, RecoveryMode, after_crash, weakest
from aflow.runtime.builtin_connectors import CollectSink, PushSource


class Files(Sink[object]):
    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    async def writer(self, context: WriterContext) -> Writer[object]:
        raise NotImplementedError("nothing is written here")


def guarantees(flow: Flow) -> dict[str, Guarantee]:
    return {one.sink: one.guarantee for one in after_crash(flow.plan())}


@pytest.mark.parametrize(
    ("delivery", "guarantee"),
    [
        (Delivery.AT_LEAST_ONCE, Guarantee.AT_LEAST_ONCE),
        (Delivery.IDEMPOTENT, Guarantee.EFFECTIVELY_ONCE),
        (Delivery.TRANSACTIONAL, Guarantee.AT_LEAST_ONCE),
    ],
    ids=lambda one: one.name.lower(),
)
def test_downstream_of_replayable_sources_the_sink_decides(
    delivery: Delivery, guarantee: Guarantee
) -> None:
    flow = Flow("replayed")
    flow.source([1]).to(Files(delivery), name="out")

    assert guarantees(flow) == {"out": guarantee}


@pytest.mark.parametrize("delivery", Delivery, ids=lambda one: one.name.lower())
def test_records_that_cannot_be_read_again_can_be_lost_with_every_sink(delivery: Delivery) -> None:
    flow = Flow("lost")
    flow.source(PushSource[int](), name="requests").to(Files(delivery), name="out")

    assert after_crash(flow.plan()) == [
        AfterCrash(
            "out",
            Guarantee.NONE,
            "'requests' cannot be read again, so every record that was read and not yet written is lost",
        )
    ]


def test_one_input_of_a_union_that_cannot_be_read_again_is_enough_to_lose_records() -> None:
    flow = Flow("mixed")
    history, live = flow.source([1], name="history"), flow.source(PushSource[int](), name="live")
    history.union(live).key_by(abs).reduce(max, name="top").to(CollectSink(), name="both")
    history.to(CollectSink(), name="past")

    assert guarantees(flow) == {"both": Guarantee.NONE, "past": Guarantee.AT_LEAST_ONCE}


def test_an_iterator_is_read_once_and_a_list_again() -> None:
    flow = Flow("iterators")
    flow.source(iter([1])).to(CollectSink(), name="iterator")
    flow.source([1]).to(CollectSink(), name="list")

    assert guarantees(flow) == {"iterator": Guarantee.NONE, "list": Guarantee.AT_LEAST_ONCE}


def test_all_sinks_together_have_the_weakest_guarantee_of_them() -> None:
    entries = [
        AfterCrash("a", Guarantee.EFFECTIVELY_ONCE, ""),
        AfterCrash("b", Guarantee.AT_LEAST_ONCE, ""),
    ]

    assert weakest(entries) is Guarantee.AT_LEAST_ONCE
    assert weakest([*entries, AfterCrash("c", Guarantee.NONE, "")]) is Guarantee.NONE


@pytest.mark.parametrize(
    ("delivery", "guarantee"),
    [
        (Delivery.AT_LEAST_ONCE, Guarantee.AT_LEAST_ONCE),
        (Delivery.IDEMPOTENT, Guarantee.EFFECTIVELY_ONCE),
        (Delivery.TRANSACTIONAL, Guarantee.EXACTLY_ONCE),
    ],
    ids=lambda one: one.name.lower(),
)
def test_with_checkpoints_a_transactional_sink_is_exactly_once(
    delivery: Delivery, guarantee: Guarantee
) -> None:
    flow = Flow("checkpointed")
    flow.source([1]).to(Files(delivery), name="out")

    (entry,) = after_crash(flow.plan(), RecoveryMode.EXACTLY_ONCE)

    assert entry.guarantee is guarantee


@pytest.mark.parametrize("delivery", Delivery, ids=lambda one: one.name.lower())
def test_checkpoints_at_least_once_make_no_sink_better_than_that(delivery: Delivery) -> None:
    flow = Flow("counted twice")
    flow.source([1]).to(Files(delivery), name="out")

    (entry,) = after_crash(flow.plan(), RecoveryMode.AT_LEAST_ONCE)

    assert entry.guarantee is Guarantee.AT_LEAST_ONCE


def test_with_checkpoints_a_source_that_cannot_be_read_again_loses_only_later_records() -> None:
    flow = Flow("live")
    flow.source(PushSource[int](), name="requests").to(Files(Delivery.TRANSACTIONAL), name="out")

    assert after_crash(flow.plan(), RecoveryMode.EXACTLY_ONCE) == [
        AfterCrash(
            "out",
            Guarantee.NONE,
            "'requests' cannot be read again, so every record that was read since the last checkpoint is lost",
        )
    ]


class Numbers(Source[int]):
    async def splits(self) -> Sequence[Split]:
        raise NotImplementedError("nothing is read here")

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        raise NotImplementedError("nothing is read here")


@pytest.mark.parametrize("delivery", Delivery, ids=lambda one: one.name.lower())
def test_a_source_that_repeats_records_is_at_least_once_with_every_sink(delivery: Delivery) -> None:
    flow, numbers = Flow("repeated"), Numbers()
    numbers.repeats_records = True
    flow.source(numbers, name="numbers").to(Files(delivery), name="out")

    assert after_crash(flow.plan(), RecoveryMode.EXACTLY_ONCE) == [
        AfterCrash(
            "out",
            Guarantee.AT_LEAST_ONCE,
            "'numbers' may repeat records since the last checkpoint, and results count them twice",
        )
    ]


def test_a_source_that_needs_checkpoints_has_no_guarantee_without() -> None:
    flow, numbers = Flow("refused"), Numbers()
    numbers.needs_checkpoints = True
    flow.source(numbers, name="numbers").to(Files(Delivery.IDEMPOTENT), name="out")

    assert guarantees(flow) == {"out": Guarantee.NONE}
    assert after_crash(flow.plan())[0].reason == (
        "'numbers' can be read only by a job with checkpoints"
    )
