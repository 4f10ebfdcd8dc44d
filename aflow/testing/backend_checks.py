"""The contract of ``KeyedBackend`` as one check, for authors of backends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

from aflow.errors import AflowError, FlowDefinitionError, OperatorError, RestoreError, shown
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange, ranges
from aflow.model.time import Clock
from aflow.state.backend import KeyedBackend
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.snapshot import OperatorSnapshot, merge, replay
from aflow.state.specs import ListState, TtlOn, ValueState
from aflow.testing.backend_probe import BackendStep, SettableClock, States
from aflow.testing.time_limit import check_not_async

MakeBackend = Callable[[KeyGroupCodec, Clock], KeyedBackend]
"""Makes an empty backend."""

#: More keys than a backend that spills should hold in memory.
_MANY: Final = 1500

_TTL: Final = timedelta(minutes=1)


def check_backend(make_backend: MakeBackend) -> None:
    """Raise ``AssertionError`` if a backend breaks the contract of ``KeyedBackend``; the message names the breach.

    ``make_backend(key_codec, clock)`` is called many times. A backend that holds only some keys in memory should be
    told to hold few, ten or so: the check uses 1,500 in batches of 64.

    The check uses cells of all kinds and tables; captures full state and changes; replays and restores them, also with
    other ranges of key groups; queries state from outside; advances the clock; and closes backends.
    """
    check_not_async(make_backend, "make_backend")
    check = _BackendCheck(make_backend)
    try:
        for one in (
            check.cells,
            check.keys_of_cells,
            check.stored_cells,
            check.many_keys,
            check.equal_keys,
            check.large_values,
            check.tables,
            check.querying,
            check.capturing,
            check.captures_that_do_not_change,
            check.restoring,
            check.refusing_to_restore,
            check.rescaling,
            check.time_to_live,
            check.time_to_live_in_snapshots,
        ):
            one()
            check.close()
    finally:
        check.close()


class _BackendCheck:
    def __init__(self, make: MakeBackend) -> None:
        self._make = make
        self._clock = SettableClock()
        self._steps: list[BackendStep] = []
        step = self._step()
        self._name = type(step.backend).__name__

    def cells(self) -> None:
        step = self._step()
        self._same(step.state_of("a"), _NOTHING, "a new key has")
        step.write(["a", "b", "a"], 1)
        step.write(["b"], 3)
        self._same(
            step.state_of("a"),
            _seen(1, [1, 1], {"1": 1}, 1, 1.0),
            "a key that was written twice has",
        )
        self._same(
            step.state_of("b"), _seen(3, [1, 3], {"1": 1, "3": 3}, 3, 2.0), "another key has"
        )
        step.clear(["a"])
        self._same(step.state_of("a"), _NOTHING, "a cleared key has")
        self._same(set(step.backend.keys("list")), {"b"}, "after clear() keys() returns")
        step.each(["b"], lambda: step.list.set([]))
        step.each(["b"], lambda: [step.map.remove("1"), step.map.remove("3")])
        self._same(step.backend.get("list", "b"), None, "a list that was emptied is")
        self._same(step.backend.get("map", "b"), None, "a map that was emptied is")

    def keys_of_cells(self) -> None:
        """A cell needs a current key, and a name one declaration."""
        step = self._step()
        step.write(["a"], 1)
        self._refused(step.value.get, OperatorError, "a cell used without a current key")
        self._refused(
            lambda: step.backend.cell(ListState("value", of=int)),
            FlowDefinitionError,
            "two declarations of one name",
        )

    def stored_cells(self) -> None:
        """Stored cells and cells of other kinds read each other's values."""
        states = States()
        step = self._step(states)
        step.write(["a"], 1)
        stored = step.backend.stored_cell(states.list)
        step.each(["a"], lambda: stored.set([*(stored.get() or ()), 2]))
        self._same(step.backend.get("list", "a"), [1, 2], "a list that was set as one value is")
        step.each(["a"], stored.clear)
        self._same(step.backend.get("list", "a"), None, "a list that was cleared as one value is")

    def many_keys(self) -> None:
        step, random = self._step(), Random(5)
        expected: dict[Hashable, int] = {}
        for _ in range(6):
            keys = [random.randrange(_MANY) for _ in range(_MANY)]
            for key in keys:
                expected[key] = expected.get(key, 0) + 1
            step.each(keys, lambda: step.value.set((step.value.get() or 0) + 1))
        self._same(step.content()["value"], expected, "the counts of many keys are")
        step.clear(list(expected))
        self._same(step.content()["value"], {}, "after clear() of all keys there is")

    def equal_keys(self) -> None:
        """Equal keys share state, and similar keys do not; also between captures of changes."""
        step = self._step()
        step.write([1, True, 1.0], 1)
        step.write(["1"], 2)
        step.write([b"1"], 3)
        self._same(step.backend.get("list", 1.0), [1, 1, 1], "the keys 1, True and 1.0 have")
        self._same(step.backend.get("list", "1"), [2], "the key '1' has")
        chain = [step.capture(changes=False).encoded()]
        step.write(list(range(2, _MANY)), 4)
        step.write([1.0], 5)
        step.clear([b"1"])
        chain.append(step.capture(changes=True).encoded())
        self._same(
            self._restored(chain).content(), step.content(), "restored with equal keys there is"
        )

    def large_values(self) -> None:
        step = self._step()
        spec = ValueState[bytes]("large", of=bytes)
        large = step.backend.cell(spec)
        keys = list(range(100))
        step.each(keys, lambda: large.set(bytes([hash(step.backend.key)]) * 300_000))
        found = [step.backend.get("large", key) == bytes([key]) * 300_000 for key in keys]
        self._same(found, [True] * 100, "values of 300,000 bytes are the same:")

    def tables(self) -> None:
        """A table, which operators for whole batches use, has the rows of all keys."""
        step = self._step()
        table = step.backend.table(ValueState[int]("table", of=int))
        for start in range(0, _MANY, 50):
            batch = list(range(start, start + 50))
            step.backend.touch(batch)
            table.update((key, key) for key in batch)
        step.backend.touch([7, 8])
        del table[7]
        table[8] += 100
        expected = {key: key + 100 * (key == 8) for key in range(_MANY) if key != 7}
        self._same(dict(table.items()), expected, "the items of a table are")
        self._same(len(table), _MANY - 1, "the length of a table is")
        self._same((7 in table, 9 in table), (False, True), "what is in a table:")
        for key, value in table.items():
            table[key] = value + 1
        raised = {key: value + 1 for key, value in expected.items()}
        self._same(dict(table.items()), raised, "items changed in a loop over all of them are")

    def querying(self) -> None:
        step = self._step()
        step.write(list(range(_MANY)), 1)
        values: Any = step.backend.get("list", 0)
        entries: Any = step.backend.get("map", 0)
        values.append(9)
        entries["x"] = 9
        self._same(
            (step.backend.get("list", 0), step.backend.get("map", 0)),
            ([1], {"1": 1}),
            "a list and a map that the caller changed are",
        )
        self._same(step.backend.get("aggregating", 0), 1.0, "an aggregate read from outside is")
        self._same(step.backend.get("value", "never"), None, "what an unknown key has is")
        self._same(set(step.backend.keys("map")), set(range(_MANY)), "keys() gives")
        self._refused(
            lambda: step.backend.get("nothing", 0), FlowDefinitionError, "an unknown name"
        )
        self._refused(
            lambda: list(step.backend.keys("nothing")), FlowDefinitionError, "an unknown name"
        )

    def capturing(self) -> None:
        """Changes hold exactly the touched keys; replayed on the preceding captures they restore all state."""
        step = self._step()
        step.write(list(range(_MANY)), 1)
        first = step.capture(changes=True).encoded()
        if not first.complete:
            raise self._broken("the first capture is not complete")
        step.write([1, 2, *range(900, 1000)], 2)
        step.clear([3])
        step.write([_MANY], 1)
        step.write(list(range(400, 500)), 4)
        second = step.capture(changes=True).encoded()
        if not second.complete:
            touched = 102 + 1 + 1 + 100
            named = sum(map(len, (second.replaced or {}).values()))
            self._same(named, touched, f"of {touched} keys that were touched, changes name")
        step.write([2], 3)
        expected = step.content()
        third = step.capture(changes=True).encoded()
        self._same(self._restored([first, second, third]).content(), expected, "replayed there is")
        complete = step.capture(changes=False).encoded()
        if not complete.complete:
            raise self._broken("capture(changes=False) gives changes")
        self._same(self._restored([complete]).content(), expected, "captured again there is")
        keyed = OperatorSnapshot(step.backend.snapshot())
        self._same(self._restored([keyed]).content(), expected, "in a snapshot there is")

    def captures_that_do_not_change(self) -> None:
        for changes in (False, True):
            step = self._step()
            step.write(list(range(_MANY)), 1)
            before = step.capture(changes=False).encoded()
            step.write(list(range(500)), 2)
            expected = step.content()
            captured = step.capture(changes=changes)
            step.write(list(range(_MANY + 100)), 3)
            step.clear(list(range(50)))
            chain = [before, captured.encoded()] if changes else [captured.encoded()]
            self._same(
                self._restored(chain).content(),
                expected,
                "of a capture before keys were written and cleared there is",
            )
            late = step.capture(changes=changes)
            self.close()
            late.encoded()  # a capture outlives its backend

    def restoring(self) -> None:
        """A restore replaces all state, and changes are captured from then on."""
        step = self._step()
        step.write(list(range(_MANY)), 1)
        chain = [step.capture(changes=False).encoded()]
        expected = step.content()
        other = self._step()
        other.write(["was here"], 5)
        other.backend.restore(chain[0].keyed)
        self._same(other.content(), expected, "restored over other state there is")
        other.write([4, 5], 7)
        chain.append(other.capture(changes=True).encoded())
        self._same(
            self._restored(chain).content(),
            other.content(),
            "with changes since a restore there is",
        )
        other.backend.restore({})
        self._same(other.content()["value"], {}, "with nothing restored there is")

    def refusing_to_restore(self) -> None:
        step = self._step()
        step.write(["a"], 1)
        keyed = step.backend.snapshot()
        for what, spec in (
            ("undeclared state", ValueState[int]("unlike", of=int)),
            ("state of another kind", ListState[int]("value", of=int)),
        ):
            backend = self._make(step.key_codec, self._clock)
            backend.cell(spec)
            self._refused(partial(backend.restore, keyed), RestoreError, what)
            backend.close()
        group = next(iter(keyed))
        others = {group: {"@of the operator": ((b"a", b"b"),)}}
        step.backend.restore(others)
        self._same(step.content()["value"], {}, "restored from names with @ there is")

    def rescaling(self) -> None:
        """Subtasks restore the state of their key groups, whatever the former parallelism was."""
        whole = self._step()
        whole.write(list(range(_MANY)), 1)
        snapshot = OperatorSnapshot(whole.backend.snapshot())
        parts: list[OperatorSnapshot] = []
        keys: list[Hashable] = []
        for groups in ranges(DEFAULT_KEY_GROUPS, 3):
            part = self._step(groups=groups)
            part.backend.restore(snapshot.keyed)
            keys += part.backend.keys("value")
            parts.append(part.capture(changes=False).encoded())
        self._same(sorted(map(str, keys)), sorted(map(str, range(_MANY))), "three subtasks have")
        self._same(self._restored([merge(parts)]).content(), whole.content(), "together there is")

    def time_to_live(self) -> None:
        for on in TtlOn:
            step = self._step(States(_TTL, on))
            step.write(list(range(200)), 1)
            self._clock.time += 40_000
            step.write([1], 2)
            read = step.state_of(2)
            self._same(read["list"], [1], "before it has expired a list is")
            self._clock.time += 20_000
            alive = {1, 2} if on is TtlOn.READ else {1}
            self._same(set(step.backend.keys("map")), alive, f"with {on}, keys() returns")
            self._same(step.backend.get("value", 0), None, "expired, get() returns")
            self._same(step.state_of(100), _NOTHING, "expired, a key has")
            step.write([0], 3)
            self._same(step.backend.get("list", 0), [3], "added to when expired, a list is")

    def time_to_live_in_snapshots(self) -> None:
        step = self._step(States(_TTL))
        step.write(list(range(300)), 1)
        chain = [step.capture(changes=False).encoded()]
        self._clock.time += 30_000
        step.write(list(range(100)), 2)
        chain.append(step.capture(changes=True).encoded())
        self._clock.time += 30_000
        again = self._restored(chain, States(_TTL))
        self._same(
            set(again.backend.keys("value")),
            set(range(100)),
            "restored before they expire are the keys",
        )
        self._clock.time += 30_000
        self._same(list(again.backend.keys("value")), [], "expired since a restore,")
        for without in (States(), States(_TTL)):
            other = self._restored([replay(chain)], without)
            known = 300 if without.value.ttl is None else 0
            self._same(len(list(other.backend.keys("value"))), known, "keys restored later:")
        untimed = self._step()
        untimed.write([1], 1)
        dated = self._restored([untimed.capture(changes=False).encoded()], States(_TTL))
        self._clock.time += 59_999
        self._same(list(dated.backend.keys("value")), [1], "stored without a ttl,")
        self._clock.time += 1
        self._same(list(dated.backend.keys("value")), [], "a ttl after the restore,")

    def _step(
        self, states: States | None = None, groups: KeyGroupRange | None = None
    ) -> BackendStep:
        step = BackendStep(self._make, self._clock, states, groups)
        self._steps.append(step)
        return step

    def close(self) -> None:
        """Close all open backends."""
        while self._steps:
            self._steps.pop().backend.close()

    def _restored(self, chain: list[OperatorSnapshot], states: States | None = None) -> BackendStep:
        """Return a step restored from ``chain``, from its last complete snapshot on."""
        last = max(index for index, snapshot in enumerate(chain) if snapshot.complete)
        step = self._step(states)
        step.backend.restore(replay(chain[last:]).keyed)
        return step

    def _same(self, found: object, expected: object, what: str) -> None:
        if found != expected:
            raise self._broken(f"{what} {shown(found)} instead of {shown(expected)}")

    def _refused(self, use: Callable[[], object], error: type[AflowError], what: str) -> None:
        try:
            use()
        except error:
            return
        raise self._broken(f"{what} raises no {error.__name__}")

    def _broken(self, what: str) -> AssertionError:
        return AssertionError(f"{self._name}: {what}")


def _seen(
    value: int | None,
    values: Iterable[int],
    entries: dict[str, int],
    reducing: int | None,
    aggregating: float | None,
) -> dict[str, object]:
    return {
        "value": value,
        "list": list(values),
        "map": entries,
        "reducing": reducing,
        "aggregating": aggregating,
    }


_NOTHING: Final = _seen(None, (), {}, None, None)
