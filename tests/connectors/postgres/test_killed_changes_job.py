"""A job that reads changes and its server are killed repeatedly, and each change is written once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.killed_changes_job import killed
from tests.connectors.postgres.server import Server
from tests.forked import ForkServer


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_change_is_written_once_though_the_job_and_the_server_are_killed(
    forked: ForkServer, database: Database, own_server: Server, tmp_path: Path
) -> None:
    slot = database.schema
    await killed(forked, own_server, database.address, slot, tmp_path, 3, Random(1))
