"""Formats of messages: bytes to records and back, with errors that say why."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow_connectors.formats import Format, FormatError, Json, Raw, Text


@dataclass(frozen=True)
class Payment:
    card: str
    amount: float
    at: datetime | None = None


class Point(NamedTuple):
    x: int
    y: int = 0


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_json_of_a_declared_type_is_decoded_as_it_was_encoded(card: str, amount: float) -> None:
    payment = Payment(card, amount, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    of_payments = Json(Payment)

    assert of_payments.decode(of_payments.encode(payment)) == payment


def test_json_without_a_type_is_any_value() -> None:
    assert Json().decode(b'{"a": [1, null]}') == {"a": [1, None]}
    assert Json().encode({1: "a"}) == b'{"1":"a"}'


def test_a_missing_field_gets_its_default_and_an_undeclared_one_is_ignored() -> None:
    assert Json(Payment).decode(b'{"card":"1","amount":2,"new":3}') == Payment("1", 2.0)
    assert Json(Point).decode(b'{"x": 1}') == Point(1)


@pytest.mark.parametrize("data", [b"", b"{", b'{"card": 1}', b"\xff", b"null"])
def test_data_that_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="not JSON of the declared type"):
        Json(Payment).decode(data)


@pytest.mark.parametrize("of", [None, list, object])
def test_data_that_is_nested_too_deeply_is_refused(of: Any) -> None:
    with pytest.raises(FormatError, match="not JSON of the declared type"):
        Json(of).decode(b"[" * 100_000 + b"]" * 100_000)


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(FormatError, match="JSON cannot hold it"):
        Json().encode(object())


def test_a_type_that_cannot_be_decoded_is_refused_at_once() -> None:
    undecodable: Any = complex | Payment | Point
    with pytest.raises(FlowDefinitionError, match="Json: cannot decode into"):
        Json(undecodable)


def test_json_may_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Json(Point))).decode(b"[1,2]") == Point(1, 2)


@given(st.binary())
def test_raw_keeps_all_bytes(data: bytes) -> None:
    assert Raw().decode(Raw().encode(data)) == data


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_decoded_as_it_was_encoded(text: str) -> None:
    assert Text().decode(Text().encode(text)) == text


def test_text_that_utf_8_cannot_hold_is_refused() -> None:
    with pytest.raises(FormatError, match="not UTF-8: surrogates not allowed at 1"):
        Text().encode("a\ud800")


@pytest.mark.parametrize(
    ("kind", "wrong", "reason"),
    [
        (Raw(), "text", "Raw holds bytes, not str"),
        (Text(), b"bytes", "Text holds str, not bytes"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Format[Any], wrong: object, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        kind.encode(wrong)


def test_bytes_that_are_no_text_are_refused_with_the_byte() -> None:
    with pytest.raises(FormatError, match="byte 0xff at 2"):
        Text().decode(b"ab\xff")
