"""Virtual time for asyncio: hours pass in milliseconds, and always in the same way.

``VirtualTimeLoop`` is asyncio's selector loop with two public parts exchanged, the selector and ``time()``. asyncio
calls ``selector.select(timeout)`` with a timeout other than 0 exactly when no callback is ready. Then, the first that
applies:

1. A file descriptor is ready (a socket, or another thread that called ``call_soon_threadsafe``): on with it.
2. **A thread works for us, or somebody holds time** (``hold``): really wait. Work in a thread takes no virtual time.
3. Somebody waits in ``settle``: that one goes on.
4. A timer is set: time jumps to it. Not a microsecond passes in any other way.
5. A socket is open: really wait for the world outside.
6. Nothing can ever happen: ``NothingCanHappen`` says which tasks wait, and where, instead of hanging.

Waits of 2 and 5 are bounded by ``patience`` (real time), so that nothing hangs for ever.

Which threads work for us? Jobs given to ``run_in_executor`` (hence ``asyncio.to_thread``, aiofiles) are counted until
their future is done. ``anyio.to_thread.run_sync`` has its own threads and no hook, so before time moves while there are
other threads, every task is looked at: one whose innermost ``await`` is that of ``run_sync`` waits for a thread. A job
whose waiter was cancelled is no longer waited for. Threads that nobody awaits this way need ``with hold():``; so does
an answer that comes over a socket while timers are set. A thread that in turn waits for virtual time to pass (a
``from_thread.run(sleep, 5)`` inside it) runs into ``patience``: time stands still while it works.

Time is counted in whole microseconds, so sums of sleeps are exact: ten times 0.1 s is 1.0 s.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
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
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import ParamSpec, TypeAlias, TypeVar, TypeVarTuple, cast, overload

import anyio.to_thread

from aflow.errors import AflowError, FlowDefinitionError, shown
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow.testing.step_order import Deadline, FirstComeFirstServed, SeededOrder, Step

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

_PATIENCE = timedelta(seconds=10)

#: What stands between a coroutine and the generator or coroutine it awaits, without a public attribute to follow.
_OPAQUE = frozenset(
    {"coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable"}
)


class NothingCanHappen(AflowError):
    """The program waits for something that will never come (or did not come within ``patience`` of real time).

    ``waiting`` are the names of the tasks that wait.
    """

    def __init__(self, why: str, tasks: Sequence[asyncio.Task[object]]) -> None:
        waits = "".join(f"\n{_where(task)}" for task in tasks) or " none"
        super().__init__(
            f"{why}\nWaiting tasks:{waits}\n"
            "Give them what they wait for, or a timeout; if it comes from a thread of your own or over a socket, "
            "wait for it inside `with hold():`."
        )
        self.waiting = tuple(task.get_name() for task in tasks)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else is left to do.

    ``time()`` starts at 0.0 and ``now()`` at ``start`` (an aware ``datetime`` or epoch ms). Timers of one deadline fire
    in the order in which they were set, and steps of tasks run first in, first out; a ``seed`` shuffles both (see
    ``aflow.testing.step_order``). ``patience`` is how much real time one wait for a thread or a socket may take before
    ``NothingCanHappen`` is raised.
    """

    def __init__(
        self, *, seed: int | None = None, start: Instant = 0, patience: timedelta = _PATIENCE
    ) -> None:
        self._poller = _Poller(self._at_rest, self._turn)
        super().__init__(self._poller)
        self._micros = 0
        #: Reasons why time must stand still: executor jobs whose future is not done, and open ``hold`` blocks.
        self._holds = 0
        #: Those who wait in ``settle``, first come first served. One is woken each time the loop comes to rest.
        self._settling: deque[asyncio.Future[None]] = deque()
        self._seeded = None if seed is None else SeededOrder(seed)
        self._order = self._seeded or FirstComeFirstServed()
        #: In which shuffled steps are started. It must be nobody else's: a context cannot be entered twice.
        self._neutral = Context()
        try:
            self._start = to_timestamp(start, what="start")
            self._patience = _seconds(patience)
        except BaseException:
            self.close()
            raise

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._micros / 1_000_000

    def now(self) -> Timestamp:
        """Virtual processing time in epoch milliseconds."""
        return self._start + self._micros // 1000

    def processing_clock(self) -> VirtualClock:
        """Return the clock that jobs on this loop use: virtual time."""
        return VirtualClock(self)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Keep virtual time where it is while the block is open. Only for the thread of the loop."""
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
        """As asyncio's, in whole microseconds: what lies in the future is at least one microsecond away."""
        if when == math.inf:
            # Never due, so never scheduled: otherwise time would leap after it for ever, a day at a time.
            return asyncio.TimerHandle(when, callback, args, self, context)
        micros = round(when * 1_000_000)
        if when > self.time():
            micros = max(micros, self._micros + 1)
        deadline = Deadline(micros / 1_000_000, self._order.rank())
        return super().call_at(deadline, callback, *args, context=context)

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's; with a seed, steps of tasks change places with their neighbours."""
        if self._seeded is None:
            return super().call_soon(callback, *args, context=context)
        if not isinstance(getattr(callback, "__self__", None), asyncio.Task):
            self._seeded.fence()
            return super().call_soon(callback, *args, context=context)
        context = copy_context() if context is None else context
        # The queue gets a ticket without a name; whose step it stands for is decided when its turn has come.
        super().call_soon(self._take_step, self._seeded, context=self._neutral)
        handle = asyncio.Handle(callback, args, self, context)
        self._seeded.add(Step(handle, functools.partial(callback, *args), context))
        return handle

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """As asyncio's; virtual time stands still until the future is done."""
        future = super().run_in_executor(executor, func, *args)
        self._holds += 1
        future.add_done_callback(self._release)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As asyncio's, whose thread is waited for; before Python 3.12 there is no ``timeout`` to obey."""
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

    def _turn(self) -> None:
        if self._seeded is not None:
            self._seeded.fence()

    def _at_rest(self, timeout: float | None) -> _Events:
        """Nothing is ready; the first timer is ``timeout`` virtual seconds away, or there is none."""
        if self._holds or self._thread_awaited():
            return self._really_wait("a thread, or the end of a `with hold():`")
        if self._wake_settler():
            return []
        if timeout is not None:
            self._micros += max(1, round(timeout * 1_000_000))
            return []
        if self._poller.watches_the_world():
            return self._really_wait("a socket or pipe")
        raise NothingCanHappen(
            f"Nothing can happen any more (virtual time {self.time()} s): "
            "no callback is ready, no timer is set, no thread works, no socket is open.",
            self._waiting_tasks(),
        )

    def _really_wait(self, awaited: str) -> _Events:
        if events := self._poller.wait(self._patience):
            return events
        raise NothingCanHappen(
            f"Waited {self._patience} s of real time for {awaited} (virtual time {self.time()} s). "
            "If it is only slow, give it more `patience`.",
            self._waiting_tasks(),
        )

    def _wake_settler(self) -> bool:
        while self._settling:
            rest = self._settling.popleft()
            if not rest.done():
                rest.set_result(None)
                return True
        return False

    def _thread_awaited(self) -> bool:
        # Looking at every task is slow, and without another thread there is nothing to find.
        return threading.active_count() > 1 and any(map(_awaits_thread, asyncio.all_tasks(self)))

    def _waiting_tasks(self) -> list[asyncio.Task[object]]:
        names = {task: task.get_name() for task in asyncio.all_tasks(self)}
        return sorted(names, key=lambda task: (len(names[task]), names[task]))


class _Poller(selectors.DefaultSelector):
    """A selector that never blocks by itself: with nothing ready, the loop says what happens."""

    def __init__(
        self, at_rest: Callable[[float | None], _Events], turn: Callable[[], None]
    ) -> None:
        super().__init__()
        self._at_rest = at_rest
        self._turn = turn

    def select(self, timeout: float | None = None) -> _Events:
        """Poll, once a turn of the loop; ``timeout`` is 0 while callbacks are ready or a timer is due."""
        self._turn()
        events = super().select(0)
        if events or timeout == 0:
            return events
        return self._at_rest(timeout)

    def wait(self, seconds: float) -> _Events:
        """Block, in real time, until something is ready or ``seconds`` are over."""
        return super().select(seconds)

    def watches_the_world(self) -> bool:
        """Whether anything but the loop's own wake-up pipe is registered."""
        return len(self.get_map()) > 1


class VirtualClock:
    """A clock that shows virtual time: that of ``loop``, or else of the running loop. Also for ``Options(clock=…)``.

    Raises ``FlowDefinitionError`` if neither is a ``VirtualTimeLoop``.
    """

    def __init__(self, loop: VirtualTimeLoop | None = None) -> None:
        self._loop = _running("VirtualClock()") if loop is None else loop

    def now(self) -> Timestamp:
        """The virtual processing time in epoch milliseconds."""
        return self._loop.now()

    def steady(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._loop.time()


async def advance(duration: timedelta) -> None:
    """Let exactly ``duration`` of virtual time pass, that is ``asyncio.sleep``; all timers on the way fire in order.

    What else is due at the very end may still be under way: ``settle`` afterwards. Raises ``FlowDefinitionError`` if no
    virtual time is running, or if the duration is negative: time does not go back.
    """
    _running("advance()")
    if duration < timedelta(0):
        raise FlowDefinitionError(f"time cannot advance by a negative duration: {duration!r}")
    await asyncio.sleep(duration / timedelta(seconds=1))


async def settle() -> None:
    """Let run whatever can run, and no virtual time pass, until only timers are left.

    Precisely: until the loop comes to rest with no callback ready, no timer due, no file descriptor ready and no thread
    awaited. Of several that settle at once, each waits until the loop has come to rest after the one before. Raises
    ``FlowDefinitionError`` if no virtual time is running.
    """
    await _running("settle()").settle()


@contextmanager
def hold() -> Generator[None]:
    """Keep virtual time where it is while the block is open: the wait inside is for something outside the loop.

    Raises ``FlowDefinitionError`` if no virtual time is running.
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
    """Run a coroutine, or a function that gives one, to its end under virtual time, and return its result.

    As ``asyncio.run``: a new loop, closed at the end, with leftover tasks cancelled. ``seed``, ``start``, ``patience``
    are those of ``VirtualTimeLoop``. Raises what the coroutine raises, and ``NothingCanHappen`` instead of hanging.
    """
    factory = functools.partial(VirtualTimeLoop, seed=seed, start=start, patience=patience)
    with asyncio.Runner(loop_factory=factory) as runner:
        # First the loop: it checks its arguments, and a coroutine made too early would go unawaited.
        runner.get_loop()
        return runner.run(main() if callable(main) else main)


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
    """Make an ``async def`` test a plain function that runs under virtual time; bare, or with the options of ``run``.

    pytest sees the parameters of the original, so fixtures and ``parametrize`` work, and no asyncio plugin or marker is
    needed. Async fixtures of such plugins live on another loop and cannot be used. Raises ``FlowDefinitionError`` if
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
    # Under run_sync comes the backend's function, and what that one awaits without a further coroutine is the thread.
    # (Deeper means that it still waits for a token of its limiter, which somebody may hold who waits for virtual time.)
    frames = _frames(task)
    return len(frames) > 1 and frames[-2].f_code is anyio.to_thread.run_sync.__code__


def _where(task: asyncio.Task[object]) -> str:
    lines = traceback.StackSummary.extract((f, f.f_lineno) for f in _frames(task)).format()
    return f"  {task.get_name()} in\n" + "".join(f"  {line}" for line in lines).rstrip()


def _frames(task: asyncio.Task[object]) -> list[FrameType]:
    """Where a suspended task waits, outermost first (``Task.get_stack`` would give the outermost only)."""
    frames: list[FrameType] = []
    link: object = task.get_coro()
    while link is not None:
        frame, link = _follow(link)
        if frame is not None:
            frames.append(frame)
    return frames


def _follow(link: object) -> tuple[FrameType | None, object]:
    """The frame of one link of the chain of awaits, and the next link."""
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
