"""A source of records from an async iterable: an async generator, a subscription, a streamed response."""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.errors import FlowDefinitionError, SourceError, shown
from aflow.operators.base import RAISED
from aflow.runtime.builtin_connectors.record_count import Origin, count_in, read_failed
from aflow.runtime.cancellation import asked_to_end

T_co = TypeVar("T_co", covariant=True)

_NAME: Final = "AsyncIterableSource"
_SPLITS: Final = (Split("async iterable"),)


class AsyncIterableSource(Source[T_co]):
    """Reads an async iterable in one subtask; an async generator is closed when the job ends.

    ``origin`` is the iterable, or a function that gets a position (a number of records) and returns an async iterable
    that starts after it. Only the function makes the source replayable. An async iterator can be read once: a second
    job gets a ``SourceError``.

    Each record is a chunk of its own. To know if a second one is ready, the source would have to request it; if it is
    not, the iterator would be left suspended inside a read that has returned, and a timeout inside it would interrupt
    whatever the task does next. For high rates, iterate over pages (lists) and unpack them with ``flat_map``.
    """

    max_parallelism = 1

    def __init__(self, origin: AsyncIterable[T_co] | Callable[[int], AsyncIterable[T_co]]) -> None:
        self._start_at: Callable[[int], AsyncIterable[T_co]] | None = None
        self._iterable: AsyncIterable[T_co] | None = None
        if isinstance(origin, AsyncIterable):
            self._iterable = origin
        else:
            self._start_at = _checked_factory(origin)
        self.replayable = self._start_at is not None
        self._origin = Origin(_NAME, single_use=isinstance(origin, AsyncIterator))

    @property
    def iterator(self) -> object:
        """The iterable if it can be read only once; otherwise None."""
        return self._iterable if isinstance(self._iterable, AsyncIterator) else None

    async def splits(self) -> Sequence[Split]:
        return _SPLITS

    async def reader(self, split: Split, position: Position | None) -> Reader[T_co]:
        """Open a reader. Without a function, the records before ``position`` are read and skipped."""
        start = count_in(position, _NAME)
        self._origin.open()
        if self._iterable is not None:
            return _AsyncReader(_iterator(self._iterable, 0), 0, skip=start)
        assert self._start_at is not None
        try:
            iterable = self._start_at(start)
        except RAISED as exc:
            raise read_failed(_NAME, start, exc) from exc
        return _AsyncReader(_iterator(iterable, start), start, skip=0)


class _AsyncReader(Reader[T_co]):
    def __init__(self, iterator: AsyncIterator[T_co], position: int, *, skip: int) -> None:
        self._iterator = iterator
        self._position = position
        self._skip = skip
        #: True once a read was cancelled. That ends a generator, which then looks as if it had reached its end.
        self._cancelled = False

    async def read(self, limit: int) -> Chunk[T_co] | None:
        try:
            while self._position < self._skip:
                await anext(self._iterator)
                self._position += 1
            value = await anext(self._iterator)
        except StopAsyncIteration:
            self._check_that_it_ended_by_itself()
            return None
        except CancelledError as exc:
            if not asked_to_end():
                raise read_failed(_NAME, self._position, exc) from exc
            self._cancelled = True
            raise
        except Exception as exc:
            raise read_failed(_NAME, self._position, exc) from exc
        self._position += 1
        return Chunk([value], self._position)

    def _check_that_it_ended_by_itself(self) -> None:
        if self._cancelled:
            raise SourceError(
                f"{_NAME} cannot continue at record {self._position}, counted from 0: a read was cancelled, and that "
                f"ended the async generator; give the source a function that starts it at a position"
            )

    async def close(self) -> None:
        iterator: object = self._iterator
        if inspect.isasyncgen(iterator):
            try:
                await iterator.aclose()
            except CancelledError as exc:
                if asked_to_end():
                    raise
                raise read_failed(_NAME, self._position, exc) from exc
            except Exception as exc:
                raise read_failed(_NAME, self._position, exc) from exc


def _checked_factory(
    origin: Callable[[int], AsyncIterable[T_co]],
) -> Callable[[int], AsyncIterable[T_co]]:
    if not callable(origin):
        raise FlowDefinitionError(
            f"{_NAME} needs an async iterable or a function that makes one, not {shown(origin)}; "
            f"for a plain iterable there is IterableSource"
        )
    try:
        signature = inspect.signature(origin)
    except ValueError:  # some builtins have no signature
        return origin
    try:
        signature.bind(0)
    except TypeError as exc:
        raise FlowDefinitionError(
            f"the function given to {_NAME} is called with one argument, the position to start at (a number of "
            f"records), but {shown(origin)} takes {signature}; call it yourself to hand over what it returns"
        ) from exc
    return origin


def _iterator(iterable: AsyncIterable[T_co], position: int) -> AsyncIterator[T_co]:
    try:
        return aiter(iterable)
    except TypeError as exc:
        if inspect.iscoroutine(iterable):
            iterable.close()  # it is not awaited: the error below reports it
        raise SourceError(
            f"the function given to {_NAME} returned {shown(iterable)} for position {position}, which is no async "
            f"iterable; an `async def` function makes one only if it contains `yield`"
        ) from exc
    except RAISED as exc:
        raise read_failed(_NAME, position, exc) from exc
