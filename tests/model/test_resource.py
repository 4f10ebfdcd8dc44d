"""Invalid resources, and the names of resources in errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from aflow.model.resource import Resource


@asynccontextmanager
async def sessions() -> AsyncGenerator[int]:
    yield 1


async def plain_generator() -> AsyncGenerator[int]:
    yield 1


async def coroutine() -> int:
    return 1


class Session:
    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *args: object) -> None:
        return None


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (Session(), "opened anew at each start"),
        (None, "opened anew at each start"),
        (plain_generator, "decorate it with contextlib.asynccontextmanager"),
        (coroutine, "with one yield, decorated with contextlib.asynccontextmanager"),
    ],
    ids=["object", "none", "generator", "coroutine"],
)
def test_an_invalid_open_is_refused_with_the_cure(given: Any, hint: str) -> None:
    with pytest.raises(FlowDefinitionError, match=hint):
        Resource(given)


@pytest.mark.parametrize("field", ["shared", "name"])
@pytest.mark.parametrize("value", ["", " ", 3])
def test_a_name_that_is_no_text_is_refused(field: str, value: Any) -> None:
    with pytest.raises(FlowDefinitionError, match=f"Resource\\({field}=…\\) takes a non-empty"):
        Resource(sessions, **{field: value})


def test_errors_call_it_by_its_name_else_as_it_is_shared_else_by_its_function() -> None:
    assert Resource(sessions, name="http", shared="all").label == "http"
    assert Resource(sessions, shared="all").label == "all"
    assert Resource(sessions).label == "sessions"
    assert Resource(Session).label == "Session"
    assert Resource(partial(sessions)).label == "partial"
