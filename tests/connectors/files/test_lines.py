"""Lines are the same for any blocks, and a position continues after any of them."""

from __future__ import annotations

import asyncio
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from aflow_connectors.files.lines import LinePosition, Lines

#: Also the size of a block, so that each file has several.
MAX_LINE_BYTES = 8

line = st.binary(max_size=MAX_LINE_BYTES).map(lambda data: data.replace(b"\n", b"-"))


async def read(
    file: Path, start: LinePosition, wanted: list[int], consumed: int
) -> tuple[list[bytes], list[LinePosition]]:
    """Peek at as many lines as ``wanted`` in turn, consume up to ``consumed``; return the lines and the positions."""
    lines = Lines(file, start, MAX_LINE_BYTES)
    found: list[bytes] = []
    positions: list[LinePosition] = []
    turn = 0
    while True:
        some = lines.peek(wanted[turn % len(wanted)])
        turn += 1
        if lines.are_all(some) and not lines.ended:
            await lines.more()
            continue
        if not some:
            await lines.close()
            return found, positions
        some = some[:consumed]
        lines.consume(some)
        found += some
        positions.append(lines.position)


@given(
    st.lists(line, max_size=12),
    st.binary(max_size=MAX_LINE_BYTES).map(lambda data: data.replace(b"\n", b"-")),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(1, 5),
    st.booleans(),
)
@example([b"a", b"", b"12345678"], b"end", [1, 3], 2, True)
def test_lines_and_positions_are_those_of_the_content(
    ended: list[bytes], last: bytes, wanted: list[int], consumed: int, mark: bool
) -> None:
    content = b"".join(one + b"\n" for one in ended) + last
    if content.startswith(
        (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"\x28\xb5\x2f")
    ):
        return
    begin = b"\xef\xbb\xbf" if mark else b""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lines"
        file.write_bytes(begin + content)

        found, positions = asyncio.run(read(file, LinePosition(), wanted, consumed))
        continued = [
            asyncio.run(read(file, position, wanted, consumed))[0] for position in positions
        ]

    assert found == BytesIO(content).readlines()
    for position, after in zip(positions, continued, strict=True):
        assert after == found[position.line :]
        assert position.offset == len(begin) + sum(map(len, found[: position.line]))
        assert position.length == len(found[position.line - 1])
