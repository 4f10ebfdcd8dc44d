"""Virtual time for asyncio: hours pass in milliseconds, deterministically.

``VirtualTimeLoop`` is asyncio's selector loop with two public parts replaced, the selector and ``time()``. asyncio
calls ``selector.select(timeout)`` with a timeout other than 0 exactly when no callback is ready. Then the first of
these rules applies:

1. A file descriptor is ready (a socket, or another thread that called ``call_soon_threadsafe``): process it.
2. **A worker thread is awaited, or time is held** (``hold``): wait in real time. Threads take no virtual time.
3. A task waits in ``settle``: resume it.
4. A timer is set: advance the time to it. Virtual time passes in no other way.
5. A socket is open: wait in real time.
6. No event is possible: raise ``NothingCanHappen``, with the waiting tasks and their stacks.

Waits of 2 and 5 are bounded by ``patience`` (real time).

Awaited threads: jobs of ``run_in_executor`` (hence ``asyncio.to_thread``, aiofiles) are counted until their future is
done. ``anyio.to_thread.run_sync`` has its own threads and no hook. So before time advances while other threads exist,
every task is inspected: one whose innermost ``await`` is that of ``run_sync`` waits for a thread. A job whose waiter
was cancelled is not awaited. Threads that are awaited in other ways need ``with hold():``; so does a response over a
socket while timers are set. A thread that waits for virtual time to pass (a ``from_thread.run(sleep, 5)`` inside it)
fails after ``patience``: time does not advance while it works.

Time is counted in whole microseconds, so sums of sleeps are exact: ten times 0.1 s is 1.0 s.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import itertools
import math
import selectors
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, copy_context
from datetime import timedelta
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import ParamSpec, TypeAlias, TypeVar, TypeVarTuple, cast, overload

import anyio.to_thread

from aflow.errors import AflowError, FlowDefinitionError, shown
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow.testing.step_order import Deadline, SeededOrder, TaskStep

__all__ = [
    "NothingCanHappen",
    "VirtualClock",
    "VirtualTimeLoop",
    "advance",
    "hold",
    "run",
    "settle",
    "virtual_time",
]

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

_Events: TypeAlias = list[tuple[selectors.SelectorKey, int]]

_PATIENCE = timedelta(seconds=30)

#: Iterations of a busy loop without a poll, if only the wake-up pipe is open: such a loop needs it for signals only.
_UNPOLLED = 50

#: Objects between a coroutine and its awaitable that have no public attribute to follow.
_OPAQUE = frozenset(
    {"coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable"}
)


class NothingCanHappen(AflowError):
    """The program waits for an event that is impossible, or did not occur within ``patience`` of real time.

    ``waiting`` are the names of the waiting tasks.
    """

    def __init__(self, reason: str, tasks: Sequence[asyncio.Task[object]]) -> None:
        waits = "".join(f"\n{_stack_of(task)}" for task in tasks) or " none"
        super().__init__(
            f"{reason}\nWaiting tasks:{waits}\n"
            "Complete what they wait for, or set a timeout; if it is a thread of your own or a socket, "
            "wait for it inside `with hold():`."
        )
        self.waiting = tuple(task.get_name() for task in tasks)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time advances to the next timer as soon as no callback is ready.

    ``time()`` starts at 0.0 and ``now()`` at ``start`` (an aware ``datetime`` or epoch ms). Timers of one deadline fire
    in the order in which they were set, and steps of tasks run first in, first out; a ``seed`` shuffles both (see
    ``aflow.testing.step_order``). ``patience`` is the maximum real time of one wait for a thread or a socket;
    after it ``NothingCanHappen`` is raised.
    """

    def __init__(
        self, *, seed: int | None = None, start: Instant = 0, patience: timedelta = _PATIENCE
    ) -> None:
        self._poller = _Poller(self._on_idle, self._begin_iteration)
        super().__init__(self._poller)
        self._micros = 0
        #: The number of reasons to hold the time: executor jobs whose future is not done, and open ``hold`` blocks.
        self._holds = 0
        #: Futures of ``settle``, first in, first out. One is resolved each time the loop has no ready callback.
        self._settling: deque[asyncio.Future[None]] = deque()
        self._seeded = None if seed is None else SeededOrder(seed)
        #: Returns the rank of a new timer among those of its deadline. Without a seed it is the order of setting.
        self._rank: Callable[[], float] = (
            itertools.count().__next__ if self._seeded is None else self._seeded.rank
        )
        #: The context in which shuffled steps are started. It is not shared: a context cannot be entered twice.
        self._neutral = Context()
        try:
            self._start = to_timestamp(start, what="start")
            self._patience = _seconds(patience)
        except BaseException:
            self.close()
            raise

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._micros / 1_000_000

    def now(self) -> Timestamp:
        """Return virtual processing time in epoch milliseconds."""
        return self._start + self._micros // 1000

    def processing_clock(self) -> VirtualClock:
        """Return the clock that jobs on this loop use: virtual time."""
        return VirtualClock(self)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold virtual time while the block is open. Only for the thread of the loop."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    async def settle(self) -> None:
        """See the function ``settle``."""
        rest = self.create_future()
        self._settling.append(rest)
        await rest

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback in whole microseconds: a time in the future is at least one microsecond away."""
        if when == math.inf:
            # Never due, so never scheduled: otherwise time would advance for ever, a day at a time.
            return asyncio.TimerHandle(when, callback, args, self, context)
        micros = round(when * 1_000_000)
        if when > self.time():
            micros = max(micros, self._micros + 1)
        deadline = Deadline(micros / 1_000_000, self._rank())
        return super().call_at(deadline, callback, *args, context=context)

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback; with a seed, steps of tasks change places with their neighbours."""
        if self._seeded is None:
            return super().call_soon(callback, *args, context=context)
        if not isinstance(getattr(callback, "__self__", None), asyncio.Task):
            self._seeded.fence()
            return super().call_soon(callback, *args, context=context)
        context = copy_context() if context is None else context
        # The queue gets a placeholder; the step that it runs is chosen when it is due.
        super().call_soon(self._take_step, self._seeded, context=self._neutral)
        handle = asyncio.Handle(callback, args, self, context)
        self._seeded.add(TaskStep(handle, functools.partial(callback, *args), context))
        return handle

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run ``func`` in an executor; virtual time is held until the future is done."""
        future = super().run_in_executor(executor, func, *args)
        self._holds += 1
        future.add_done_callback(self._release)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Shut the executor down and wait for its threads; ``timeout`` has an effect from Python 3.12 on."""
        with self.hold():
            if sys.version_info >= (3, 12):
                await super().shutdown_default_executor(timeout)
            else:
                await super().shutdown_default_executor()

    def _release(self, _future: asyncio.Future[T]) -> None:
        self._holds -= 1

    def _take_step(self, seeded: SeededOrder) -> None:
        step = seeded.take()
        if step.handle.cancelled():
            return
        try:
            step.context.run(step.action)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            message = f"Exception in callback {step.action!r}"
            self.call_exception_handler(
                {"message": message, "exception": exc, "handle": step.handle}
            )

    def _begin_iteration(self) -> None:
        if self._seeded is not None:
            self._seeded.fence()

    def _on_idle(self, timeout: float | None) -> _Events:
        """Handle that no callback is ready; the first timer is ``timeout`` virtual seconds away, or there is none."""
        if self._holds or self._is_thread_awaited():
            return self._wait_in_real_time("a thread, or the end of a `with hold():`")
        if self._resume_settled():
            return []
        if timeout is not None:
            self._micros += max(1, round(timeout * 1_000_000))
            return []
        if self._poller.watches_files():
            return self._wait_in_real_time("a socket or pipe")
        raise NothingCanHappen(
            f"Nothing can happen any more (virtual time {self.time()} s): "
            "no callback is ready, no timer is set, no thread is awaited, no socket is open.",
            self._waiting_tasks(),
        )

    def _wait_in_real_time(self, awaited: str) -> _Events:
        if events := self._poller.wait(self._patience):
            return events
        raise NothingCanHappen(
            f"Waited {self._patience} s of real time for {awaited} (virtual time {self.time()} s). "
            "If it is only slow, give it more `patience`.",
            self._waiting_tasks(),
        )

    def _resume_settled(self) -> bool:
        while self._settling:
            rest = self._settling.popleft()
            if not rest.done():
                rest.set_result(None)
                return True
        return False

    def _is_thread_awaited(self) -> bool:
        # Inspecting every task is slow, and needless without another thread.
        return threading.active_count() > 1 and any(map(_awaits_thread, asyncio.all_tasks(self)))

    def _waiting_tasks(self) -> list[asyncio.Task[object]]:
        names = {task: task.get_name() for task in asyncio.all_tasks(self)}
        return sorted(names, key=lambda task: (len(names[task]), names[task]))


class _Poller(selectors.DefaultSelector):
    """A selector that never blocks by itself: if no event is ready, the loop decides."""

    def __init__(
        self, on_idle: Callable[[float | None], _Events], on_iteration: Callable[[], None]
    ) -> None:
        super().__init__()
        self._on_idle = on_idle
        self._on_iteration = on_iteration
        self._unpolled = 0

    def select(self, timeout: float | None = None) -> _Events:
        """Poll, once an iteration of the loop; ``timeout`` is 0 while callbacks are ready or a timer is due."""
        self._on_iteration()
        if timeout == 0 and self._unpolled < _UNPOLLED and not self.watches_files():
            self._unpolled += 1
            return []
        self._unpolled = 0
        events = super().select(0)
        if events or timeout == 0:
            return events
        return self._on_idle(timeout)

    def wait(self, seconds: float) -> _Events:
        """Block, in real time, until an event is ready or ``seconds`` have passed."""
        return super().select(seconds)

    def watches_files(self) -> bool:
        """Return True if anything but the loop's own wake-up pipe is registered."""
        return len(self.get_map()) > 1


class VirtualClock:
    """A clock in virtual time: that of ``loop``, or else of the running loop. Also for ``Options(clock=…)``.

    Raises ``FlowDefinitionError`` if neither is a ``VirtualTimeLoop``.
    """

    def __init__(self, loop: VirtualTimeLoop | None = None) -> None:
        self._loop = _running("VirtualClock()") if loop is None else loop

    def now(self) -> Timestamp:
        """Return the virtual processing time in epoch milliseconds."""
        return self._loop.now()

    def steady(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._loop.time()


async def advance(duration: timedelta) -> None:
    """Let exactly ``duration`` of virtual time pass, that is ``asyncio.sleep``; all timers on the way fire in order.

    Callbacks that are due at the end may not have run yet: ``settle`` afterwards. Raises ``FlowDefinitionError`` if the
    running loop has no virtual time, or if the duration is negative.
    """
    _running("advance()")
    if duration < timedelta(0):
        raise FlowDefinitionError(f"time cannot advance by a negative duration: {duration!r}")
    await asyncio.sleep(duration / timedelta(seconds=1))


async def settle() -> None:
    """Wait, without virtual time passing, until only timers are left to run.

    Precisely: until no callback is ready, no timer is due, no file descriptor is ready and no thread is awaited. Of
    several concurrent calls each waits until that holds again after the preceding one. Raises ``FlowDefinitionError``
    if the running loop has no virtual time.
    """
    await _running("settle()").settle()


@contextmanager
def hold() -> Generator[None]:
    """Hold virtual time while the block is open: it waits for an event from outside of the loop.

    Raises ``FlowDefinitionError`` if the running loop has no virtual time.
    """
    with _running("hold()").hold():
        yield


def run(
    main: Coroutine[object, None, T] | Callable[[], Coroutine[object, None, T]],
    *,
    seed: int | None = None,
    start: Instant = 0,
    patience: timedelta = _PATIENCE,
) -> T:
    """Run a coroutine, or a function that returns one, to its end in virtual time, and return its result.

    As ``asyncio.run``: a new loop, closed at the end, with leftover tasks cancelled. ``seed``, ``start``, ``patience``
    are those of ``VirtualTimeLoop``. Raises errors of the coroutine, and ``NothingCanHappen`` instead of hanging;
    ``RuntimeError`` if an event loop is running.
    """
    _check_no_running_loop()
    factory = functools.partial(VirtualTimeLoop, seed=seed, start=start, patience=patience)
    with asyncio.Runner(loop_factory=factory) as runner:
        # The loop first: it checks its arguments, and a coroutine made before would not be awaited.
        runner.get_loop()
        return runner.run(main() if callable(main) else main)


def _check_no_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "run() and run_flow() run an event loop of their own, and one is running already; call them from a plain "
        "function, or use FlowDriver in a test under @virtual_time"
    )


@overload
def virtual_time(test: Callable[P, Coroutine[object, None, T]], /) -> Callable[P, T]: ...


@overload
def virtual_time(
    *, seed: int | None = None, start: Instant = 0, patience: timedelta = _PATIENCE
) -> Callable[[Callable[P, Coroutine[object, None, T]]], Callable[P, T]]: ...


def virtual_time(
    test: Callable[P, Coroutine[object, None, T]] | None = None,
    /,
    *,
    seed: int | None = None,
    start: Instant = 0,
    patience: timedelta = _PATIENCE,
) -> Callable[P, T] | Callable[[Callable[P, Coroutine[object, None, T]]], Callable[P, T]]:
    """Make an ``async def`` test a plain function that runs in virtual time; bare, or with the options of ``run``.

    pytest sees the parameters of the original, so fixtures and ``parametrize`` work, and no asyncio plugin or marker is
    needed. Async fixtures of such plugins run on another loop and cannot be used. Raises ``FlowDefinitionError`` if
    the test is no coroutine function.
    """

    def decorate(test: Callable[P, Coroutine[object, None, T]]) -> Callable[P, T]:
        if not inspect.iscoroutinefunction(test):
            raise FlowDefinitionError(f"virtual_time is for `async def`, not for {shown(test)}")

        @functools.wraps(test)
        def in_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
            main = functools.partial(test, *args, **kwargs)
            return run(main, seed=seed, start=start, patience=patience)

        return in_virtual_time

    return decorate if test is None else decorate(test)


def _seconds(patience: timedelta) -> float:
    if patience <= timedelta(0):
        raise FlowDefinitionError(f"patience must be longer than zero, not {patience!r}")
    return patience.total_seconds()


def _running(what: str) -> VirtualTimeLoop:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if isinstance(loop, VirtualTimeLoop):
        return loop
    found = "no loop" if loop is None else type(loop).__name__
    raise FlowDefinitionError(
        f"{what} needs virtual time, but {found} is running; use run(main) or @virtual_time"
    )


def _awaits_thread(task: asyncio.Task[object]) -> bool:
    # run_sync calls the backend's function, which awaits the thread without a further coroutine.
    # (A deeper stack waits for a token of the limiter, whose holder may wait for virtual time.)
    outer: CodeType | None = None
    inner: CodeType | None = None
    link: object = task.get_coro()
    while link is not None:
        # Nearly all links. This runs for each task whenever the loop is idle.
        if type(link) is CoroutineType:
            outer, inner, link = inner, link.cr_code, link.cr_await
            continue
        frame, link = _next_link(link)
        if frame is not None:
            outer, inner = inner, frame.f_code
    return outer is anyio.to_thread.run_sync.__code__


def _stack_of(task: asyncio.Task[object]) -> str:
    lines = traceback.StackSummary.extract((f, f.f_lineno) for f in _frames(task)).format()
    return f"  {task.get_name()} in\n" + "".join(f"  {line}" for line in lines).rstrip()


def _frames(task: asyncio.Task[object]) -> list[FrameType]:
    """Return the stack of a suspended task, outermost first (``Task.get_stack`` returns the outermost frame only)."""
    frames: list[FrameType] = []
    link: object = task.get_coro()
    while link is not None:
        frame, link = _next_link(link)
        if frame is not None:
            frames.append(frame)
    return frames


def _next_link(link: object) -> tuple[FrameType | None, object]:
    """Return the frame of one link of the chain of awaits, and the next link."""
    if isinstance(link, CoroutineType):
        coroutine = cast("CoroutineType[object, object, object]", link)
        return coroutine.cr_frame, coroutine.cr_await
    if isinstance(link, GeneratorType):
        generator = cast("GeneratorType[object, object, object]", link)
        return generator.gi_frame, generator.gi_yieldfrom
    if isinstance(link, AsyncGeneratorType):
        stream = cast("AsyncGeneratorType[object, object]", link)
        return stream.ag_frame, stream.ag_await
    if type(link).__name__ in _OPAQUE:
        return None, next(filter(_is_link, gc.get_referents(link)), None)
    return None, None


def _is_link(thing: object) -> bool:
    known = isinstance(thing, CoroutineType | GeneratorType | AsyncGeneratorType)
    return known or type(thing).__name__ in _OPAQUE
