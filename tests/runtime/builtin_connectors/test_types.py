"""Sources and sinks infer the type of their records from their arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from aflow.connect import Sink, Source
from aflow.runtime.builtin_connectors import (
    AsyncIterableSource,
    CallbackSink,
    CollectSink,
    IterableSource,
    PushSource,
    Results,
    ResultSink,
    ThreadSource,
)


def _numbers() -> Iterator[int]:
    yield 1


async def _words() -> AsyncIterator[str]:
    yield "a"


async def _words_from(position: int) -> AsyncIterator[str]:
    yield str(position)


async def _store(value: bytes) -> None:
    assert value


def test_sources_infer_their_records_from_what_they_read() -> None:
    assert_type(IterableSource([1, 2]), IterableSource[int])
    assert_type(IterableSource(_numbers()), IterableSource[int])
    assert_type(IterableSource({"a": 1}), IterableSource[str])
    assert_type(AsyncIterableSource(_words()), AsyncIterableSource[str])
    assert_type(AsyncIterableSource(_words_from), AsyncIterableSource[str])
    assert_type(ThreadSource(_numbers()), ThreadSource[int])
    assert_type(PushSource[int](), PushSource[int])


def test_sinks_infer_their_records() -> None:
    sink = CollectSink[int]()
    assert_type(sink.values, list[int])
    assert_type(sink.timestamps, list[int | None])
    assert_type(CallbackSink(_store), CallbackSink[bytes])
    assert_type(CallbackSink(sink.values.append), CallbackSink[int])
    assert_type(aiter(ResultSink[int]()), Results[int])


def test_ends_fit_where_a_wider_or_narrower_record_is_wanted() -> None:
    source: Source[object] = IterableSource([1])
    sink: Sink[bool] = CollectSink[int]()

    assert source.bounded
    assert sink.delivery.value == "at least once"
