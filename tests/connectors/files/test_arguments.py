"""Wrong arguments are named when the source or sink is defined, also without a type checker."""

from __future__ import annotations

import pytest

from aflow.errors import FlowDefinitionError
from aflow_connectors import files


@pytest.mark.parametrize(
    ("end", "arguments", "says"),
    [
        (
            "JsonLinesSource",
            {"path": 3},
            "JsonLinesSource: the path must be a str or a Path, not 3",
        ),
        (
            "JsonLinesSink",
            {"path": None},
            "JsonLinesSink: the path must be a str or a Path, not None",
        ),
        ("ParquetSink", {"path": ""}, "ParquetSink: the path is empty"),
        (
            "TextSource",
            {"path": "a", "dead_letters": "bad"},
            "TextSource: dead_letters= must be a tag, like Tag[BadRecord]('bad'), not 'bad'",
        ),
        (
            "ParquetSource",
            {"path": "a", "discover_every": 5},
            "ParquetSource: discover_every= must be a timedelta, like timedelta(seconds=10), not 5",
        ),
        (
            "CsvSource",
            {"path": "a", "concurrency": 0},
            "CsvSource: concurrency is a number of files from 1 on, or None for all, not 0",
        ),
        (
            "JsonLinesSource",
            {"path": "a", "encoding": None},
            "JsonLinesSource: encoding= must be the name of one, like 'utf-8', not None",
        ),
        (
            "CsvSource",
            {"path": "a", "max_line_bytes": "1"},
            "CsvSource: max_line_bytes= must be an int, not '1'",
        ),
        (
            "CsvSource",
            {"path": "a", "delimiter": None},
            "CsvSource: the delimiter must be one character, and no quote or line end, not None",
        ),
        (
            "CsvSource",
            {"path": "a", "of": dict, "missing": "NA"},
            "CsvSource: missing= must be several str, like ['NA'], not 'NA'",
        ),
        (
            "CsvSource",
            {"path": "a", "columns": "ab"},
            "CsvSource: columns= must be several str, like ['ab'], not 'ab'",
        ),
        (
            "CsvSource",
            {"path": "a", "columns": [1]},
            "CsvSource: columns= must be several str, not [1]",
        ),
        (
            "CsvSink",
            {"path": "a", "columns": "ab"},
            "CsvSink: columns= must be several str, like ['ab'], not 'ab'",
        ),
        (
            "ParquetSource",
            {"path": "a", "columns": "ab"},
            "ParquetSource: columns= must be several str, like ['ab'], not 'ab'",
        ),
    ],
    ids=[
        *(
            "path",
            "no path",
            "empty path",
            "dead letters",
            "interval",
            "concurrency",
            "encoding",
            "bound",
            "delimiter",
        ),
        *("missing", "columns", "numbers", "written columns", "read columns"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(
    end: str, arguments: dict[str, object], says: str
) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        getattr(files, end)(**arguments)

    assert str(caught.value) == says
