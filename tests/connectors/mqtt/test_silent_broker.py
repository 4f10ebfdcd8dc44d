"""A connection to a broker that does not answer is closed when the attempt is given up."""

from __future__ import annotations

import asyncio

import pytest

from aflow.connect import SourceError
from aflow_connectors.mqtt.client import MqttConnection, mqtt_server


@pytest.mark.asyncio
async def test_an_attempt_that_is_cancelled_leaves_no_connection() -> None:
    accepted, closed = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = mqtt_server("test", f"mqtt://127.0.0.1:{port}", {"keepalive": 3600})
    before = asyncio.all_tasks()
    opening = asyncio.create_task(MqttConnection(address, SourceError).open())
    await accepted.wait()

    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    try:
        await asyncio.wait_for(closed.wait(), 10)
    finally:
        server.close()

    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
