"""Change plans: the outcome for each stored state when a job starts from a checkpoint or savepoint.

Theory. The plan is made before any state is read. A step is identified by its name, a state by its name in the step.
Steps that declare their states (functions with state, ``fold``, ``deduplicate`` …) are compared state by state, by the
descriptions in snapshots. Accumulators and records in windows and joins, inputs of calls, and records in flight are not
described: their outcome is *unknown* until a job restores them. Sources and sinks are kept if the same method made
them. State without a place in the pipeline would be lost: it is *dropped*, which is refused unless it was allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, cast

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN, CodecError
from aflow.state.descriptions import Description, compare_descriptions
from aflow.state.manifest import StepState
from aflow.state.schema_change import Incompatible, Kept, Migrated
from aflow.state.snapshot import STATES, OperatorSnapshot
from aflow.state.specs import RESERVED
from aflow.state.stored_entries import Entries

#: Prefix of the last touches of the rows of a state, followed by its name.
_TOUCHED: Final = f"{RESERVED}touched "

#: State that steps of any kind can read: records in flight and watermarks.
_ANYWHERE: Final = frozenset({"@in flight", "@watermark"})

#: State that can be dropped without a loss: watermarks of asynchronous steps, which sources emit again.
_REPEATED: Final = frozenset({"@fences"})


#: State by key in a format of aflow itself.
_TIMERS: Final = frozenset({"@event timers", "@processing timers"})

#: Operator state that consists of records: inputs of calls and records in flight.
_RECORDS: Final = frozenset({"@calls", "@handlers", "@in flight", "@waiting"})


class StateOutcome(Enum):
    """Outcome for one state, or for all state of a step."""

    KEPT = "kept"
    MIGRATED = "migrated"
    """It is read with the listed changes."""
    UNKNOWN = "unknown until restored"
    """The same method made the step. Types are compared when it is restored."""
    NEW = "new"
    """It is not stored and starts empty."""
    DROPPED = "dropped"
    """It is stored, and the pipeline has no place for it."""
    REFUSED = "refused"
    """It is stored, and cannot be read as the declared type."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """A stored state that a step declared."""

    name: str
    descriptions: tuple[Description, ...] = ()
    """Its descriptions: several if parts of it were written before a change of the type, none if unknown."""
    keys: int = 0
    """Number of keys with this state; 0 for broadcast state."""


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step with state in a checkpoint."""

    name: str
    what: str
    parallelism: int
    states: tuple[StoredState, ...] = ()
    others: tuple[str, ...] = ()
    """Names of its state beside declared states: timers, windows, positions …"""
    untyped: tuple[str, ...] = ()
    """Names in ``others`` with values of the user whose types are not described."""

    @property
    def empty(self) -> bool:
        """True if it has no state."""
        return not self.states and not self.others


@dataclass(frozen=True, slots=True)
class DeclaredStep:
    """A step of the pipeline."""

    name: str
    what: str
    parallelism: int
    states: Mapping[str, bytes] | None = None
    """Descriptions of its states by name, from ``Operator.declares``; None if it does not describe them."""
    stateful: bool = False


@dataclass(frozen=True, slots=True)
class StateChange:
    """Outcome for one state of a step."""

    name: str
    outcome: StateOutcome
    type: str
    """Its stored type, or the declared one of a new state, for people."""
    details: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"    {self.outcome.value:<9} {self.name}{f': {self.type}' if self.type else ''}"
        yield from (f"              {detail}" for detail in self.details)


@dataclass(frozen=True, slots=True)
class StepChange:
    """Outcome for a step."""

    name: str
    what: str
    own: StateOutcome
    """Outcome for its state beside declared states."""
    before: int | None = None
    """Its parallelism in the checkpoint; None if it is new."""
    after: int | None = None
    """Its parallelism in the pipeline; None if it was removed."""
    states: tuple[StateChange, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def outcome(self) -> StateOutcome:
        """The most severe outcome in the step."""
        return max((self.own, *(state.outcome for state in self.states)), key=_SEVERITY.index)

    def lines(self) -> Iterator[str]:
        yield f"  step {self.name!r} ({self.what}){self._parallelism()}: {self.outcome.value}"
        yield from (f"    {detail}" for detail in self.details)
        for state in self.states:
            yield from state.lines()

    def _parallelism(self) -> str:
        if self.before is None or self.after is None or self.before == self.after:
            return ""
        return f", parallelism {self.before} → {self.after}"


_SEVERITY: Final = (
    StateOutcome.NEW,
    StateOutcome.KEPT,
    StateOutcome.MIGRATED,
    StateOutcome.UNKNOWN,
    StateOutcome.DROPPED,
    StateOutcome.REFUSED,
)


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Outcomes for all stored state; ``str(plan)`` is a text for people."""

    steps: tuple[StepChange, ...] = ()
    refusals: tuple[str, ...] = field(default=())
    """Reasons to refuse the whole checkpoint."""

    def __str__(self) -> str:
        lines = [line for step in self.steps for line in step.lines()]
        lines += [f"  refused: {reason}" for reason in self.refusals]
        return "\n".join(lines) or "  nothing is stored"

    @property
    def refused(self) -> bool:
        """True if some stored state cannot be read."""
        return bool(self.refusals) or self._any(StateOutcome.REFUSED)

    @property
    def dropped(self) -> bool:
        """True if some stored state would be lost."""
        return self._any(StateOutcome.DROPPED)

    @property
    def unknown(self) -> bool:
        """True if only a restore can find out if some state can be read."""
        return self._any(StateOutcome.UNKNOWN)

    def check(self, *, allow_dropped_state: bool = False) -> None:
        """Raise ``RestoreError`` with the whole plan if state is refused, or dropped without permission."""
        if self.refused:
            raise RestoreError(
                f"the pipeline cannot start from the stored state:\n{self}\n"
                f"declare refused states as before, or give the changed state or step another name"
            )
        if self.dropped and not allow_dropped_state:
            raise RestoreError(
                f"some stored state has no place in the pipeline and would be lost:\n{self}\n"
                f"name steps and states as before, or allow the loss with allow_dropped_state=True "
                f"(--allow-dropped-state of 'aflow run')"
            )

    @property
    def changed_steps(self) -> frozenset[str]:
        """Steps with stored state that is read in another way now, so that changes to it cannot be stored alone."""
        same = (StateOutcome.KEPT, StateOutcome.NEW, StateOutcome.UNKNOWN)
        return frozenset(
            step.name
            for step in self.steps
            if any(state.outcome not in same for state in step.states)
        )

    def without_dropped(self, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """Return ``snapshot`` of ``step`` without its dropped states."""
        gone: set[str] = set()
        for change in self.steps:
            if change.name == step:
                gone |= {one.name for one in change.states if one.outcome is StateOutcome.DROPPED}
        return _without(snapshot, gone) if gone else snapshot

    def _any(self, outcome: StateOutcome) -> bool:
        return any(
            outcome in (step.own, *(state.outcome for state in step.states)) for step in self.steps
        )


def change_plan(
    stored: Iterable[StoredStep],
    declared: Iterable[DeclaredStep],
    *,
    key_groups: tuple[int, int] | None = None,
) -> ChangePlan:
    """Compare stored steps with the steps of a pipeline.

    ``key_groups`` are the numbers of key groups of the checkpoint and of the job. Steps without state on both sides are
    omitted. The order is that of the pipeline, then dropped steps.
    """
    stored_steps = {step.name: step for step in stored}
    wanted = list(declared)
    changes = [_step_change(stored_steps.get(step.name), step) for step in wanted]
    names = {step.name for step in wanted}
    gone = [
        _gone(step) for name, step in stored_steps.items() if name not in names and not step.empty
    ]
    listed = (change for change in changes if change is not None)
    return ChangePlan((*listed, *gone), tuple(_refusals(stored_steps.values(), key_groups)))


def stored_step(step: StepState, snapshot: OperatorSnapshot) -> StoredStep:
    """Return the stored state of ``step`` in a complete ``snapshot``. Raises ``RestoreError`` for unreadable types."""
    contents = StepContents(step)
    contents.add(snapshot)
    return contents.stored()


class StepContents:
    """The names and types of the state of ``step``, collected from one snapshot after the other."""

    def __init__(self, step: StepState) -> None:
        self._step: Final = step
        self._states: dict[str, StoredState] = {}
        #: Names, in order; the values have no meaning.
        self._others: dict[str, None] = {}
        self._untyped: dict[str, None] = {}

    def add(self, snapshot: OperatorSnapshot) -> None:
        """Add a complete snapshot of some subtasks. Raises ``RestoreError`` for unreadable types."""
        for name, parts in snapshot.operator.items():
            if parts and name not in _REPEATED:
                self._others[name] = None
                if name in _RECORDS:
                    self._untyped[name] = None
        try:
            for names in snapshot.keyed.values():
                self._add_group(names)
            for name, copies in snapshot.broadcast.items():
                for copy in copies:
                    _note(self._states, name, _described_copy(copy), 0)
        except (CodecError, TypeError, ValueError) as exc:
            raise RestoreError(
                f"the stored state of step {self._step.name!r} has no valid description: {exc}"
            ) from exc

    def _add_group(self, names: Mapping[str, Entries]) -> None:
        described = {name.decode(): data for name, data in names.get(STATES, ())}
        for name, rows in names.items():
            if not name.startswith(RESERVED):
                if rows:
                    _note(self._states, name, described.get(name), len(rows))
            elif rows and name != STATES and not name.startswith(_TOUCHED):
                self._others[name] = None
                if name not in _TIMERS:
                    self._untyped[name] = None

    def stored(self) -> StoredStep:
        """Return the stored state found so far."""
        step = self._step
        return StoredStep(
            step.name,
            step.what,
            step.parallelism,
            tuple(self._states.values()),
            tuple(self._others),
            tuple(self._untyped),
        )


def _note(states: dict[str, StoredState], name: str, described: bytes | None, keys: int) -> None:
    state = states.get(name) or StoredState(name)
    descriptions = state.descriptions
    if described is not None and (one := Description.decoded(described)) not in descriptions:
        descriptions = (*descriptions, one)
    states[name] = replace(state, descriptions=descriptions, keys=state.keys + keys)


def _described_copy(copy: bytes) -> bytes:
    described, _ = cast("tuple[bytes, bytes]", PLAIN.decode(copy))
    return described


def _step_change(stored: StoredStep | None, declared: DeclaredStep) -> StepChange | None:
    states: Mapping[str, bytes] = declared.states or {}
    if stored is None or stored.empty:
        if not declared.stateful:
            return None
        new = tuple(_new(name, data) for name, data in states.items())
        return StepChange(
            declared.name, declared.what, StateOutcome.NEW, None, declared.parallelism, new
        )
    change = StepChange(
        declared.name,
        declared.what,
        StateOutcome.UNKNOWN if stored.untyped else StateOutcome.KEPT,
        stored.parallelism,
        declared.parallelism,
        details=tuple(_untyped_text(stored.untyped)),
    )
    if stored.what != declared.what and _depends_on_what(stored, declared):
        reason = f"it was a {stored.what} when it was stored, and is a {declared.what} now; give it another name"
        return replace(change, own=StateOutcome.REFUSED, details=(reason,))
    if declared.states is None:
        kept = (_unchecked(state) for state in stored.states)
        return replace(change, states=tuple(kept))
    compared = [_state_change(state, states.get(state.name)) for state in stored.states]
    known = {state.name for state in stored.states}
    new = tuple(_new(name, data) for name, data in states.items() if name not in known)
    return replace(change, states=(*compared, *new))


def _depends_on_what(stored: StoredStep, declared: DeclaredStep) -> bool:
    """Return True if state is stored that only a step of the same kind can read."""
    return declared.states is None or not _ANYWHERE.issuperset(stored.others)


def _state_change(stored: StoredState, declared: bytes | None) -> StateChange:
    if declared is None:
        return StateChange(stored.name, StateOutcome.DROPPED, _type(stored), (_amount(stored),))
    new = Description.decoded(declared)
    changes: list[str] = []
    for old in stored.descriptions:
        match compare_descriptions(old, new):
            case Incompatible(reason):
                details = (f"declared as {new}", reason)
                return StateChange(stored.name, StateOutcome.REFUSED, str(old), details)
            case Migrated(more):
                changes += more
            case Kept():
                pass
    if not stored.descriptions:
        return StateChange(stored.name, StateOutcome.KEPT, str(new), ("its type is unknown",))
    if changes:
        return StateChange(
            stored.name, StateOutcome.MIGRATED, _type(stored), tuple(dict.fromkeys(changes))
        )
    return StateChange(stored.name, StateOutcome.KEPT, str(new))


def _unchecked(state: StoredState) -> StateChange:
    return StateChange(
        state.name, StateOutcome.UNKNOWN, _type(state), ("compared when the step is restored",)
    )


def _new(name: str, description: bytes) -> StateChange:
    return StateChange(
        name, StateOutcome.NEW, str(Description.decoded(description)), ("starts empty",)
    )


def _gone(step: StoredStep) -> StepChange:
    states = (
        StateChange(one.name, StateOutcome.DROPPED, _type(one), (_amount(one),))
        for one in step.states
    )
    reason = "it is not in the pipeline; was it renamed?"
    if step.name.startswith(f"{step.what} #"):
        reason = (
            "no step of the pipeline has this number; a step with name= is found at any position"
        )
    details = (reason, *_others_text(step.others))
    return StepChange(
        step.name, step.what, StateOutcome.DROPPED, step.parallelism, None, tuple(states), details
    )


def _untyped_text(names: tuple[str, ...]) -> Iterator[str]:
    if names:
        held = ", ".join(name.removeprefix(RESERVED) for name in names)
        yield f"types are compared when the step is restored: {held}"


def _others_text(names: tuple[str, ...]) -> Iterator[str]:
    if names:
        yield f"it also has {', '.join(name.removeprefix(RESERVED) for name in names)}"


def _refusals(stored: Iterable[StoredStep], key_groups: tuple[int, int] | None) -> Iterator[str]:
    if key_groups is None or key_groups[0] == key_groups[1]:
        return
    if any(not step.empty for step in stored):
        yield (
            f"keys are stored in {key_groups[0]} key groups, and the job has {key_groups[1]}; "
            f"run it with Options(key_groups={key_groups[0]})"
        )


def _type(state: StoredState) -> str:
    return " and ".join(map(str, state.descriptions))


def _amount(state: StoredState) -> str:
    return f"{state.keys:,} keys" if state.keys else "for all keys"


def _without(snapshot: OperatorSnapshot, gone: set[str]) -> OperatorSnapshot:
    names = gone | {f"{_TOUCHED}{name}" for name in gone}
    keyed = {
        group: {
            name: tuple(row for row in rows if row[0].decode() not in gone)
            if name == STATES
            else rows
            for name, rows in held.items()
            if name not in names
        }
        for group, held in snapshot.keyed.items()
    }
    broadcast = {name: held for name, held in snapshot.broadcast.items() if name not in gone}
    return replace(snapshot, keyed=keyed, broadcast=broadcast)
