"""The header ``Link`` names the address with a relation."""

from __future__ import annotations

import pytest

from aflow_connectors.http.link_header import linked


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ('<a>; rel="next"', "a"),
        ("<a>;rel=next", "a"),
        ("<a>; REL = NEXT", "a"),
        ('<a?x=1,2;3>; rel="next"', "a?x=1,2;3"),
        ('<a>; rel="prev", <b>; rel="next last"', "b"),
        ('<a>; title="x; rel=next", <b>; rel=next', "b"),
        ('<a>; title="say \\"x\\", <c>; rel=next"; rel="next"', "a"),
        ("<a>; rel=prev; rel=next", None),  # the first one counts
        ("<a>; rel=nextpage", None),
        ("<a>", None),
        ("a; rel=next", None),
        ("", None),
    ],
    ids=str,
)
def test_a_header_links_to_this_address(header: str, address: str | None) -> None:
    assert linked(header, "next") == address
