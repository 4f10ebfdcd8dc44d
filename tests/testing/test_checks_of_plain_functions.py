"""``check_source``, ``check_sink``, ``check_storage`` and ``check_backend`` name a method or function that is wrongly
async or not async.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import aflow as af
from aflow.connect import Reader, Sink, Source, Split
from aflow.testing import check_backend, check_sink, check_source, check_storage


async def checked_backend(make: Any) -> None:
    check_backend(make)


CHECKS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "make_backend": checked_backend,
    "make_sink": lambda make: check_sink(
        make, lambda sink: sink.seen, ["a", "b", "c", "d", "e", "f"]
    ),
    "make_source": check_source,
    "make_storage": check_storage,
}


async def make(*arguments: object) -> object:
    return object()


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.asyncio
async def test_a_function_that_makes_the_checked_object_is_not_async(name: str) -> None:
    with pytest.raises(
        af.FlowDefinitionError, match=f"{name} must be a plain function, not a coroutine function"
    ):
        await CHECKS[name](make)


class PlainSplits(Source[str]):
    """Has a ``splits`` that is not async."""

    def splits(self) -> list[Split]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return [Split("one")]

    async def reader(self, split: Split, position: object) -> Reader[str]:
        raise NotImplementedError


class PlainWriter(Sink[str]):
    """Has a ``writer`` that is not async."""

    def writer(self, context: object) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return 7


@pytest.mark.asyncio
async def test_a_method_that_is_not_async_is_named() -> None:
    with pytest.raises(AssertionError, match=r"^PlainSplits: splits\(\) returned .* async def"):
        await check_source(PlainSplits)
    with pytest.raises(AssertionError, match=r"^PlainWriter: writer\(\) returned .* async def"):
        await check_sink(PlainWriter, lambda _: [], ["a", "b", "c", "d", "e", "f"])
