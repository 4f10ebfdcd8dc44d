"""Invariants of a coordinator for any events in any order."""

from __future__ import annotations

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aflow.machines.checkpoints.coordinator import Coordinator
from aflow.machines.checkpoints.events import (
    Acknowledged,
    AlarmFired,
    Answer,
    CancelAlarm,
    CoordinatorSettings,
    Declined,
    Discard,
    Event,
    FailJob,
    Instruction,
    NotifyAborted,
    NotifyComplete,
    NotStored,
    Refuse,
    RemovalsCounted,
    Requested,
    SetAlarm,
    Started,
    Stopped,
    StoreCheckpoint,
    Stored,
    TriggerTasks,
)
from aflow.model.elements import CheckpointKind
from tests.machines.checkpoints.clocked_coordinator import FINAL, PERIODIC, SAVEPOINT

TASKS = ("a", "b")
KNOWN = (1, 2)
_FAILED = ("declined", "expired", "could not be stored")

settings = st.builds(
    CoordinatorSettings,
    every=st.none() | st.integers(1, 30),
    first_delay=st.integers(0, 30),
    min_pause=st.integers(0, 20),
    timeout=st.integers(1, 60),
    max_concurrent=st.integers(1, 3),
    tolerable_failures=st.integers(0, 3),
    keep=st.integers(1, 3),
)


class CoordinatorRules(RuleBasedStateMachine):
    """A shell that carries out instructions, tasks with arbitrary answers, and a model of the invariants."""

    @initialize(settings=settings)
    def begin(self, settings: CoordinatorSettings) -> None:
        self.settings = settings
        self.coordinator = Coordinator(TASKS, settings, first_id=3, completed=KNOWN)
        self.now = 0
        self.alarm: int | None = None
        self.running = self.over = self.final = False
        self.removals = 0
        self.kinds: dict[int, CheckpointKind] = {}
        self.deadlines: dict[int, int] = {}
        self.completed: list[int] = []
        self.aborted: list[int] = []
        #: ``StoreCheckpoint`` was said, and neither ``Stored`` nor ``NotStored`` yet.
        self.storing: list[int] = []
        #: In storage; savepoints too.
        self.stored: set[int] = set(KNOWN)
        self.open_requests: set[int] = set()
        #: Requests for a periodic one that has not begun; they go before scheduled ones.
        self.asked: deque[int] = deque()
        self.made = 0
        self.last_end: int | None = None
        self.in_a_row = 0
        self.jobs_failed = 0
        self.has_independent = False

    # -------------------------------------------------------------------------------------------- events

    @precondition(lambda self: not self.running)
    @rule()
    def start(self) -> None:
        self.running = True
        self.tell(Started())

    @rule(by=st.integers(0, 40))
    def let_time_pass(self, by: int) -> None:
        until = self.now + by
        while self.alarm is not None and self.alarm <= until:
            self.now, self.alarm = max(self.now, self.alarm), None
            self.tell(AlarmFired())
        self.now = until

    @rule()
    def ring_out_of_turn(self) -> None:
        self.alarm = None
        self.tell(AlarmFired())

    @rule(kind=st.sampled_from([PERIODIC, PERIODIC, SAVEPOINT]))
    def request(self, kind: CheckpointKind) -> None:
        self.ask(kind)

    @rule()
    def request_the_final_one(self) -> None:
        self.final = True
        self.ask(FINAL)

    @precondition(lambda self: self.kinds)
    @rule(data=st.data(), task=st.sampled_from(TASKS))
    def acknowledge(self, data: st.DataObject, task: str) -> None:
        self.tell(Acknowledged(task, data.draw(st.sampled_from(list(self.kinds)))))

    @precondition(lambda self: self.coordinator.pending)
    @rule()
    def acknowledge_the_oldest(self) -> None:
        oldest = self.under_way()[0]
        for task in TASKS:
            self.tell(Acknowledged(task, oldest))

    @precondition(lambda self: self.kinds)
    @rule(data=st.data(), task=st.sampled_from(TASKS))
    def decline(self, data: st.DataObject, task: str) -> None:
        self.tell(Declined(task, data.draw(st.sampled_from(list(self.kinds))), "busy"))

    @precondition(lambda self: self.storing)
    @rule(data=st.data(), well=st.booleans(), independent=st.booleans())
    def store(self, data: st.DataObject, well: bool, independent: bool) -> None:
        number = data.draw(st.sampled_from(self.storing))
        self.storing.remove(number)
        if well:
            self.stored.add(number)
        self.has_independent |= well and independent
        self.tell(Stored(number, independent) if well else NotStored(number, "no space"))

    @rule(under_way=st.integers(0, 4))
    def count_removals(self, under_way: int) -> None:
        self.removals = under_way
        self.tell(RemovalsCounted(under_way))

    def ask(self, kind: CheckpointKind) -> None:
        self.made += 1
        self.open_requests.add(self.made)
        if kind is PERIODIC:
            self.asked.append(self.made)
        self.tell(Requested(self.made, kind))

    # --------------------------------------------------------------------------------------- instructions

    def tell(self, event: Event) -> None:
        was_over = self.over
        done = self.coordinator.handle(event, self.now)
        if was_over:
            assert all(isinstance(each, Refuse) for each in done)
        for each in done:
            self.follow(each)
        self.over |= isinstance(event, Stopped)
        self.check_the_alarm()

    def follow(self, instruction: Instruction) -> None:
        match instruction:
            case TriggerTasks(number, kind, created_at):
                self.triggered(number, kind, created_at)
            case StoreCheckpoint(number, kind):
                assert kind is self.kinds[number]
                self.storing.append(number)
            case NotifyComplete(number):
                self.end(number)
                self.completed.append(number)
                if self.kinds[number] is not SAVEPOINT:
                    self.in_a_row = 0
            case NotifyAborted(number, reason):
                self.end(number)
                self.aborted.append(number)
                self.note_failure(number, reason)
            case Discard(number):
                assert self.kinds.get(number) is not SAVEPOINT or number in self.aborted
                self.stored.remove(number)
            case Answer(request, number):
                assert number in self.completed
                self.answered(request)
            case Refuse(request):
                self.answered(request)
            case FailJob():
                self.jobs_failed += 1
                self.over = True
                assert self.in_a_row > self.settings.tolerable_failures
            case SetAlarm(at):
                assert at != self.alarm
                self.alarm = at
            case CancelAlarm():
                assert self.alarm is not None
                self.alarm = None

    def triggered(self, number: int, kind: CheckpointKind, created_at: int) -> None:
        assert self.running
        assert created_at == self.now
        assert number == len(self.kinds) + 3
        if kind is PERIODIC:
            assert len(self.under_way()) < self.settings.max_concurrent
            assert self.removals <= self.settings.max_concurrent
            if self.asked:
                self.asked.popleft()
            else:
                self.check_a_scheduled_one()
        self.kinds[number] = kind
        self.deadlines[number] = self.now + self.settings.timeout

    def check_a_scheduled_one(self) -> None:
        assert self.settings.every is not None
        assert not self.final
        assert self.last_end is None or self.now >= self.last_end + self.settings.min_pause

    def end(self, number: int) -> None:
        assert number in self.kinds
        assert number not in self.completed
        assert number not in self.aborted
        self.last_end = self.now

    def note_failure(self, number: int, reason: str) -> None:
        kept = [each for each in self.completed if self.kinds[each] is not SAVEPOINT]
        newest = max(kept, default=0)
        if reason.startswith(_FAILED) and self.kinds[number] is not SAVEPOINT and number > newest:
            self.in_a_row += 1

    def answered(self, request: int) -> None:
        self.open_requests.remove(request)

    # ------------------------------------------------------------------------------------------- invariants

    def under_way(self) -> list[int]:
        return [each for each in self.kinds if each not in (*self.completed, *self.aborted)]

    def check_the_alarm(self) -> None:
        under_way = self.under_way()
        if self.over:
            assert self.alarm is None
        elif under_way:
            assert self.alarm is not None
            assert self.alarm <= min(self.deadlines[each] for each in under_way)
        elif self.running and self.settings.every is not None and not self.final:
            assert self.alarm is not None or self.removals > self.settings.max_concurrent

    @invariant()
    def pending_are_those_that_have_not_ended(self) -> None:
        expected = () if self.over else tuple(self.under_way())
        assert self.coordinator.pending == expected

    @invariant()
    def no_more_than_may_be_are_kept(self) -> None:
        # An aborted checkpoint that was stored is removed as soon as that is reported.
        kept = [each for each in self.stored if self.kinds.get(each) is not SAVEPOINT]
        changed = any(self.kinds[each] is not SAVEPOINT for each in self.completed)
        most = self.settings.keep + self.has_independent
        assert self.over or len(kept) <= (most if changed else len(KNOWN))

    @invariant()
    def the_job_fails_as_soon_as_too_many_have_failed(self) -> None:
        assert self.jobs_failed <= 1
        assert (self.in_a_row > self.settings.tolerable_failures) == (self.jobs_failed == 1)

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        self.tell(Stopped("stopped"))

        assert self.under_way() == []
        assert self.open_requests == set()
        assert self.alarm is None


def test_whatever_happens_the_rules_hold() -> None:
    run_state_machine_as_test(CoordinatorRules)
