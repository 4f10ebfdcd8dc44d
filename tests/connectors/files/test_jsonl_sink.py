"""Records written as JSON lines, in files that appear when they are complete."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aflow.connect import Batch, ConnectorError, SinkError, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.files import JsonLinesSink, JsonLinesSource
from aflow_connectors.files.output.lock_file import claim
from aflow_connectors.files.output.names import lock, new_scratch
from tests.connectors.files.reading import files_in, fill_disk, records, write

#: The offset of Amsterdam before 1937: not of whole minutes.
ODD = timezone(timedelta(minutes=19, seconds=32))

AT = datetime(2013, 1, 1, 5, 15, tzinfo=timezone(timedelta(hours=-5)))


@dataclass(frozen=True, slots=True)
class Payment:
    card: str
    at: datetime


class PaymentStruct(msgspec.Struct):
    card: str
    at: datetime


class PaymentTuple(NamedTuple):
    card: str
    at: datetime


class Kind(Enum):
    DEBIT = "debit"


@pytest.mark.asyncio
async def test_each_record_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"

    await write(JsonLinesSink[object](file), [{"a": 1}, {"b": "ë"}], [{"c": None}])

    assert file.read_text() == '{"a":1}\n{"b":"ë"}\n{"c":null}\n'


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [Payment, PaymentStruct, PaymentTuple, dict])
async def test_a_record_may_be_of_any_kind_with_named_fields(tmp_path: Path, kind: Any) -> None:
    file = tmp_path / "out.jsonl"

    await write(JsonLinesSink(file), [kind(card="1", at=AT)])

    assert file.read_text() == '{"card":"1","at":"2013-01-01T05:15:00-05:00"}\n'


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (date(2013, 1, 1), '"2013-01-01"'),
        (datetime(2013, 1, 1), '"2013-01-01T00:00:00"'),  # noqa: DTZ001
        (AT.astimezone(UTC), '"2013-01-01T10:15:00+00:00"'),
        (datetime(1937, 1, 1, tzinfo=ODD), '"1936-12-31T23:40:28+00:00"'),
        (time(5, 15), '"05:15:00"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Kind.DEBIT, '"debit"'),
        (Decimal("1.10"), '"1.10"'),
        (b"abc", '"YWJj"'),
        (float("nan"), "null"),
        ((1, "a"), '[1,"a"]'),
        ({3}, "[3]"),
        ({1: Payment("1", AT)}, '{"1":{"card":"1","at":"2013-01-01T05:15:00-05:00"}}'),
        (PaymentStruct("1", AT), '{"card":"1","at":"2013-01-01T05:15:00-05:00"}'),
        (PaymentTuple("1", AT), '{"card":"1","at":"2013-01-01T05:15:00-05:00"}'),
    ],
    ids=repr,
)
async def test_values_that_json_does_not_have_are_written_as_documented(
    tmp_path: Path, value: object, written: str
) -> None:
    file = tmp_path / "out.jsonl"

    await write(JsonLinesSink(file), [{"v": value}])

    assert file.read_text() == f'{{"v":{written}}}\n'


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("record", "reason"),
    [({"x": object()}, "Type is not JSON serializable: object"), ({"x": 2**64}, "64-bit range")],
    ids=["object", "large int"],
)
async def test_a_record_that_json_cannot_hold_is_an_error_that_shows_it(
    tmp_path: Path, record: dict[str, object], reason: str
) -> None:
    file = tmp_path / "out.jsonl"

    with pytest.raises(SinkError) as caught:
        await write(JsonLinesSink(file), [{"x": 1}, record])

    message = str(caught.value)
    assert message.startswith(f"sink 'out': {file}: cannot write record {{'x': ")
    assert reason in message


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
OBJECTS = st.lists(st.dictionaries(st.text(), JSON), max_size=5)


@pytest.mark.asyncio
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batches=st.lists(OBJECTS, max_size=3))
async def test_written_records_are_read_again(
    tmp_path: Path, batches: list[list[dict[str, object]]]
) -> None:
    file = tmp_path / "out.jsonl"

    await write(JsonLinesSink(file, overwrite=True), *batches)

    assert await records(JsonLinesSource(file)) == [record for batch in batches for record in batch]


class Card(NamedTuple):
    number: int
    limit: Decimal | None = None


class Order(NamedTuple):
    at: datetime
    card: Card
    history: dict[str, list[Card]]
    pair: tuple[int, Card] = (0, Card(0))


@dataclass(frozen=True)
class Customer:
    orders: list[Order]
    last: Order | None = None


ORDER = Order(datetime(1937, 1, 1, tzinfo=ODD), Card(1, Decimal("1.10")), {"a": [Card(2)]})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("of", "record"),
    [(Order, ORDER), (Customer, Customer([ORDER], ORDER)), (list[Card], [Card(1)])],
    ids=["NamedTuple", "in a dataclass", "in a list"],
)
async def test_written_named_tuples_are_read_again(
    tmp_path: Path, of: type[Any], record: object
) -> None:
    file = tmp_path / "out.jsonl"

    await write(JsonLinesSink(file), [record])

    assert await records(JsonLinesSource(file, of=of)) == [record]


@pytest.mark.asyncio
async def test_a_name_with_gz_or_zst_compresses(tmp_path: Path) -> None:
    await write(JsonLinesSink(tmp_path / "a.jsonl.gz"), [{"a": 1}], [{"a": 2}])
    await write(JsonLinesSink(tmp_path / "a.jsonl.zst"), [{"a": 1}], [{"a": 2}])

    expected = b'{"a":1}\n{"a":2}\n'
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == expected
    packed = (tmp_path / "a.jsonl.zst").read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == expected
    assert await records(JsonLinesSource(tmp_path)) == [{"a": 1}, {"a": 2}] * 2


@pytest.mark.asyncio
async def test_small_batches_are_kept_until_there_is_enough_to_write(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    writer = await JsonLinesSink[str](file).writer(WriterContext("out"))
    small, large = Batch(["x" * 1000]), Batch(["x" * (1 << 20)])

    assert writer.write(small) is None
    writing = writer.write(large)
    assert writing is not None
    await writing
    assert writer.write(small) is None
    await writer.flush()
    await writer.close()

    assert [len(line) for line in file.read_text().splitlines()] == [1002, (1 << 20) + 2, 1002]


@pytest.mark.asyncio
async def test_an_input_without_records_makes_an_empty_file(tmp_path: Path) -> None:
    await write(JsonLinesSink[object](tmp_path / "out.jsonl"))

    assert (tmp_path / "out.jsonl").read_bytes() == b""


@pytest.mark.asyncio
async def test_the_file_appears_when_the_input_has_ended(tmp_path: Path) -> None:
    writer = await JsonLinesSink[int](tmp_path / "out.jsonl").writer(WriterContext("out"))
    writer.write(Batch([1]))

    before = files_in(tmp_path)
    await writer.flush()
    after = files_in(tmp_path)
    await writer.close()

    assert (before, after) == (
        [".out.jsonl.inprogress", ".out.jsonl.writing"],
        ["out.jsonl"],
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
async def test_nothing_is_left_of_a_job_that_failed(tmp_path: Path, name: str) -> None:
    writer = await JsonLinesSink[str](tmp_path / name).writer(WriterContext("out"))
    writing = writer.write(Batch(["x" * (1 << 20)]))
    assert writing is not None
    await writing

    await writer.close()

    assert files_in(tmp_path) == []


@pytest.mark.asyncio
async def test_the_scratch_file_of_a_killed_process_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    killed = claim(lock(file), scratch=new_scratch(file))
    note = json.loads(killed.path.read_text())
    (tmp_path / note["scratch"]).write_text("half a li")
    killed.release()
    killed.path.write_text(json.dumps(note))

    await write(JsonLinesSink(tmp_path / "out.jsonl"), [1])

    assert files_in(tmp_path) == ["out.jsonl"]
    assert (tmp_path / "out.jsonl").read_text() == "1\n"


@pytest.mark.asyncio
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
async def test_a_second_writer_to_a_file_in_progress_is_refused_and_does_not_change_it(
    tmp_path: Path, overwrite: bool
) -> None:
    file = tmp_path / "out.jsonl"
    sink = JsonLinesSink[str](file, overwrite=overwrite)
    writer = await sink.writer(WriterContext("first"))
    writing = writer.write(Batch(["x" * (1 << 20)]))
    assert writing is not None
    await writing

    with pytest.raises(SinkError, match=f"^sink 'second': {file} is in progress by another writer"):
        await sink.writer(WriterContext("second"))
    await writer.flush()
    await writer.close()

    assert file.stat().st_size == (1 << 20) + 3
    assert files_in(tmp_path) == ["out.jsonl"]


@pytest.mark.asyncio
async def test_a_path_is_free_again_when_its_writer_has_closed(tmp_path: Path) -> None:
    sink = JsonLinesSink[int](tmp_path / "out.jsonl", overwrite=True)
    await (await sink.writer(WriterContext("failed"))).close()
    await write(sink, [1])

    await write(sink, [2])

    assert (tmp_path / "out.jsonl").read_text() == "2\n"


@pytest.mark.asyncio
async def test_an_existing_file_is_not_overwritten_without_the_option(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("old\n")

    with pytest.raises(SinkError, match=rf"^sink 'out': {file} already exists: .* overwrite=True"):
        await write(JsonLinesSink(file), [1])
    kept = file.read_text()
    await write(JsonLinesSink(file, overwrite=True), [1])

    assert (kept, file.read_text()) == ("old\n", "1\n")
    assert files_in(tmp_path) == ["out.jsonl"]


@pytest.mark.asyncio
async def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    writer = await JsonLinesSink[int](file).writer(WriterContext("out"))
    file.write_text("of somebody else\n")

    with pytest.raises(SinkError, match="already exists"):
        await writer.flush()
    await writer.close()

    assert file.read_text() == "of somebody else\n"
    assert files_in(tmp_path) == ["out.jsonl"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "parallelism", "expected"),
    [
        ("out.jsonl", 1, ["out.jsonl"]),
        ("out.jsonl", 2, ["out-00000.jsonl", "out-00001.jsonl"]),
        ("out{}.2013.jsonl.gz", 2, ["out{}.2013-00000.jsonl.gz", "out{}.2013-00001.jsonl.gz"]),
        ("out", 1, ["out/part-00000.jsonl"]),
        ("deep/out", 2, ["deep/out/part-00000.jsonl", "deep/out/part-00001.jsonl"]),
    ],
)
async def test_the_path_and_the_parallelism_say_which_files_there_are(
    tmp_path: Path, path: str, parallelism: int, expected: list[str]
) -> None:
    for subtask in range(parallelism):
        sink = JsonLinesSink[int](tmp_path / path)
        await write(sink, [subtask], subtask=subtask, parallelism=parallelism)

    found = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".manifest"]
    assert sorted(str(path.relative_to(tmp_path)) for path in found) == expected


@pytest.mark.asyncio
async def test_parts_of_an_earlier_run_with_more_subtasks_are_not_mixed_with_new_ones(
    tmp_path: Path,
) -> None:
    old = [f"part-{number:05}.jsonl" for number in range(4)]
    for subtask in range(4):
        await write(JsonLinesSink(tmp_path), [7], subtask=subtask, parallelism=4)
    (tmp_path / "part-00000.jsonl").unlink()

    with pytest.raises(SinkError, match=r"part-00002\.jsonl already exists"):
        await write(JsonLinesSink(tmp_path), [1], subtask=0, parallelism=2)
    for subtask in range(2):
        sink = JsonLinesSink[int](tmp_path, overwrite=True)
        await write(sink, [1], subtask=subtask, parallelism=2)

    assert files_in(tmp_path) == old[:2]


@pytest.mark.asyncio
async def test_a_full_disk_is_an_error_that_names_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.jsonl"
    fill_disk(monkeypatch, file)

    with pytest.raises(
        SinkError, match=f"^sink 'out': cannot write {file}: No space left on device"
    ):
        await write(JsonLinesSink(file), ["x" * (2 << 20)])

    assert files_in(tmp_path) == []


@pytest.mark.asyncio
async def test_a_full_disk_is_an_error_at_the_end_of_a_compressed_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, tmp_path / "out.jsonl.gz")

    with pytest.raises(SinkError, match="No space left on device"):
        await write(JsonLinesSink(tmp_path / "out.jsonl.gz"), [1])

    assert files_in(tmp_path) == []


@pytest.mark.asyncio
async def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_path(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "out.jsonl"

    with pytest.raises(SinkError, match=f"cannot write {path}: (Not a directory|File exists)"):
        await write(JsonLinesSink(path), [1])


@pytest.mark.asyncio
async def test_a_folder_that_is_read_only_is_an_error_that_names_the_path() -> None:
    # Not even root can create files here.
    path = Path("/proc/aflow/out.jsonl")

    with pytest.raises(SinkError, match=f"cannot write {path}: "):
        await write(JsonLinesSink(path), [1])


@pytest.mark.asyncio
async def test_nothing_can_be_written_after_the_end(tmp_path: Path) -> None:
    writer = await JsonLinesSink[str](tmp_path / "out.jsonl").writer(WriterContext("out"))
    await writer.flush()

    writing = writer.write(Batch(["x" * (1 << 20)]))
    assert writing is not None
    with pytest.raises(SinkError, match="is finished, nothing can be added"):
        await writing
    await writer.close()


@pytest.mark.asyncio
async def test_zstd_without_its_package_creates_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(ConnectorError, match=r'pip install "aflow-streams\[zstd\]"'):
        await JsonLinesSink[int](tmp_path / "out.jsonl.zst").writer(WriterContext("out"))

    assert files_in(tmp_path) == []


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_path_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(FlowDefinitionError, match=r"names no file and no folder|the path is empty"):
        JsonLinesSink(path)
