"""The examples of the page run, against a service in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from aiohttp import web

from tests.connectors.http.service import Ledger, Replaying, serving
from tests.docs.snippets import run_document


@contextmanager
def served(ledger: Ledger) -> Generator[str]:
    """Serve numbers, and a ledger at ``/totals``, while another thread uses them."""
    started: Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()
    numbers = Replaying(5)

    async def handle(request: web.Request) -> web.StreamResponse:
        service = ledger if request.path == "/totals" else numbers
        return await service.handle(request)

    async def serve() -> None:
        ended = asyncio.Event()
        async with serving(handle) as url:
            started.put((url, asyncio.get_running_loop(), ended))
            await ended.wait()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, loop, ended = started.get(timeout=60)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


@pytest.mark.slow
def test_what_the_page_shows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    monkeypatch.chdir(tmp_path)

    with served(ledger) as url:
        monkeypatch.setenv("SERVICE", url)
        run_document("docs/connectors/http.md")

    assert ledger.records == [{"n": n} for n in range(5)]
