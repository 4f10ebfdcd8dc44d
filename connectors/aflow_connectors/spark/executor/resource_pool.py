"""Pool of resources, such as HTTP sessions: opened once in a worker process and reused by the tasks that follow.

The resources live on the loop, independent of the jobs of single tasks. They are not closed when Spark kills the worker
process, which is how it ends them. A process that has run many steps closes the resources that were unused for the
longest time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

from aflow.backfill.fragments import Fragment
from aflow.backfill.resources import FragmentResources
from aflow_connectors.spark.executor.event_loop import begin_beside

#: Number of unused steps whose resources a process keeps open.
KEPT: Final = 8


class _Held:
    """Open resources of one fragment."""

    def __init__(self, resources: FragmentResources) -> None:
        self.resources = resources
        #: Tasks that use the resources now.
        self.users = 0
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._errand = begin_beside(self._keep)

    @property
    def over(self) -> bool:
        """Return True if opening failed, or if the resources were lost or closed."""
        return self._errand.over

    async def opened(self) -> FragmentResources:
        """Wait until the resources are open. Raises ``OperatorError``."""
        # A cancelled task must not stop others from waiting.
        await asyncio.shield(self._opened)
        return self.resources

    def close(self) -> None:
        self._errand.cancel()

    async def _keep(self) -> None:
        try:
            async with self.resources.open():
                self._opened.set_result(None)
                await self.resources.watch()
        except BaseException as exc:
            if not self._opened.done():
                self._opened.set_exception(exc)
            raise


#: By digest of the fragment, least recently used first.
_shelves: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Held]]] = (
    WeakKeyDictionary()
)


@asynccontextmanager
async def kept(digest: str, fragment: Fragment, flow: str) -> AsyncGenerator[FragmentResources]:
    """Yield the resources of ``fragment``, opened if this process does not have them; they stay open after the block.

    ``digest`` identifies the fragment: it must differ if anything in the fragment differs. Raises ``OperatorError`` if
    they cannot be opened; the next task tries again.
    """
    resources = FragmentResources(fragment, flow)
    if not resources.needed:
        yield resources
        return
    shelf = _shelves.setdefault(asyncio.get_running_loop(), {})
    held = shelf.pop(digest, None)
    if held is None or held.over:
        held = _Held(resources)
    shelf[digest] = held
    held.users += 1
    try:
        yield await held.opened()
    finally:
        held.users -= 1
        _tidy(shelf)


def _tidy(shelf: dict[str, _Held]) -> None:
    idle = [digest for digest, held in shelf.items() if not held.users]
    for digest in idle[: max(0, len(idle) - KEPT)]:
        shelf.pop(digest).close()
