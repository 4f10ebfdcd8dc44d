"""The event loop of a Python worker process of Spark, in its own thread.

Spark reuses its Python workers for many tasks, and the loop is kept for all of them, so that HTTP sessions and pools
are opened once per process. A Spark task runs one job on it. When a job has ended, none of its coroutines remain on the
loop, since a leaked coroutine would run inside the next task:

- Its coroutines run in one TaskGroup, which ends with all of them.
- Tasks that user code created outside the group (``asyncio.create_task``, never awaited) are cancelled and awaited. A
  context variable identifies them; each asyncio task passes it to the tasks that it creates.
- Tasks that continue despite their cancellation are logged after a grace period, and the loop is abandoned as a whole:
  the next Spark task gets a new loop in a new thread.

The reference to the loop is a global of this module, which Spark's workers import: objects defined in ``__main__`` are
pickled by value and would be new in each task.
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

#: Seconds that cancelled tasks may take to end.
GRACE: Final = 5.0

_log: Final = logging.getLogger("aflow.spark")

#: Number of unfinished coroutines that a message names.
_NAMED: Final = 5

Main: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class LoopJob:
    """Work of one Spark task on the loop; created by ``WorkerLoop.begin``."""

    def __init__(self, main: Main, on_end: Callable[[], None], grace: float) -> None:
        self._main = main
        self._on_end = on_end
        self._grace = grace
        self._over = threading.Event()
        #: The asyncio task that holds the group; None before it has started.
        self._holder: asyncio.Task[Any] | None = None
        self._cancelled = False
        #: True once the group has ended; stray tasks may remain.
        self._group_ended = False
        #: All asyncio tasks created by the job.
        self.begun: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        #: The failure, if any.
        self.error: BaseException | None = None
        #: Descriptions of tasks that continue although they were cancelled and awaited.
        self.left: list[str] = []

    @property
    def over(self) -> bool:
        """Return True once all its tasks have ended or were abandoned."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Block the calling thread until the job is over, for at most ``seconds``; return False on timeout."""
        return self._over.wait(seconds)

    def wait_cancelled(self, seconds: float) -> bool:
        """Wait as ``wait``, with another ``seconds`` for stray tasks once the group has ended."""
        return self.wait(seconds) or (self._group_ended and self.wait(seconds + 1))

    def give_up(self) -> None:
        """Record the tasks that remain; called by the thread that has waited for them."""
        self.left = _names(_copied(self.begun)) or ["a coroutine"]

    def cancel(self) -> None:
        """Cancel all its tasks; on the loop."""
        self._cancelled = True
        if self._holder is not None and not self._group_ended:
            self._holder.cancel()

    async def run(self) -> None:
        """Run to the end and leave no task behind. Raises nothing: ``error`` holds the failure."""
        _job.set(self)
        try:
            await self._run_group()
        # Not raised again, a cancellation neither: the thread that waits raises it.
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
        # The group ignores a cancelled task; without this check it would look like the end of the input.
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


#: The job whose code is running.
_job: Final[contextvars.ContextVar[LoopJob | None]] = contextvars.ContextVar(
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
        """Return False for the loop of the parent process after a fork, and for an abandoned loop."""
        given_up = self._abandoned or self._closing
        return self._pid == os.getpid() and self._thread.is_alive() and not given_up

    def begin(self, main: Main, on_end: Callable[[], None], *, grace: float = GRACE) -> LoopJob:
        """Start ``main()``; call ``on_end`` on the loop when all its tasks have ended."""
        return _begun(main, on_end, grace, self._loop)

    def end(self, job: LoopJob, *, grace: float = GRACE) -> None:
        """Cancel ``job`` if it is not over, and wait for its end; log and abandon tasks that continue."""
        try:
            if not job.over:
                self.soon(job.cancel)
                if not job.wait_cancelled(grace):
                    job.give_up()
        except BaseException:  # KeyboardInterrupt, say: the caller no longer waits
            job.give_up()
            raise
        finally:
            if job.left:
                self._abandon(job.left)

    def soon(self, call: Callable[[], object]) -> None:
        """Call ``call`` on the loop; thread-safe."""
        self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Stop the loop and its thread and cancel all its tasks: for processes that are no workers, such as tests."""
        if not self._closing:
            self.soon(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        self._closing = True
        self._loop.stop()

    def _abandon(self, left: Iterable[str]) -> None:
        self._abandoned = True
        _log.error(
            "coroutines of a Spark task continue after cancellation: %s; the event loop of this worker process "
            "is left to them, and the next task gets a new one, with resources of its own",
            "; ".join(left),
        )

    def _run(self) -> None:
        while not self._closing:
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                # The interrupted coroutine has the exception as its result, and the thread that waits for it raises it
                # there. Here it has only interrupted the loop, as a stop() in user code would.
                continue
        self._loop.run_until_complete(_cancel_all())
        self._loop.close()


def start_detached(main: Main) -> LoopJob:
    """Start ``main()`` on the running loop, independent of the calling job: it outlives that job."""
    return _begun(main, lambda: None, GRACE, asyncio.get_running_loop())


def _begun(
    main: Main, on_end: Callable[[], None], grace: float, loop: asyncio.AbstractEventLoop
) -> LoopJob:
    job = LoopJob(main, on_end, grace)
    # In an empty context: the new job is not part of the job that starts it.
    contextvars.Context().run(asyncio.run_coroutine_threadsafe, job.run(), loop)
    return job


_current: WorkerLoop | None = None
_guard = threading.Lock()


def worker_loop() -> WorkerLoop:
    """Return the loop of this process; started at first use."""
    global _current
    with _guard:
        if _current is None or not _current.usable:
            _current = WorkerLoop()
        return _current


def _after_fork() -> None:
    """Reset the globals: the child has none of the parent's threads, so a held guard would never be released."""
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
    """Task factory of the loop: registers each new task with its job."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **more)
    context: contextvars.Context | None = more.get("context")
    job = _job.get() if context is None else context.get(_job)
    if job is not None:
        job.begun.add(task)
    return task


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _copied(tasks: weakref.WeakSet[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Copy the tasks while the loop's thread may be adding some."""
    while True:
        try:
            return list(tasks)
        except RuntimeError:  # it has just added one
            continue


def _names(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Describe unfinished tasks for a message: function and position of the first ones, number of the others."""
    there = [task for task in tasks if not task.done()]
    names = [_name(task) for task in there[:_NAMED]]
    return [*names, f"and {len(there) - _NAMED} more"] if len(there) > _NAMED else names


def _name(task: asyncio.Task[Any]) -> str:
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    frames = task.get_stack(limit=1)
    return f"{name} at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else name
