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
from aflow_connectors.spark.executor.event_loop import start_detached

#: Number of unused steps whose resources a process keeps open.
IDLE_LIMIT: Final = 8


class _PooledResources:
    """Open resources of one fragment."""

    def __init__(self, resources: FragmentResources) -> None:
        self.resources = resources
        #: Tasks that use the resources now.
        self.users = 0
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._job = start_detached(self._keep)

    @property
    def over(self) -> bool:
        """Return True if opening failed, or if the resources were lost or closed."""
        return self._job.over

    async def opened(self) -> FragmentResources:
        """Wait until the resources are open. Raises ``OperatorError``."""
        # A cancelled task must not stop others from waiting.
        await asyncio.shield(self._opened)
        return self.resources

    def close(self) -> None:
        self._job.cancel()

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
_pools: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _PooledResources]]] = (
    WeakKeyDictionary()
)


@asynccontextmanager
async def pooled_resources(
    digest: str, fragment: Fragment, flow: str
) -> AsyncGenerator[FragmentResources]:
    """Yield the resources of ``fragment``, opened if this process does not have them; they stay open after the block.

    ``digest`` identifies the fragment: it must differ if anything in the fragment differs. Raises ``OperatorError`` if
    they cannot be opened; the next task tries again.
    """
    resources = FragmentResources(fragment, flow)
    if not resources.needed:
        yield resources
        return
    pool = _pools.setdefault(asyncio.get_running_loop(), {})
    pooled = pool.pop(digest, None)
    if pooled is None or pooled.over:
        pooled = _PooledResources(resources)
    pool[digest] = pooled
    pooled.users += 1
    try:
        yield await pooled.opened()
    finally:
        pooled.users -= 1
        _close_idle(pool)


def _close_idle(pool: dict[str, _PooledResources]) -> None:
    idle = [digest for digest, pooled in pool.items() if not pooled.users]
    for digest in idle[: max(0, len(idle) - IDLE_LIMIT)]:
        pool.pop(digest).close()
