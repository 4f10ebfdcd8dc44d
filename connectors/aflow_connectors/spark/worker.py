"""The event loop of a Python worker process of Spark, in a thread of its own.

Spark reuses its Python workers for many tasks, and the loop is kept for all of them, so that HTTP sessions and pools
are opened once in each process. What a Spark task runs on it is its ``Errand``. When an errand has ended, nothing that
it began is left on the loop, since a coroutine that leaked would run inside the next task:

- Its coroutines live in one TaskGroup, which ends with all of them.
- What users' code began beside the group (``asyncio.create_task``, awaited by nobody) is cancelled and waited for. It
  is known by a context variable, which each asyncio task hands on to those that it begins.
- What goes on in spite of its cancellation is reported after a time of grace, and the loop is abandoned as a whole: the
  next Spark task gets another one, in another thread.

The holder of the loop lives in this module, which Spark's workers import: what is defined in ``__main__`` is pickled by
value, and would be new in each task.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias

from aflow.errors import ConnectorError

#: How long what was cancelled may take to end, in seconds.
GRACE: Final = 5.0

_log: Final = logging.getLogger("aflow.spark")

#: How many coroutines are named that have not ended when they should have.
_NAMED: Final = 5

Main: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Errand:
    """What one Spark task runs on the loop; ``WorkerLoop.begin`` makes it."""

    def __init__(self, main: Main, on_end: Callable[[], None], grace: float) -> None:
        self._main = main
        self._on_end = on_end
        self._grace = grace
        self._over = threading.Event()
        #: The asyncio task that holds the group; None before it has begun.
        self._holder: asyncio.Task[Any] | None = None
        self._cancelled = False
        #: True once the group has ended, and only strays may be left.
        self._group_ended = False
        #: Every asyncio task that was begun in it.
        self.begun: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        #: What it has failed with.
        self.error: BaseException | None = None
        #: What is still there although it was cancelled and waited for, as a person reads it.
        self.left: list[str] = []

    @property
    def over(self) -> bool:
        """True once all of it has ended, or was given up."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Block the calling thread until it is over, for ``seconds`` at most; False if it is not."""
        return self._over.wait(seconds)

    def wait_cancelled(self, seconds: float) -> bool:
        """As ``wait``, with another ``seconds`` for strays once the group has ended."""
        return self.wait(seconds) or (self._group_ended and self.wait(seconds + 1))

    def give_up(self) -> None:
        """Note what is still there; from the thread that has waited for it."""
        self.left = _names(_copied(self.begun)) or ["a coroutine"]

    def cancel(self) -> None:
        """Ask all of it to end; on the loop."""
        self._cancelled = True
        if self._holder is not None and not self._group_ended:
            self._holder.cancel()

    async def run(self) -> None:
        """Run to the end, and let nothing of it survive. Raises nothing: ``error`` has what it failed with."""
        _errand.set(self)
        try:
            await self._run_group()
        # Not raised again, a cancellation neither: here it ends, and the thread that waits raises it.
        except BaseException as exc:
            self.error = exc
        self._group_ended = True
        try:
            await self._end_strays()
        finally:
            self._over.set()
            self._on_end()

    async def _run_group(self) -> None:
        self._holder = asyncio.current_task()
        if self._cancelled:
            return
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._main(), name="aflow on Spark")
        # To the group that is no failure; here it would pass for the end of the input.
        if work.cancelled():
            raise ConnectorError(
                "the coroutine of a Spark task was cancelled by code of its own; nothing but the end of the task may "
                "cancel it"
            )

    async def _end_strays(self) -> None:
        strays = [task for task in self.begun if not task.done()]
        if not strays:
            return
        _log.warning(
            "a Spark task has ended, and coroutines that it began have not: %s; they are cancelled, since nothing of a "
            "task may run on inside the next one (what a Resource needs in the background begins when it is opened)",
            "; ".join(_names(strays)),
        )
        for task in strays:
            task.cancel()
        _, left = await asyncio.wait(strays, timeout=self._grace)
        self.left = _names(left)


#: The errand whose code it is that runs.
_errand: Final[contextvars.ContextVar[Errand | None]] = contextvars.ContextVar(
    "aflow_spark_errand", default=None
)


class WorkerLoop:
    """An event loop and its thread, which run until the process ends."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._abandoned = False
        self._closing = False
        self._loop = _new_loop()
        self._loop.set_task_factory(_task_of_errand)
        self._thread = threading.Thread(target=self._run, name="aflow event loop", daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """False for the loop of the process that this one was forked from, and for one that was abandoned."""
        given_up = self._abandoned or self._closing
        return self._pid == os.getpid() and self._thread.is_alive() and not given_up

    def begin(self, main: Main, on_end: Callable[[], None], *, grace: float = GRACE) -> Errand:
        """Begin to run ``main()``; ``on_end`` is called on the loop when all of it has ended."""
        return _begun(main, on_end, grace, self._loop)

    def end(self, errand: Errand, *, grace: float = GRACE) -> None:
        """Cancel ``errand`` if it is not over, and wait until it is; what goes on in spite of that is reported."""
        try:
            if not errand.over:
                self.soon(errand.cancel)
                if not errand.wait_cancelled(grace):
                    errand.give_up()
        except BaseException:  # KeyboardInterrupt, say: nobody waits any longer
            errand.give_up()
            raise
        finally:
            if errand.left:
                self._abandon(errand.left)

    def soon(self, call: Callable[[], object]) -> None:
        """Call ``call`` on the loop; from any thread."""
        self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """End the loop and its thread, and cancel all that is on it: for processes that are no workers, as of tests."""
        if not self._closing:
            self.soon(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        self._closing = True
        self._loop.stop()

    def _abandon(self, left: Iterable[str]) -> None:
        self._abandoned = True
        _log.error(
            "coroutines of a Spark task go on although they were cancelled: %s; the event loop of this worker process "
            "is left to them, and the next task gets a new one, with resources of its own",
            "; ".join(left),
        )

    def _run(self) -> None:
        while not self._closing:
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                # Whichever coroutine raised it has it as its result, too, and the thread that waits for that raises
                # it there. Here it has only interrupted the loop, as a stop() by users' code would.
                continue
        self._loop.run_until_complete(_cancel_all())
        self._loop.close()


def begin_beside(main: Main) -> Errand:
    """Begin to run ``main()`` on the loop that runs, beside the errand that asks for it: it outlives that errand."""
    return _begun(main, lambda: None, GRACE, asyncio.get_running_loop())


def _begun(
    main: Main, on_end: Callable[[], None], grace: float, loop: asyncio.AbstractEventLoop
) -> Errand:
    errand = Errand(main, on_end, grace)
    # In an empty context: what begins within another errand is no part of that.
    contextvars.Context().run(asyncio.run_coroutine_threadsafe, errand.run(), loop)
    return errand


_current: WorkerLoop | None = None
_guard = threading.Lock()


def worker_loop() -> WorkerLoop:
    """The loop of this process; started at first use."""
    global _current
    with _guard:
        if _current is None or not _current.usable:
            _current = WorkerLoop()
        return _current


def _after_fork() -> None:
    """The child has none of the parent's threads: who holds the guard there never lets go of it here."""
    global _current, _guard
    _current, _guard = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Windows, PyPy
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _task_of_errand(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any
) -> asyncio.Task[Any]:
    """What every ``create_task`` on the loop goes through: remembers whose task it is."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **more)
    context: contextvars.Context | None = more.get("context")
    errand = _errand.get() if context is None else context.get(_errand)
    if errand is not None:
        errand.begun.add(task)
    return task


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _copied(tasks: weakref.WeakSet[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """The tasks, while the loop's thread may be adding some."""
    while True:
        try:
            return list(tasks)
        except RuntimeError:  # it has just added one
            continue


def _names(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """For a person: what the first of the tasks that have not ended run, and where that is, and how many more."""
    there = [task for task in tasks if not task.done()]
    names = [_name(task) for task in there[:_NAMED]]
    return [*names, f"and {len(there) - _NAMED} more"] if len(there) > _NAMED else names


def _name(task: asyncio.Task[Any]) -> str:
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    frames = task.get_stack(limit=1)
    return f"{name} at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else name
