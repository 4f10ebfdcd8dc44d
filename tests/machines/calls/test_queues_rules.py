"""Whatever is put and settled, in whatever order: what holds for all queues of calls, and for the turns of keys."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aflow.machines.calls.call import Call
from aflow.machines.calls.queues import CallQueue, Fence, KeyTurns, OrderedCalls, UnorderedCalls
from aflow.model.elements import ACTIVE, IDLE, Watermark


class QueueRules(RuleBasedStateMachine):
    """Against a plain list of all that is here. Nothing is lost, nothing leaves twice, no fence is overtaken."""

    make: ClassVar[type[OrderedCalls] | type[UnorderedCalls]]

    def __init__(self) -> None:
        super().__init__()
        self.queue: CallQueue = self.make()
        self.numbers = iter(range(10_000))
        #: Calls and fences that were put and not taken, in the order of the stream.
        self.here: list[Call | Fence] = []
        #: The calls among them that are settled, in the order in which they were.
        self.settled: list[Call] = []

    @rule(count=st.integers(0, 4))
    def put(self, count: int) -> None:
        calls = [Call(next(self.numbers), None, None) for _ in range(count)]
        self.queue.put(calls)
        self.here += calls

    @rule(idle=st.sampled_from([None, IDLE, ACTIVE]))
    def put_fence(self, idle: Fence | None) -> None:
        fence = idle or Watermark(next(self.numbers))
        self.queue.put_fence(fence)
        self.here.append(fence)

    @precondition(lambda self: self.waited_for())
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        self.settle_one(data.draw(st.sampled_from(self.waited_for())))

    @rule()
    def take(self) -> None:
        expected = self.leaving()
        out = self.queue.take()

        assert [one for one in out if one == []] == []
        left = [one for some in out for one in (some if isinstance(some, list) else [some])]
        assert left == expected
        for one in left:
            self.here.remove(one)
        self.settled = [call for call in self.settled if call not in left]

    @invariant()
    def has_out_says_whether_something_would_leave(self) -> None:
        assert self.queue.has_out == bool(self.leaving())

    @invariant()
    def all_calls_that_are_here_are_known_in_order_and_fences_count_too(self) -> None:
        assert list(self.queue.calls) == [one for one in self.here if isinstance(one, Call)]
        assert len(self.queue) == len(self.here)

    def teardown(self) -> None:
        for call in self.waited_for():
            self.settle_one(call)
        self.take()
        assert self.here == []

    def settle_one(self, call: Call) -> None:
        self.queue.settle(call)
        self.settled.append(call)

    def waited_for(self) -> list[Call]:
        return [one for one in self.here if isinstance(one, Call) and one not in self.settled]

    def leaving(self) -> list[Call | Fence]:
        raise NotImplementedError


class OrderedRules(QueueRules):
    """Everything up to the first call that is not settled may be emitted."""

    make = OrderedCalls

    def leaving(self) -> list[Call | Fence]:
        waited_for = self.waited_for()
        return self.here[: self.here.index(waited_for[0])] if waited_for else self.here[:]


class UnorderedRules(QueueRules):
    """Settled calls may be emitted, those of the next segment only after a complete one."""

    make = UnorderedCalls

    def leaving(self) -> list[Call | Fence]:
        leaving: list[Call | Fence] = []
        segment: list[Call] = []
        for one in self.here:
            if isinstance(one, Call):
                segment.append(one)
                continue
            leaving += self.settled_of(segment)
            if any(call not in self.settled for call in segment):
                return leaving
            leaving.append(one)
            segment = []
        return leaving + self.settled_of(segment)

    def settled_of(self, segment: list[Call]) -> list[Call]:
        return [call for call in self.settled if call in segment]


class TurnRules(RuleBasedStateMachine):
    """Compare with a list of calls for each key: only its first one has the turn."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = KeyTurns()
        self.here: dict[str, list[Call]] = {}

    @rule(keys=st.lists(st.sampled_from("abc"), max_size=5))
    def admit(self, keys: list[str]) -> None:
        calls = [Call(None, None, key) for key in keys]
        expected: list[Call] = []
        for call, key in zip(calls, keys, strict=True):
            of_key = self.here.setdefault(key, [])
            of_key.append(call)
            expected += [call] if len(of_key) == 1 else []

        assert self.turns.admit(calls) == expected

    @precondition(lambda self: any(self.here.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(key for key, calls in self.here.items() if calls)))

        following = self.turns.release(key)

        del self.here[key][0]
        assert following is (self.here[key][0] if self.here[key] else None)

    @invariant()
    def all_but_the_first_of_each_key_are_blocked(self) -> None:
        assert self.turns.blocked == sum(len(calls[1:]) for calls in self.here.values())


TestOrderedCalls = OrderedRules.TestCase
TestUnorderedCalls = UnorderedRules.TestCase
TestKeyTurns = TurnRules.TestCase
