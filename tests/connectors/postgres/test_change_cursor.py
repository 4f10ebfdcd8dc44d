"""The machine that turns messages of a stream into changes continues exactly after any of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow_connectors.postgres.changes.messages import (
    Begin,
    Commit,
    Message,
    Relation,
    RowChanged,
    Truncate,
    lsn_of,
    lsn_text,
)
from aflow_connectors.postgres.changes.transactions import TransactionCursor

#: Numbers of rows and truncated tables of each transaction.
TRANSACTIONS = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=5)

RELATIONS = tuple(Relation(oid, "public", f"t{oid}", "d", ()) for oid in range(1, 4))


def stream(transactions: list[list[int]]) -> list[Message]:
    """Messages: 0 is a changed row, another number truncates as many tables."""
    messages: list[Message] = []
    lsn = 100
    for xid, changes in enumerate(transactions):
        messages += [Begin(lsn, 0, xid), *RELATIONS]
        for count in changes:
            row = RowChanged("insert", 1, None, False, (b"1",))
            messages.append(Truncate(tuple(range(1, count + 1))) if count else row)
        messages.append(Commit(lsn, lsn + 10))
        lsn += 25
    return messages


def changes_of(cursor: TransactionCursor, messages: list[Message]) -> list[tuple[int, int, str]]:
    return [
        (change.transaction.xid, change.number, change.relation.name)
        for message in messages
        for change in cursor.handle(message)
    ]


@given(TRANSACTIONS)
def test_a_cursor_continues_after_any_message_where_it_was(transactions: list[list[int]]) -> None:
    messages = stream(transactions)
    whole = changes_of(TransactionCursor(0, 0), messages)

    for stop in range(len(messages) + 1):
        cursor = TransactionCursor(0, 0)
        before = changes_of(cursor, messages[:stop])
        same = TransactionCursor(cursor.lsn, cursor.number)
        cursor.restart()

        assert before + changes_of(same, messages) == whole
        assert before + changes_of(cursor, messages) == whole


@given(TRANSACTIONS, st.integers(0, 300))
def test_a_cursor_that_advances_passes_what_was_committed_before(
    transactions: list[list[int]], lsn: int
) -> None:
    messages = stream(transactions)
    cursor = TransactionCursor(0, 0)
    cursor.advance(lsn)

    found = changes_of(cursor, messages)

    expected = [
        one for one in changes_of(TransactionCursor(0, 0), messages) if 100 + 25 * one[0] >= lsn
    ]
    assert found == expected


@given(st.integers(0, 2**64 - 1))
def test_a_position_in_the_log_has_the_text_of_the_server(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn
    assert lsn_text(0x16_B374D848) == "16/B374D848"
