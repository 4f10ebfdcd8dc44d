"""A schema registry for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from aflow_connectors.schemas import SchemaRegistry
from tests.connectors.schemas.fake_registry import FAST, FakeRegistry


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry() as fake:
        yield fake


@pytest.fixture
def registry(fake: FakeRegistry) -> SchemaRegistry:
    return SchemaRegistry(fake.url, reconnect=FAST)
