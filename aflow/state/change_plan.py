"""What becomes of each stored state when a job goes on from a checkpoint or savepoint: decided before anything is read.

Theory. A step is found again by its name, a state by its name in the step. Steps that declare their states (functions
with state, ``fold``, ``deduplicate`` …) are compared state by state, by what snapshots say of their types. Nothing is
said of the types of accumulators and records in windows and joins, of the inputs of calls, and of records in flight:
what becomes of them is *unknown* until a job restores them. Sources and sinks are kept if the same method made them.
What is stored and has no place any more would be lost without a word, so it is *dropped*, which is refused unless it
was allowed.
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

#: Beside the rows of a state with this name behind it, when they were last touched.
_TOUCHED: Final = f"{RESERVED}touched "

#: What steps of any kind can read: records in flight, and how far event time had come.
_ANYWHERE: Final = frozenset({"@in flight", "@watermark"})

#: What can be left behind without a loss: the watermarks of asynchronous steps, which the sources send again.
_REPEATED: Final = frozenset({"@fences"})


#: What a step keeps by key whose form is aflow's own.
_TIMERS: Final = frozenset({"@event timers", "@processing timers"})

#: Operator state that consists of records: inputs of calls, and what was in flight.
_RECORDS: Final = frozenset({"@calls", "@handlers", "@in flight", "@waiting"})


class Fate(Enum):
    """What becomes of a state, or of all that a step remembers."""

    KEPT = "kept"
    MIGRATED = "migrated"
    """It is read with the changes that are told."""
    UNKNOWN = "unknown until restored"
    """The same method made the step, and the types of what it holds are compared when it is restored."""
    NEW = "new"
    """Nothing of it is stored: it starts empty."""
    DROPPED = "dropped"
    """It is stored, and there is no place for it."""
    REFUSED = "refused"
    """It is stored, and cannot be read as what is declared."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """A declared state as it is stored."""

    name: str
    descriptions: tuple[Description, ...] = ()
    """How it is stored; more than one if parts of it were not written since the type changed, none if unknown."""
    keys: int = 0
    """How many keys have something; for a broadcast state 0."""


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step that has something in a checkpoint."""

    name: str
    what: str
    parallelism: int
    states: tuple[StoredState, ...] = ()
    others: tuple[str, ...] = ()
    """Names of what it remembers beside declared states: timers, windows, positions …"""
    untyped: tuple[str, ...] = ()
    """The names of ``others`` that hold values of the user, of types that a snapshot does not tell."""

    @property
    def empty(self) -> bool:
        """True if nothing would be lost with it."""
        return not self.states and not self.others


@dataclass(frozen=True, slots=True)
class DeclaredStep:
    """A step of the pipeline that is to go on."""

    name: str
    what: str
    parallelism: int
    states: Mapping[str, bytes] | None = None
    """Descriptions of its states, by name, as ``Operator.declares`` gives them; None if it does not tell."""
    stateful: bool = False


@dataclass(frozen=True, slots=True)
class StateChange:
    """What becomes of one state of a step."""

    name: str
    fate: Fate
    type: str
    """How it is stored, or is going to be, for a person."""
    details: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"    {self.fate.value:<9} {self.name}{f': {self.type}' if self.type else ''}"
        yield from (f"              {detail}" for detail in self.details)


@dataclass(frozen=True, slots=True)
class StepChange:
    """What becomes of a step."""

    name: str
    what: str
    own: Fate
    """What becomes of what it remembers beside declared states."""
    before: int | None = None
    """Its parallelism in the checkpoint; None if it is new."""
    after: int | None = None
    """Its parallelism now; None if it is no longer there."""
    states: tuple[StateChange, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def fate(self) -> Fate:
        """The gravest of all in it."""
        return max((self.own, *(state.fate for state in self.states)), key=_GRAVITY.index)

    def lines(self) -> Iterator[str]:
        yield f"  step {self.name!r} ({self.what}){self._parallelism()}: {self.fate.value}"
        yield from (f"    {detail}" for detail in self.details)
        for state in self.states:
            yield from state.lines()

    def _parallelism(self) -> str:
        if self.before is None or self.after is None or self.before == self.after:
            return ""
        return f", parallelism {self.before} → {self.after}"


_GRAVITY: Final = (
    Fate.NEW,
    Fate.KEPT,
    Fate.MIGRATED,
    Fate.UNKNOWN,
    Fate.DROPPED,
    Fate.REFUSED,
)


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What becomes of everything that is stored; ``str(plan)`` is its text."""

    steps: tuple[StepChange, ...] = ()
    refusals: tuple[str, ...] = field(default=())
    """Reasons against going on at all."""

    def __str__(self) -> str:
        lines = [line for step in self.steps for line in step.lines()]
        lines += [f"  refused: {reason}" for reason in self.refusals]
        return "\n".join(lines) or "  nothing is stored"

    @property
    def refused(self) -> bool:
        """True if something that is stored cannot be read."""
        return bool(self.refusals) or self._any(Fate.REFUSED)

    @property
    def dropped(self) -> bool:
        """True if something that is stored would be lost."""
        return self._any(Fate.DROPPED)

    @property
    def unknown(self) -> bool:
        """True if only a restore can say whether something can be read."""
        return self._any(Fate.UNKNOWN)

    def check(self, *, allow_dropped_state: bool = False) -> None:
        """Raises ``RestoreError`` with the whole plan if something is refused, or dropped without being allowed."""
        if self.refused:
            raise RestoreError(
                f"the pipeline cannot go on from what is stored:\n{self}\n"
                f"declare what is refused as it was, or give the changed state or step another name"
            )
        if self.dropped and not allow_dropped_state:
            raise RestoreError(
                f"some of what is stored has no place in the pipeline, and would be lost:\n{self}\n"
                f"name steps and states as they were named, or allow it with allow_dropped_state=True "
                f"(--allow-dropped-state of 'aflow run')"
            )

    def without_dropped(self, step: str, snapshot: OperatorSnapshot) -> OperatorSnapshot:
        """``snapshot`` of ``step`` without the states that the step has no place for."""
        gone: set[str] = set()
        for change in self.steps:
            if change.name == step:
                gone |= {one.name for one in change.states if one.fate is Fate.DROPPED}
        return _without(snapshot, gone) if gone else snapshot

    def _any(self, fate: Fate) -> bool:
        return any(
            fate in (step.own, *(state.fate for state in step.states)) for step in self.steps
        )


def change_plan(
    stored: Iterable[StoredStep],
    declared: Iterable[DeclaredStep],
    *,
    key_groups: tuple[int, int] | None = None,
) -> ChangePlan:
    """Compare what is stored with what a pipeline declares.

    ``key_groups`` are the numbers that the checkpoint has and that the job has. Steps that have nothing to remember on
    either side are left out. The order is that of the pipeline, then of what is dropped.
    """
    there = {step.name: step for step in stored}
    wanted = list(declared)
    changes = [_step_change(there.get(step.name), step) for step in wanted]
    names = {step.name for step in wanted}
    gone = [_gone(step) for name, step in there.items() if name not in names and not step.empty]
    told = (change for change in changes if change is not None)
    return ChangePlan((*told, *gone), tuple(_refusals(there.values(), key_groups)))


def stored_step(step: StepState, snapshot: OperatorSnapshot) -> StoredStep:
    """What ``snapshot``, which is complete, holds of ``step``. Raises ``RestoreError`` if types cannot be read."""
    states: dict[str, StoredState] = {}
    others: dict[str, None] = dict.fromkeys(
        name for name, parts in snapshot.operator.items() if parts and name not in _REPEATED
    )
    untyped: dict[str, None] = dict.fromkeys(name for name in others if name in _RECORDS)
    try:
        for names in snapshot.keyed.values():
            described = {name.decode(): data for name, data in names.get(STATES, ())}
            for name, rows in names.items():
                if name.startswith(RESERVED):
                    if rows and name != STATES and not name.startswith(_TOUCHED):
                        others[name] = None
                        if name not in _TIMERS:
                            untyped[name] = None
                elif rows:
                    _note(states, name, described.get(name), len(rows))
        for name, copies in snapshot.broadcast.items():
            for copy in copies:
                _note(states, name, _described_copy(copy), 0)
    except (CodecError, TypeError, ValueError) as exc:
        raise RestoreError(
            f"what is stored of step {step.name!r} does not say what it is: {exc}"
        ) from exc
    return StoredStep(
        step.name,
        step.what,
        step.parallelism,
        tuple(states.values()),
        tuple(others),
        tuple(untyped),
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
        return StepChange(declared.name, declared.what, Fate.NEW, None, declared.parallelism, new)
    change = StepChange(
        declared.name,
        declared.what,
        Fate.UNKNOWN if stored.untyped else Fate.KEPT,
        stored.parallelism,
        declared.parallelism,
        details=tuple(_untyped_text(stored.untyped)),
    )
    if stored.what != declared.what and _depends_on_what(stored, declared):
        reason = f"it is a {stored.what} in what is stored, and a {declared.what} now; give it another name"
        return replace(change, own=Fate.REFUSED, details=(reason,))
    if declared.states is None:
        kept = (_unchecked(state) for state in stored.states)
        return replace(change, states=tuple(kept))
    compared = [_state_change(state, states.get(state.name)) for state in stored.states]
    known = {state.name for state in stored.states}
    new = tuple(_new(name, data) for name, data in states.items() if name not in known)
    return replace(change, states=(*compared, *new))


def _depends_on_what(stored: StoredStep, declared: DeclaredStep) -> bool:
    """Whether something is stored that only a step of the same kind can read."""
    return declared.states is None or not _ANYWHERE.issuperset(stored.others)


def _state_change(stored: StoredState, declared: bytes | None) -> StateChange:
    if declared is None:
        return StateChange(stored.name, Fate.DROPPED, _type(stored), (_amount(stored),))
    new = Description.decoded(declared)
    changes: list[str] = []
    for old in stored.descriptions:
        match compare_descriptions(old, new):
            case Incompatible(reason):
                details = (f"declared as {new}", reason)
                return StateChange(stored.name, Fate.REFUSED, str(old), details)
            case Migrated(more):
                changes += more
            case Kept():
                pass
    if not stored.descriptions:
        return StateChange(stored.name, Fate.KEPT, str(new), ("of a type that is not known",))
    if changes:
        return StateChange(stored.name, Fate.MIGRATED, _type(stored), tuple(dict.fromkeys(changes)))
    return StateChange(stored.name, Fate.KEPT, str(new))


def _unchecked(state: StoredState) -> StateChange:
    return StateChange(
        state.name, Fate.UNKNOWN, _type(state), ("compared when the step is restored",)
    )


def _new(name: str, description: bytes) -> StateChange:
    return StateChange(name, Fate.NEW, str(Description.decoded(description)), ("starts empty",))


def _gone(step: StoredStep) -> StepChange:
    states = (
        StateChange(one.name, Fate.DROPPED, _type(one), (_amount(one),)) for one in step.states
    )
    reason = "it is not in the pipeline; was it renamed?"
    if step.name.startswith(f"{step.what} #"):
        reason = "no step of the pipeline has this number; named with name=, a step is found wherever it stands"
    details = (reason, *_others_text(step.others))
    return StepChange(
        step.name, step.what, Fate.DROPPED, step.parallelism, None, tuple(states), details
    )


def _untyped_text(names: tuple[str, ...]) -> Iterator[str]:
    if names:
        held = ", ".join(name.removeprefix(RESERVED) for name in names)
        yield f"types are compared when the step is restored, of: {held}"


def _others_text(names: tuple[str, ...]) -> Iterator[str]:
    if names:
        yield f"it also remembers {', '.join(name.removeprefix(RESERVED) for name in names)}"


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
            name: tuple(row for row in rows if name != STATES or row[0].decode() not in gone)
            for name, rows in held.items()
            if name not in names
        }
        for group, held in snapshot.keyed.items()
    }
    broadcast = {name: held for name, held in snapshot.broadcast.items() if name not in gone}
    return replace(snapshot, keyed=keyed, broadcast=broadcast)
