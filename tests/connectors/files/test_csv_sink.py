"""Records written as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aflow.connect import SinkError
from aflow.errors import FlowDefinitionError
from aflow_connectors.files import CsvSink, CsvSource
from tests.connectors.files.reading import records, write


@dataclass
class Flight:
    carrier: str
    delay: float | None


class FlightStruct(msgspec.Struct):
    carrier: str
    delay: float | None


class FlightTuple(NamedTuple):
    carrier: str
    delay: float | None


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [Flight, FlightStruct, FlightTuple, dict])
async def test_the_fields_of_the_first_record_are_the_columns(tmp_path: Path, kind: Any) -> None:
    file = tmp_path / "out.csv"

    first = kind(carrier="UA", delay=1.5)
    await write(CsvSink(file), [first, first], [kind(carrier='"B6", JetBlue', delay=None)])

    assert file.read_text() == 'carrier,delay\nUA,1.5\nUA,1.5\n"""B6"", JetBlue",\n'


@pytest.mark.asyncio
async def test_columns_choose_fields_and_their_order(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"

    sink = CsvSink[dict[str, int]](file, columns=["c", "a"], delimiter="\t")
    await write(sink, [{"a": 1, "b": 2, "c": 3}, {"c": 4, "a": 5}])

    assert file.read_text() == "c\ta\n3\t1\n4\t5\n"


@pytest.mark.asyncio
@pytest.mark.parametrize(("columns", "content"), [(None, ""), (["a", "b"], "a,b\n")])
async def test_an_input_without_records_makes_a_file_with_the_declared_header(
    tmp_path: Path, columns: Sequence[str] | None, content: str
) -> None:
    await write(CsvSink[object](tmp_path / "out.csv", columns=columns))

    assert (tmp_path / "out.csv").read_text() == content


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "true"),
        (
            datetime(1937, 1, 1, tzinfo=timezone(timedelta(seconds=1172))),
            "1936-12-31T23:40:28+00:00",
        ),
        (datetime(2013, 1, 1, tzinfo=UTC), "2013-01-01T00:00:00+00:00"),
        (date(2013, 1, 1), "2013-01-01"),
        (Decimal("1.10"), "1.10"),
        (0.1, "0.1"),
        ([1, {"a": 2}], '"[1,{""a"":2}]"'),
    ],
    ids=repr,
)
async def test_values_are_written_as_documented(
    tmp_path: Path, value: object, written: str
) -> None:
    await write(CsvSink(tmp_path / "out.csv"), [{"v": value, "w": 1}])

    assert (tmp_path / "out.csv").read_text() == f"v,w\n{written},1\n"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"a": 1}, "its fields are not the columns ('a', 'b')"),
        ({"a": 1, "b": 2, "c": 3}, "its fields are not the columns ('a', 'b')"),
        ({"a": 1, "c": 3}, "it has no field 'b'"),
        ({"a": 1, "b": object()}, "Type is not JSON serializable: object"),
        ("text", "str has no named fields: give a dict, a dataclass"),
        ({"a": 1, "b": "x\udc80"}, "'\\udc80' is not text: surrogates not allowed"),
        ((1, 2), "tuple has no named fields"),
        (Flight, "type has no named fields"),
    ],
    ids=["less", "more", "others", "object", "text", "surrogate", "tuple", "class"],
)
async def test_a_record_that_does_not_fit_is_an_error_that_shows_it(
    tmp_path: Path, record: object, reason: str
) -> None:
    file = tmp_path / "out.csv"

    with pytest.raises(SinkError) as caught:
        await write(CsvSink[object](file), [{"a": 1, "b": 2}, record])

    message = str(caught.value)
    assert message.startswith(
        f"sink 'out': {file}: cannot write record {record!r} as CSV: {reason}"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.fixed_dictionaries({"a": st.text(alphabet='x",\r\n ë', min_size=1), "b": st.text()})
    )
)
async def test_written_records_are_read_again(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    file = tmp_path / "out.csv"

    await write(CsvSink(file, columns=["a", "b"], overwrite=True), rows)

    assert await records(CsvSource(file)) == rows


def test_arguments_are_checked_when_the_sink_is_described() -> None:
    with pytest.raises(FlowDefinitionError, match="columns must be different names"):
        CsvSink("out.csv", columns=["a", "a"])
    with pytest.raises(FlowDefinitionError, match="delimiter must be one character"):
        CsvSink("out.csv", delimiter='"')
