"""The texts of errors in the messages of others."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import pytest

import aflow as af
from aflow.connect import Position, Reader, Source, Split
from aflow.errors import CheckpointError, described, message_of
from aflow.runtime.job_status import JobStatus
from aflow.testing import CollectSink, run_flow
from tests.architecture.rooms import PROJECT


@pytest.mark.parametrize(
    ("error", "text", "message"),
    [
        (ValueError("too large"), "ValueError: too large", "ValueError: too large"),
        (ValueError(), "ValueError", "ValueError"),
        (CheckpointError("expired"), "CheckpointError: expired", "expired"),
        (CheckpointError(), "CheckpointError", "CheckpointError"),
    ],
)
def test_an_error_is_described_by_its_class_and_its_text_if_it_has_one(
    error: Exception, text: str, message: str
) -> None:
    assert described(error) == text
    assert message_of(error) == message


def test_the_message_about_an_error_without_text_ends_with_its_class() -> None:
    def refuse(value: int) -> int:
        raise TimeoutError

    flow = af.Flow("refusing")
    flow.source([1], name="in").map(refuse, name="refuse").to(CollectSink[int]())

    with pytest.raises(af.OperatorError, match=r"failed on record 1.*: TimeoutError$"):
        run_flow(flow)


class Textless(Exception):
    """An error of a user's class whose text cannot be made."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def test_an_error_whose_text_fails_is_described_by_its_class() -> None:
    assert described(Textless()) == "Textless: <its text failed: ZeroDivisionError>"


async def refuse_async(value: int) -> int:
    raise Textless


def test_a_call_that_fails_without_a_text_is_a_failure_of_its_record() -> None:
    flow = af.Flow("refusing")
    flow.source([1], name="in").map_async(refuse_async, name="refuse").to(CollectSink[int]())

    with pytest.raises(af.OperatorError, match=r"failed on record 1.*: Textless: <its text failed"):
        run_flow(flow)


class TextlessEnd(Source[int]):
    """A source without records whose end fails."""

    bounded = True

    async def splits(self) -> Sequence[Split]:
        return ()

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        raise AssertionError("there is no split")

    async def on_job_end(self) -> None:
        raise Textless


@pytest.mark.asyncio
async def test_a_job_that_fails_with_an_error_without_a_text_has_failed() -> None:
    flow = af.Flow("refusing")
    flow.source(TextlessEnd(), name="in").to(CollectSink[int]())

    job = flow.start()
    with pytest.raises(Textless):
        async with job:
            await job.wait()
    assert job.status is JobStatus.FAILED


@pytest.mark.parametrize("room", ["aflow", "connectors/aflow_connectors"])
def test_no_message_formats_the_class_and_the_text_of_an_error_by_itself(room: str) -> None:
    found = [
        f"{path}:{text.lineno}"
        for path in sorted((PROJECT / room).rglob("*.py"))
        if "__name__" in (source := path.read_text())
        for text in ast.walk(ast.parse(source))
        if isinstance(text, ast.JoinedStr) and _names_class_and_text(text)
    ]

    assert found == []


def _names_class_and_text(text: ast.JoinedStr) -> bool:
    """Return True if ``text`` contains ``{type(x).__name__}: {x}`` for some ``x``."""
    return any(
        isinstance(between, ast.Constant)
        and between.value == ": "
        and isinstance(value, ast.FormattedValue)
        and isinstance(name, ast.FormattedValue)
        and ast.unparse(name.value) == f"type({ast.unparse(value.value)}).__name__"
        for name, between, value in zip(text.values, text.values[1:], text.values[2:], strict=False)
    )
