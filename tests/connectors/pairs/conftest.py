"""The servers of the pairs, which their tests kill."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.connectors.pairs.servers import Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[Servers]:
    """Servers of this test process. Each is started for the first test that needs it."""
    with Servers(tmp_path_factory.mktemp("kafka")) as found:
        yield found
