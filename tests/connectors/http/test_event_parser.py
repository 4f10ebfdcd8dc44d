"""The text of an event stream is parsed as the HTML standard defines it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow_connectors.http.event_parser import EventParser, ServerSentEvent


def parsed(*pieces: bytes, max_bytes: int = 1000, last_id: str = "") -> list[ServerSentEvent]:
    parser = EventParser(max_bytes=max_bytes, last_id=last_id)
    return [event for piece in pieces for event in parser.feed(piece)]


def event(data: str, type: str = "message", id: str = "") -> ServerSentEvent:
    return ServerSentEvent(data.encode(), type, id)


@pytest.mark.parametrize(
    ("text", "events"),
    [
        # The first four are examples of the standard.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [event("YHOO\n+2\n10")]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
            [event("first event", id="1"), event("second event")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [event(""), event("\n")]),
        (b"data:test\n\ndata: test\n\n", [event("test"), event("test")]),
        (b"event: a\ndata: 1\n\ndata: 2\n\n", [event("1", "a"), event("2")]),
        (b"id: 1\n\ndata: x\n\n", [event("x", id="1")]),
        (b"id: 1\ndata: x\n\nid: a\0b\ndata: y\n\n", [event("x", id="1"), event("y", id="1")]),
        (b"\xef\xbb\xbfdata: 1\n\n", [event("1")]),
        (b"data: 1\r\n\r\ndata: 2\r\rdata: 3\n\n", [event("1"), event("2"), event("3")]),
        (b"unknown: 1\ndata: 2\n\n", [event("2")]),
        ("event: ä\ndata: ö\n\n".encode(), [event("ö", "ä")]),
        (b"event: a\n\n", []),
    ],
    ids=str,
)
def test_a_stream_has_these_events(text: bytes, events: list[ServerSentEvent]) -> None:
    assert parsed(text) == events


@given(
    st.lists(
        st.sampled_from(
            [
                b"data: ab",
                b"data:c",
                b"event: e",
                b"id: 1",
                b"id",
                b": comment",
                b"",
                b"retry: 5",
                b"x",
            ]
        ),
        max_size=20,
    ),
    st.sampled_from([b"\n", b"\r", b"\r\n"]),
    st.data(),
)
def test_events_do_not_depend_on_the_pieces(
    lines: list[bytes], end: bytes, data: st.DataObject
) -> None:
    text = b"\xef\xbb\xbf" + b"".join(line + end for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(edges)]

    assert parsed(*pieces) == parsed(text)


def test_the_id_at_the_beginning_is_that_of_events_without_one() -> None:
    assert parsed(b"data: 1\n\n", last_id="7") == [event("1", id="7")]


def test_an_id_counts_from_the_end_of_its_event_on() -> None:
    parser = EventParser(max_bytes=1000, last_id="1")

    parser.feed(b"id: 2\ndata: x\n")
    before = parser.last_id
    parser.feed(b"\n")

    assert (before, parser.last_id) == ("1", "2")


def test_the_delay_is_that_of_the_last_valid_field() -> None:
    parser = EventParser(max_bytes=1000)

    parser.feed(b"retry: 2500\nretry: soon\nretry: -1\n")

    assert parser.retry == 2.5


@pytest.mark.parametrize(
    ("digits", "seconds"), [("3600001", 3600.0), ("9" * 10, 3600.0), ("9" * 5000, None)]
)
def test_the_delay_is_an_hour_at_most_and_endless_numbers_are_ignored(
    digits: str, seconds: float | None
) -> None:
    parser = EventParser(max_bytes=10_000)

    parser.feed(f"retry: {digits}\n".encode())

    assert parser.retry == seconds


@pytest.mark.parametrize("size", [99, 100])
def test_an_event_of_the_largest_size_is_whole(size: int) -> None:
    assert parsed(b"data: " + b"x" * size + b"\n\n", max_bytes=100) == [event("x" * size)]


@pytest.mark.parametrize(
    "text",
    [b"data: " + b"x" * 101 + b"\n\n", b"data: " + b"x" * 60 + b"\ndata: " + b"y" * 60 + b"\n\n"],
    ids=["one line", "two lines"],
)
def test_a_larger_event_is_marked_and_the_next_one_is_whole(text: bytes) -> None:
    first, second = parsed(text, b"data: 1\n\n", max_bytes=100)

    assert (first.is_too_large, second) == (True, event("1"))


def test_an_endless_line_is_not_kept() -> None:
    parser = EventParser(max_bytes=1000)

    for _ in range(1000):
        parser.feed(b"data: " + b"x" * 10_000)
    kept = len(parser._partial)  # pyright: ignore[reportPrivateUsage]
    (found,) = parser.feed(b"\n\n")

    assert kept < 20_000
    assert found.is_too_large
    assert len(found.data) <= 4096
