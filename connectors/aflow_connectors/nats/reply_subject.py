"""The subject to which a message of a JetStream consumer is acknowledged. It has the numbers of the message."""

from __future__ import annotations

from typing import Final, NamedTuple

_PREFIX: Final = "$JS.ACK."


class MessageNumbers(NamedTuple):
    """The numbers of a message: ``number`` is that in its consumer, from 1, and ``time`` is in epoch ns."""

    sequence: int
    number: int
    time: int


def numbers_of(reply: str) -> MessageNumbers | None:
    """Return the numbers in a reply subject; None for a message that is a status of the server."""
    # Hot path (benchmark `connectors`): once for each message.
    if not reply.startswith(_PREFIX):
        return None
    # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<number>.<time>.<pending>; with a domain and an account
    # hash before the stream in some versions, and a random part at the end.
    fields = reply.split(".")
    at = 7 if len(fields) > 9 else 5
    return MessageNumbers(int(fields[at]), int(fields[at + 1]), int(fields[at + 2]))
