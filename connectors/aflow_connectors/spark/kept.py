"""What calls need, an HTTP session or a pool, opened once in a worker process and kept for the tasks that follow.

It lives on the loop, beside the errands of the tasks. Nobody closes it when the worker process is killed, which is how
Spark ends them. A process that has seen many steps closes what was not used for the longest time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

from aflow.backfill.fragments import Fragment
from aflow.backfill.resources import FragmentResources
from aflow_connectors.spark.worker import begin_beside

#: For how many steps a process keeps what they need, besides those that run.
KEPT: Final = 8


class _Held:
    """The open resources of one fragment."""

    def __init__(self, resources: FragmentResources) -> None:
        self.resources = resources
        #: Tasks that use them now.
        self.users = 0
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._errand = begin_beside(self._keep)

    @property
    def over(self) -> bool:
        """True if they could not be opened, or were lost or closed."""
        return self._errand.over

    async def opened(self) -> FragmentResources:
        """Wait until they are open. Raises ``OperatorError``."""
        # Who gives up waiting does not keep others from it.
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


#: By the digest of what was sent; the one that was used last is last.
_shelves: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Held]]] = (
    WeakKeyDictionary()
)


@asynccontextmanager
async def kept(digest: str, fragment: Fragment, flow: str) -> AsyncGenerator[FragmentResources]:
    """The resources of ``fragment``, opened now if this process has not got them; they stay open behind the block.

    ``digest`` stands for the fragment: it has to be another one if anything in it is. Raises ``OperatorError`` if they
    cannot be opened; the next task tries again.
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
