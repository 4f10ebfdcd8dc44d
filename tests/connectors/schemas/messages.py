"""Messages of formats without a connector."""

from __future__ import annotations

from typing import Any

from aflow_connectors.formats import Format


async def encoded(form: Format[Any], *values: Any) -> list[bytes]:
    """Encode ``values`` as a sink does."""
    await form.before_encoding(values)
    return [form.encode(value) for value in values]


async def decoded(form: Format[Any], *messages: bytes) -> list[Any]:
    """Decode ``messages`` as a source does."""
    await form.before_decoding(messages)
    return [form.decode(message) for message in messages]
