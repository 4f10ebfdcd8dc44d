"""Rows of Parquet become records."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

import pytest

from aflow.connect import BadRecord, ConnectorError, SourceError, Tag
from aflow.errors import FlowDefinitionError
from aflow_connectors.files import ParquetSource
from aflow_connectors.files.arrow_records import Conversion
from aflow_connectors.files.parquet_rows import ParquetPosition, ParquetRows
from tests.connectors.files.arrow import pa, pq
from tests.connectors.files.reading import chunks, records, rejected, values

AT = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass
class Payment:
    card: str
    amount: float


def parquet(folder: Path, columns: dict[str, list[Any]], *, row_group: int = 2) -> Path:
    file = folder / "a.parquet"
    pq.write_table(pa.table(columns), file, row_group_size=row_group)
    return file


@pytest.mark.asyncio
async def test_each_row_is_a_record(tmp_path: Path) -> None:
    file = parquet(
        tmp_path, {"card": ["1", None, "3"], "at": [AT, AT, AT], "tags": [[], ["a"], None]}
    )

    assert await records(ParquetSource(file)) == [
        {"card": "1", "at": AT, "tags": []},
        {"card": None, "at": AT, "tags": ["a"]},
        {"card": "3", "at": AT, "tags": None},
    ]


@pytest.mark.asyncio
async def test_timestamps_and_dates_have_the_values_of_pyarrow(tmp_path: Path) -> None:
    days = pa.array([0, None, -1, 2_932_896], pa.int32()).cast(pa.date32())
    moments: list[Any] = [0, None, -62_135_596_800_000_000, 1_700_000_000_000_001]
    columns = {
        "day": days,
        "utc": pa.array(moments, pa.timestamp("us", "UTC")),
        "there": pa.array([0, None, 1, 2], pa.timestamp("us", "Europe/Berlin")),
        "local": pa.array(moments, pa.timestamp("us")),
        "seconds": pa.array([0, None, 1, 2], pa.timestamp("s", "UTC")),
    }

    found = await records(ParquetSource(parquet(tmp_path, columns)))

    assert found == pa.table(columns).to_pylist()
    assert [record["utc"] and record["utc"].utcoffset() for record in found] == [
        timedelta(0),
        None,
        timedelta(0),
        timedelta(0),
    ]


@pytest.mark.asyncio
async def test_moments_that_spark_wrote_in_its_old_way_are_in_utc(tmp_path: Path) -> None:
    # Spark's own files, with times of day beside moments, are read in tests/spark.
    moment = pa.timestamp("ns")
    inner = pa.struct([("n", pa.int64()), ("at", moment)])
    table = pa.table(
        {
            "n": [1, 2],
            "at": pa.array([AT, None], moment),
            "times": pa.array([[AT], []], pa.list_(moment)),
            "by_name": pa.array([[("a", {"n": 1, "at": AT})], None], pa.map_(pa.string(), inner)),
        },
    )
    file = tmp_path / "a.parquet"
    options = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    with pq.ParquetWriter(file, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"org.apache.spark.version": "4.3.0"})

    first, second = await records(ParquetSource(file))

    assert first == {
        "n": 1,
        "at": AT,
        "times": [AT],
        "by_name": {"a": {"n": 1, "at": AT}},
    }
    assert second == {"n": 2, "at": None, "times": [], "by_name": None}


@pytest.mark.parametrize("kind", ["timestamp[us, UTC]", "timestamp[us]", "date32"])
@pytest.mark.asyncio
async def test_a_timestamp_beyond_datetime_is_an_error(tmp_path: Path, kind: str) -> None:
    types = {
        "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
        "timestamp[us]": pa.timestamp("us"),
        "date32": pa.date32(),
    }
    far = pa.array([None, 2**30 if kind == "date32" else 2**60]).cast(pa.int64())
    numbers = far.cast(pa.int32()) if kind == "date32" else far
    file = parquet(tmp_path, {"at": numbers.cast(types[kind])})

    with pytest.raises(SourceError, match=r"cannot read .*a\.parquet: "):
        await records(ParquetSource(file))


@pytest.mark.asyncio
async def test_only_the_given_columns_are_read(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"a": [1], "b": [2], "c": [3]})

    assert await records(ParquetSource(file, columns=["c", "a"])) == [{"c": 3, "a": 1}]


@pytest.mark.asyncio
async def test_records_are_of_the_declared_type(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"card": ["1"], "amount": [2.5], "more": [0]})

    assert await records(ParquetSource(file, of=Payment)) == [Payment("1", 2.5)]


@pytest.mark.asyncio
async def test_a_row_that_does_not_fit_the_type_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"card": ["1", "2", "3", None], "amount": [1.0] * 4})

    with pytest.raises(SourceError) as caught:
        await records(ParquetSource(file, of=Payment))

    assert str(caught.value).startswith(
        f"{file}, row group 1, row 1: Expected `str`, got `null` - at `$.card`: "
        "\"{'card': None, 'amount': 1.0}\""
    )


@pytest.mark.asyncio
async def test_rows_that_do_not_match_are_dead_letters(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"card": ["1", None, "3"], "amount": [1.0] * 3})

    found = await chunks(ParquetSource(file, of=Payment, dead_letters=Tag[BadRecord]("bad")))

    assert values(found) == [Payment("1", 1.0), Payment("3", 1.0)]
    assert [place for place, _, _ in rejected(found)] == [f"{file}, row group 0, row 1"]


def test_rows_of_a_read_that_was_cancelled_are_not_lost(tmp_path: Path) -> None:
    conversion: Conversion[Any] = Conversion("test", None)
    rows: ParquetRows[Any] = ParquetRows(
        parquet(tmp_path, {"n": [1, 2, 3]}), ParquetPosition(), None, conversion
    )

    rows.prepare()
    rows.prepare()
    taken, position = rows.take(1)
    rows.close()

    assert (taken, position) == ([{"n": 1}], ParquetPosition(0, 1, 3))


@pytest.mark.asyncio
async def test_a_file_that_is_no_parquet_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"a,b\n" * 10)

    with pytest.raises(SourceError, match=f"cannot read {file}: Parquet magic bytes not found"):
        await records(ParquetSource(file))


@pytest.mark.asyncio
async def test_damage_within_a_file_is_an_error_that_names_the_row_before(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"a": [f"{n}" * 50 for n in range(2000)]}, row_group=1000)
    begin = pq.ParquetFile(file).metadata.row_group(1).column(0).dictionary_page_offset
    data = bytearray(file.read_bytes())
    data[begin : begin + 200] = b"\xff" * 200
    file.write_bytes(data)

    with pytest.raises(SourceError, match=f"cannot read {file}, after row 1,000 of row group 0: "):
        await records(ParquetSource(file))


@pytest.mark.asyncio
async def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are(
    tmp_path: Path,
) -> None:
    file = parquet(tmp_path, {"a": [1], "b": [2]})

    with pytest.raises(SourceError, match=r"it has no column 'x', but \['a', 'b'\]"):
        await records(ParquetSource(file, columns=["a", "x"]))


@pytest.mark.asyncio
async def test_without_pyarrow_the_error_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = parquet(tmp_path, {"a": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)

    with pytest.raises(
        ConnectorError, match=r'ParquetSource needs .*: pip install "aflow-streams\[parquet\]"$'
    ):
        await records(ParquetSource(file))


def test_arguments_are_checked_when_the_source_is_described() -> None:
    with pytest.raises(FlowDefinitionError, match="columns= is empty"):
        ParquetSource("a.parquet", columns=[])


def test_the_type_of_the_records_is_inferred() -> None:
    assert_type(ParquetSource("a.parquet"), ParquetSource[dict[str, Any]])
    assert_type(ParquetSource("a.parquet", of=Payment), ParquetSource[Payment])
