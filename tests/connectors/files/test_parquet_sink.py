"""Records become Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from struct import pack

import pytest

from aflow.connect import Batch, SinkError, SourceError, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.files import ParquetSink, ParquetSource
from tests.connectors.files.arrow import pa, pq
from tests.connectors.files.reading import fill_disk, records, write

AT = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass
class Payment:
    card: str
    at: datetime


@pytest.mark.asyncio
async def test_written_records_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    payments = [Payment(str(number), AT) for number in range(5)]

    await write(ParquetSink(file, row_group=2), payments[:1], payments[1:])

    assert await records(ParquetSource(file, of=Payment)) == payments
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.asyncio
async def test_a_row_group_is_written_when_it_is_full(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"

    await write(ParquetSink(file, row_group=3), [{"n": 0}], [{"n": n} for n in range(7)])

    metadata = pq.ParquetFile(file).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [3, 3, 2]


@pytest.mark.asyncio
async def test_a_schema_gives_the_types_of_the_columns(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    schema = pa.schema([("amount", pa.float64()), ("note", pa.string())])

    await write(ParquetSink(file, schema=schema), [{"note": None, "amount": 1}])

    assert pq.read_schema(file).equals(schema)
    assert await records(ParquetSource(file)) == [{"amount": 1.0, "note": None}]


@pytest.mark.asyncio
async def test_an_input_without_records_makes_a_file_with_the_columns_that_are_known(
    tmp_path: Path,
) -> None:
    schema = pa.schema([("a", pa.int64())])

    await write(ParquetSink[object](tmp_path / "known.parquet", schema=schema))
    await write(ParquetSink[object](tmp_path / "unknown.parquet"))

    assert pq.read_table(tmp_path / "known.parquet").schema.names == ["a"]
    assert pq.read_table(tmp_path / "unknown.parquet").schema.names == []
    assert await records(ParquetSource(tmp_path)) == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"a": 1}, r"cannot write record \{'a': 1\}: its fields are not the columns \['a', 'b'\]"),
        ({"a": 1, "c": 2}, "its fields are not the columns"),
        ({"a": "x", "b": 2}, "cannot write column 'a': "),
        ({"a": 2**64, "b": 2}, "cannot write column 'a': "),
        ("text", "str has no named fields"),
    ],
    ids=["less", "others", "type", "large int", "text"],
)
@pytest.mark.parametrize("row_group", [1, 2])
async def test_an_invalid_record_is_an_error_and_creates_no_file(
    tmp_path: Path, record: object, reason: str, row_group: int
) -> None:
    file = tmp_path / "out.parquet"

    with pytest.raises(SinkError, match=f"({file}: )?.*{reason}"):
        await write(ParquetSink[object](file, row_group=row_group), [{"a": 1, "b": 2}, record])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_a_column_that_begins_with_none_for_a_row_group_is_an_error_that_asks_for_its_type(
    tmp_path: Path,
) -> None:
    sink = ParquetSink[object](tmp_path / "out.parquet", row_group=1)

    with pytest.raises(
        SinkError, match=r"cannot write column 'a': .*; in the first row group .* schema="
    ):
        await write(sink, [{"a": None}, {"a": 1}])


@pytest.mark.asyncio
async def test_a_full_disk_is_an_error_that_names_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.parquet"
    fill_disk(monkeypatch, file)

    with pytest.raises(SinkError, match=f"cannot write {file}: No space left on device"):
        await write(ParquetSink(file), [{"a": 1}])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_nothing_is_left_of_a_job_that_failed(tmp_path: Path) -> None:
    writer = await ParquetSink[object](tmp_path, row_group=1).writer(WriterContext("out"))
    writing = writer.write(Batch([{"a": 1}]))
    assert writing is not None
    await writing

    await writer.close()

    assert list(tmp_path.iterdir()) == []


def test_arguments_are_checked_when_the_sink_is_described() -> None:
    with pytest.raises(FlowDefinitionError, match=r"ends in \.gz, .* name it 'out\.parquet'"):
        ParquetSink("out.parquet.gz")
    with pytest.raises(FlowDefinitionError, match="row_group must be at least 1"):
        ParquetSink("out", row_group=0)
    with pytest.raises(FlowDefinitionError, match=r"schema must be a pyarrow\.Schema"):
        ParquetSink("out", schema={"a": int})


def with_flipped_bit(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.asyncio
async def test_a_value_that_was_damaged_on_disk_is_an_error_not_another_value(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.parquet"
    await write(ParquetSink(file), [{"a": 1234567.891}])
    data = file.read_bytes()
    file.write_bytes(with_flipped_bit(data, data.index(pack("<d", 1234567.891))))

    assert pq.ParquetFile(file).read().to_pylist() != [{"a": 1234567.891}]
    with pytest.raises(SourceError, match=r"cannot read .*a\.parquet"):
        await records(ParquetSource(file))


@pytest.mark.asyncio
async def test_no_flipped_bit_before_the_footer_changes_the_records(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    rows = [{"n": n, "name": f"name {n % 7}"} for n in range(40)]
    await write(ParquetSink(file, row_group=20), rows)
    data = file.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")

    for at in range(4, footer, 11):
        file.write_bytes(with_flipped_bit(data, at))
        try:
            found = await records(ParquetSource(file))
        except SourceError:
            continue
        assert found == rows


@pytest.mark.asyncio
async def test_a_file_whose_pages_have_no_checksums_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet", write_page_checksum=False)

    assert await records(ParquetSource(tmp_path / "a.parquet")) == [{"a": 1}, {"a": 2}]
