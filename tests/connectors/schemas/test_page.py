"""The code of the page about formats runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.schemas.fake_registry import FakeRegistry
from tests.docs.snippets import run_document


@pytest.fixture
def registry_url() -> Iterator[str]:
    """A registry on a loop of its own: the code of a page has another one."""
    started = threading.Event()
    urls: list[str] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with FakeRegistry() as fake:
            stop = asyncio.Event()
            urls.append(fake.url)
            stops.append((asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(60)
    yield urls[0]
    loop, stop = stops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()


def test_the_code_of_a_document_about_schemas_runs(
    registry_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGISTRY", registry_url)

    run_document("docs/connectors/formats.md")
