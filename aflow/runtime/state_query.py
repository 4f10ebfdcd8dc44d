"""Reads of keyed state by the host: of a running job, or of its last completed checkpoint.

All tasks run on the loop of the job, and a task changes state without an await. So a read by the host is between two
batches of each task, or between two pieces of a long firing. It sees one key of one subtask, and no state of other
steps at the same moment. A listing visits keys in pieces, and other code runs between two of them; see
``aflow.state.readable_state`` for what it reports then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Final, Literal, Protocol, TypeAlias

from aflow.errors import FlowDefinitionError, JobStopped, WrongKey, shown
from aflow.model.key_groups import key_group
from aflow.model.keys import UnsupportedKey
from aflow.runtime.checkpoints.stored_state import SelectedRows, StepInCheckpoint, StoredReads
from aflow.runtime.job_setup import JobSetup
from aflow.runtime.state_access import JobNow as JobNow
from aflow.runtime.state_access import NamedState, StepAccess
from aflow.state.readable_state import ABSENT, FIRST, KeySelection
from aflow.state.readable_state import Prefix as Prefix

AsOf: TypeAlias = Literal["live", "checkpoint"]
"""The state that is read: that of the running job, or that of its last completed checkpoint."""

Item: TypeAlias = tuple[Hashable, Any]
"""A key and its value."""

#: Keys that a listing selects at once, in about 10 MB. More are selected by a further pass over all keys.
SELECTED: Final = 1 << 16

#: The most keys that are read in one piece: less than a millisecond for small values.
READ: Final = 64

#: Seconds of a piece after which the next one is smaller. A key of windows may take milliseconds.
_LONG: Final = 0.001


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The state of one key."""

    key: Hashable
    value: Any
    exists: bool
    """False if the key has no state; ``value`` is None then."""
    checkpoint: int | None = None
    """The number of the checkpoint that was read; None for live state."""


@dataclass(frozen=True, slots=True)
class StatePage:
    """Some keys of a step with their values."""

    items: Sequence[Item]
    """Keys in order, with their values."""
    more: bool
    """True if more keys follow: read them with ``after`` set to the last key of this page."""
    checkpoint: int | None = None
    """The number of the checkpoint that was read; None for live state."""


class StateReader:
    """Reads one state of one step, by key. Valid over restarts of the job; created by ``Job.state``.

    Values are copies. A read changes nothing, and is no access for the time to live of a state; expired state is
    absent. All methods raise ``JobStopped`` if the job has ended, for live state also while it does not process
    records; ``FlowDefinitionError`` for a step without state that can be read, an unknown name, and on another event
    loop than that of the job; ``OperatorError`` if a value cannot be copied, or the function of an aggregate raises.

    With ``as_of="checkpoint"`` they read the last completed checkpoint, also while the job restarts. They raise
    ``CheckpointError`` if there is none, ``RestoreError`` if it cannot be read, and ``FlowDefinitionError`` in a job
    without checkpointing.
    """

    def __init__(
        self,
        setup: JobSetup,
        step: str,
        name: str | None,
        stored: StoredReads,
        now: Callable[[], JobNow],
    ) -> None:
        """``name`` None is the only state of the step. Raises ``FlowDefinitionError`` for an unknown step."""
        self._access = StepAccess(setup, step, name, stored, now)

    async def get(self, key: Hashable, *, as_of: AsOf = "live") -> Any:
        """Return the value of ``key``; None if there is none.

        An aggregate is its result, windows are a list of ``Windowed`` with what they hold now. Raises
        ``WrongKey`` for a key that no record can have, or of another type than the declared one of the keys.
        """
        return (await self.entry(key, as_of=as_of)).value

    async def entry(self, key: Hashable, *, as_of: AsOf = "live") -> StateEntry:
        """As ``get``; tells a key without state from the value None, and the number of the checkpoint."""
        _check_as_of(as_of)
        access, checkpoint = self._access, None
        try:
            group = key_group(key, access.key_groups)
        except UnsupportedKey as exc:
            raise WrongKey(f"{shown(key)} is the key of no record: {exc}", key=key) from exc
        if as_of == "live":
            state = access.live_of(group)
            access.check_type(state, key)
        else:
            step = await access.stored(group)
            checkpoint = step.manifest.id
            empty = access.in_checkpoint(step)
            access.check_type(empty, key)
            rows = await access.run(partial(step.rows, empty.name, [key]))
            state = NamedState(rows.view([key]), empty.name)
        value = access.value(state, key)
        exists = value is not ABSENT
        return StateEntry(key, value if exists else None, exists, checkpoint)

    async def items(
        self,
        *,
        prefix: Prefix | None = None,
        limit: int | None = None,
        after: Hashable = FIRST,
        as_of: AsOf = "live",
    ) -> AsyncGenerator[Item]:
        """Yield keys and their values, in the order of the canonical bytes of keys: text by its code points.

        ``prefix`` is text that keys begin with, or a tuple of their first parts; ``after`` the key after which the
        listing begins; ``limit`` the largest number of keys. Raises ``WrongKey`` for a ``prefix`` that no key of the
        declared type can begin with, and, if keys are found but none is text, or a tuple, as the ``prefix`` is.

        Live state may change meanwhile. Each key is yielded at most once, and each that has state throughout exactly
        once, with a value that it had during the listing. A restart of the job raises ``JobStopped``. A checkpoint
        does not change: all values are from the same one.
        """
        if limit is not None:
            _check_limit(limit)
        async with aclosing(
            self._pieces(prefix, limit, after, await self._source(as_of))
        ) as pieces:
            async for some in pieces:
                for item in some:
                    yield item

    async def page(
        self,
        *,
        prefix: Prefix | None = None,
        limit: int = 100,
        after: Hashable = FIRST,
        as_of: AsOf = "live",
    ) -> StatePage:
        """Return up to ``limit`` items as ``items`` yields them, for a listing in several requests.

        Each page of a checkpoint is from the last one at its time.
        """
        _check_limit(limit)
        source = await self._source(as_of)
        found: list[Item] = []
        async with aclosing(self._pieces(prefix, limit + 1, after, source)) as pieces:
            async for some in pieces:
                found += some
        return StatePage(found[:limit], len(found) > limit, source.checkpoint)

    async def _source(self, as_of: AsOf) -> _LiveKeys | _StoredKeys:
        _check_as_of(as_of)
        if as_of == "live":
            return _LiveKeys(self._access)
        return _StoredKeys(self._access, await self._access.stored())

    async def _pieces(
        self, prefix: Prefix | None, limit: int | None, after: Hashable, source: _Source
    ) -> AsyncGenerator[list[Item]]:
        """Yield the items in pieces, each of which is read without an await."""
        left, most, now = limit, 1, asyncio.get_running_loop().time
        first = after is FIRST  # the keys after one may be of another type
        while left is None or left > 0:
            count = SELECTED if left is None else min(left, SELECTED)
            if prefix is not None and not isinstance(prefix, str | tuple):
                raise FlowDefinitionError(f"prefix is text or a tuple, not {shown(prefix)}")
            try:
                selection = KeySelection(count, after, prefix)
            except UnsupportedKey as exc:
                raise WrongKey(f"no record has such a key: {exc}", key=exc.key) from exc
            if first and prefix:
                source.check_prefix(prefix)
            await source.fill(selection)
            if first and prefix:
                self._access.check_found(selection, prefix)
            first = False
            selected, keys_left = 0, iter(selection)
            while keys := list(islice(keys_left, most)):
                begun = now()
                found = source.read(keys)
                most = max(1, most // 2) if now() - begun > _LONG else min(READ, 2 * most)
                if found:
                    yield found
                left = None if left is None else left - len(found)
                selected, after = selected + len(keys), keys[-1]
                await asyncio.sleep(0)
            if selected < count:
                return


class _Source(Protocol):
    """The keys and values of a listing."""

    def check_prefix(self, prefix: Prefix) -> None:
        """Raise ``WrongKey`` if no key of the declared type can begin with ``prefix``."""
        ...

    async def fill(self, selection: KeySelection) -> None:
        """Select keys, in pieces."""
        ...

    def read(self, keys: Sequence[Hashable]) -> list[Item]:
        """Return those of ``keys`` that have a value, with it."""
        ...


class _LiveKeys:
    """The keys of all subtasks. Raises ``JobStopped`` after a restart: state is older then."""

    checkpoint = None

    def __init__(self, access: StepAccess) -> None:
        self._access = access
        self._attempt = access.running_attempt()

    def _states(self) -> list[tuple[Any, NamedState]]:
        if self._access.running_attempt() is not self._attempt:
            raise JobStopped("the job has restarted during the listing; list its state again")
        return self._access.live()

    def check_prefix(self, prefix: Prefix) -> None:
        self._access.check_prefix(self._states()[0][1], prefix)

    async def fill(self, selection: KeySelection) -> None:
        scans = (state.view.scan(state.name, selection) for _, state in self._states())
        for _ in selection.fill(chain.from_iterable(scans)):
            await asyncio.sleep(0)
            self._states()

    def read(self, keys: Sequence[Hashable]) -> list[Item]:
        access, states = self._access, self._states()
        found: list[Item] = []
        for key in keys:
            group = key_group(key, access.key_groups)
            state = next(state for groups, state in states if group in groups)
            found += access.present(state, [key])
        return found


class _StoredKeys:
    """The keys of one checkpoint, selected and read in a thread."""

    def __init__(self, access: StepAccess, step: StepInCheckpoint) -> None:
        self._access = access
        self._step = step
        self._empty = access.in_checkpoint(step)
        self._name = self._empty.name
        #: The rows of the last selection.
        self._selected = SelectedRows(step, {})
        self.checkpoint: Final = step.manifest.id

    def check_prefix(self, prefix: Prefix) -> None:
        self._access.check_prefix(self._empty, prefix)

    async def fill(self, selection: KeySelection) -> None:
        select = partial(self._step.selected, self._name, selection)
        self._selected = await self._access.run(select)

    def read(self, keys: Sequence[Hashable]) -> list[Item]:
        state = NamedState(self._selected.view(keys), self._name)
        return self._access.present(state, keys)


def _check_as_of(as_of: object) -> None:
    if as_of not in ("live", "checkpoint"):
        raise FlowDefinitionError(f"as_of is 'live' or 'checkpoint', not {shown(as_of)}")


def _check_limit(limit: object) -> None:
    if type(limit) is not int or limit < 1:
        raise FlowDefinitionError(f"limit is a number of keys from 1 on, not {shown(limit)}")
