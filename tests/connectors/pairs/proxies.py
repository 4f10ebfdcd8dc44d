"""Proxies in a thread of their own, so that they work while a test waits for a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.connectors.proxy import Proxy

T = TypeVar("T")


class ThreadedProxy:
    """A proxy of another thread. Its methods are those of ``Proxy``, and return when they have taken effect."""

    def __init__(self, proxy: Proxy, run: Callable[[Coroutine[Any, Any, object]], object]) -> None:
        self._proxy = proxy
        self._run = run
        self.address = proxy.address

    def cut(self) -> None:
        self._call(self._proxy.cut)

    def refuse(self) -> None:
        self._call(self._proxy.refuse)

    def accept(self) -> None:
        self._call(self._proxy.accept)

    def freeze(self) -> None:
        self._call(self._proxy.freeze)

    def thaw(self) -> None:
        self._call(self._proxy.thaw)

    def lose_answers(self) -> None:
        self._call(self._proxy.lose_answers)

    def _call(self, method: Callable[[], None]) -> None:
        async def call() -> None:
            method()

        self._run(call())


class Proxies:
    """Opens proxies; closes all of them at the end."""

    def __init__(self) -> None:
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for proxy in self._proxies:
                self._run(proxy.__aexit__(None, None, None))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def open(self, host: str, port: int, *, listen: int = 0) -> ThreadedProxy:
        """Open a proxy before ``host`` and ``port``, that listens at ``listen``, or at a free port."""
        proxy = Proxy(host, port, listen=listen)
        self._run(proxy.__aenter__())
        self._proxies.append(proxy)
        return ThreadedProxy(proxy, self._run)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(30)
