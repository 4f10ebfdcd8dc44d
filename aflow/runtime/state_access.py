"""Access to the keyed state of one step of a job: of its subtasks, and in its last completed checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, get_origin

from aflow.errors import (
    AflowError,
    CheckpointError,
    FlowDefinitionError,
    JobStopped,
    OperatorError,
    WrongKey,
    described,
    shown,
)
from aflow.model.key_groups import KeyGroupRange, ranges
from aflow.runtime.attempt import JobAttempt
from aflow.runtime.checkpoints.storage import CheckpointStorage
from aflow.runtime.checkpoints.stored_state import StepInCheckpoint, StoredReads
from aflow.runtime.job_setup import JobSetup
from aflow.runtime.job_status import JobStatus
from aflow.runtime.options import Options
from aflow.runtime.recovery import require_checkpointing
from aflow.state.key_types import classes_of, never_begins
from aflow.state.readable_state import ABSENT, KeySelection, Prefix, ReadableState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobNow:
    """The parts of a job at one moment that reads of its state need."""

    status: JobStatus
    attempt: JobAttempt
    storage: CheckpointStorage | None
    options: Options
    running: asyncio.Task[None] | None


class NamedState(NamedTuple):
    """One state of a step: its name, and a view that has it."""

    view: ReadableState
    name: str


class StepAccess:
    """The state of ``step`` that is called ``name``; None: its only state.

    Raises ``FlowDefinitionError`` for a step that the flow does not have.
    """

    def __init__(
        self,
        setup: JobSetup,
        step: str,
        name: str | None,
        stored: StoredReads,
        now: Callable[[], JobNow],
    ) -> None:
        plan = setup.plan
        places = {node.name: (task, node) for task in plan.tasks for node in task.nodes}
        if step not in places:
            raise FlowDefinitionError(
                f"flow {plan.flow!r} has no step {shown(step)}; its steps are {', '.join(map(repr, places))}"
            )
        self._task, self._node = places[step]
        self._setup = setup
        self._step = step
        self._name = name
        self._stored = stored
        self._now = now
        self.key_groups: Final = plan.key_groups

    # ----------------------------------------------------------------------------------- live state

    def running_attempt(self) -> JobAttempt:
        """Return the attempt that processes records. Raises ``JobStopped`` if there is none."""
        now = self._checked_now()
        if now.status not in (JobStatus.RUNNING, JobStatus.DRAINING):
            raise self._stopped(now)
        return now.attempt

    def live(self) -> list[tuple[KeyGroupRange, NamedState]]:
        """Return the state of each subtask, with its key groups.

        Raises ``JobStopped``, and ``FlowDefinitionError`` for a step without such a state.
        """
        found: list[tuple[KeyGroupRange, NamedState]] = []
        for task in self.running_attempt().built.tasks:
            for operator in task.chain.operators:
                if operator.name != self._step:
                    continue
                if task.stopped_at is not None:  # its operators are closed, and without state
                    raise JobStopped(
                        f"step {self._step!r} of job {self._setup.plan.flow!r} has ended, so it has no state to read"
                    )
                state = self._named(operator.readable_state())
                found.append((operator.context.key_groups, state))
        if not found:
            raise self._unreadable()  # a source, or a step that is one with others
        return found

    def live_of(self, group: int) -> NamedState:
        """Return the state of the subtask that has a key group. Raises as ``live``."""
        for groups, state in self.live():
            if group in groups:
                return state
        raise JobStopped(f"no subtask of step {self._step!r} has key group {group} now; try again")

    def _checked_now(self) -> JobNow:
        """Return the job. Raises ``JobStopped`` if it has ended, ``FlowDefinitionError`` on another loop."""
        now = self._now()
        if now.running is not None and now.running.get_loop() is not asyncio.get_running_loop():
            raise FlowDefinitionError(
                "state was read on another event loop than that of the job; from another thread, use "
                "asyncio.run_coroutine_threadsafe(job.state(step).get(key), loop)"
            )
        if now.status.has_ended:
            raise self._stopped(now)
        return now

    # --------------------------------------------------------------------------------- checkpoints

    async def stored(self, group: int | None = None) -> StepInCheckpoint:
        """Return the state in the last completed checkpoint: of the subtask that has ``group``, or of all.

        Raises ``JobStopped`` if the job has ended or is not yet started, ``CheckpointError`` if there is no checkpoint,
        ``RestoreError`` if none can be read, and ``FlowDefinitionError`` in a job without checkpointing, and for a step
        without such a state.
        """
        require_checkpointing(self._setup.recovery, 'state(…) with as_of="checkpoint"')
        now = self._checked_now()
        if now.storage is None:
            raise self._stopped(now)
        if self._node.operator is None:
            raise self._unreadable()
        groups = KeyGroupRange(0, self.key_groups)
        if group is not None:
            own = ranges(self.key_groups, self._task.parallelism)
            groups = next(one for one in own if group in one)
        try:
            return await self._stored.step(
                now.storage,
                self._step,
                self._node.operator,
                groups,
                key_groups=self.key_groups,
                clock=now.options.clock,
            )
        except CheckpointError:
            self._checked_now()  # raises if the job has ended meanwhile, which closes the storage
            raise

    def in_checkpoint(self, step: StepInCheckpoint) -> NamedState:
        """Return the state without keys, for checks. Raises ``FlowDefinitionError`` as ``live``."""
        return self._named(step.view())

    async def run(self, work: Callable[[], T]) -> T:
        """Do ``work`` on a stored step in a thread."""
        coordinator = self._now().attempt.coordinator
        return await self._stored.run(work, None if coordinator is None else coordinator.threads)

    # ---------------------------------------------------------------------------------------- values

    def check_type(self, state: NamedState, key: Hashable) -> None:
        """Raise ``WrongKey`` for a key of another type than the declared one."""
        key_codec = state.view.key_codec
        if reason := key_codec.wrong_type(key):
            raise WrongKey(
                f"{shown(key)} is no key of step {self._step!r}: {reason}",
                key=key,
                key_classes=classes_of(key_codec.key_type) or (),
            )

    def check_prefix(self, state: NamedState, prefix: Prefix) -> None:
        """Raise ``WrongKey`` if no key of the declared type can begin with ``prefix``."""
        declared = state.view.key_codec.key_type
        if declared is not None and never_begins(declared, prefix):
            name = getattr(declared, "__name__", None) if get_origin(declared) is None else None
            raise self._wrong_prefix(
                prefix, f"are of type {name or declared}", classes_of(declared) or ()
            )

    def check_found(self, selection: KeySelection, prefix: Prefix) -> None:
        """Raise ``WrongKey`` if a listing has found keys, and none has the type of ``prefix``."""
        if (key := selection.other_kind) is not ABSENT:
            kind = "text" if isinstance(prefix, str) else "tuples"
            raise self._wrong_prefix(prefix, f"such as {shown(key)}, are no {kind}", {type(key)})

    def _wrong_prefix(self, prefix: Prefix, reason: str, classes: Collection[type]) -> WrongKey:
        comma = "," if reason.startswith("such") else ""
        advice = "such keys have no prefix"
        if any(issubclass(one, tuple) for one in classes):
            advice = "pass a tuple of their first parts, as in prefix=('a',)"
        elif any(issubclass(one, str) for one in classes):
            advice = "pass text, as in prefix='a'"
        return WrongKey(
            f"no key of step {self._step!r} begins with {shown(prefix)}: its keys{comma} {reason}; {advice}",
            key=prefix,
            key_classes=classes,
        )

    def value(self, state: NamedState, key: Hashable) -> object:
        """Return the value of ``key``, or ``ABSENT``. Raises ``OperatorError`` if it cannot be made or copied."""
        try:
            return state.view.read(state.name, key)
        except AflowError:
            raise
        except Exception as exc:
            raise OperatorError(
                f"the state of key {shown(key)} of step {self._step!r} cannot be read: {described(exc)}",
                operator=self._step,
                key=key,
            ) from exc

    def present(self, state: NamedState, keys: Sequence[Hashable]) -> list[tuple[Hashable, object]]:
        """Return those of ``keys`` that have a value, with it."""
        found = ((key, self.value(state, key)) for key in keys)
        return [(key, value) for key, value in found if value is not ABSENT]

    def _named(self, view: ReadableState | None) -> NamedState:
        if view is None:
            raise self._unreadable()
        known = ", ".join(map(repr, view.names)) or "none"
        if self._name is None:
            if len(view.names) != 1:
                raise FlowDefinitionError(
                    f"step {self._step!r} has the states {known}; name one of them: job.state({self._step!r}, name)"
                )
            return NamedState(view, view.names[0])
        if self._name not in view.names:
            raise FlowDefinitionError(
                f"step {self._step!r} has no state named {shown(self._name)}; it has: {known}"
            )
        return NamedState(view, self._name)

    def _unreadable(self) -> FlowDefinitionError:
        others = [
            f"{node.name!r} ({node.what})"
            for task in self._setup.plan.tasks
            for node in task.nodes
            if node.stateful and node.name != self._step
        ]
        advice = f"state is in {', '.join(others)}" if others else "no other step has keyed state"
        return FlowDefinitionError(
            f"step {self._step!r} ({self._node.what}) has no state that can be read; {advice}"
        )

    def _stopped(self, now: JobNow) -> JobStopped:
        return JobStopped(
            f"job {self._setup.plan.flow!r} is {now.status.value}, so it has no state to read"
        )
