"""Random cases: records, a flow for them, and a way to run it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import aflow as af
from tests.fuzz import functions, oracles
from tests.fuzz.joins import Join
from tests.fuzz.keyed import KeyedStep, Records, Rows, millis
from tests.fuzz.oracles import Elements, Rec, Row, Timed
from tests.fuzz.running import Input, Running, Stamp
from tests.fuzz.steps import Stateless


@dataclass(frozen=True)
class Branch:
    """Stateless and async steps, and a keyed one."""

    steps: tuple[Stateless, ...]
    keyed: KeyedStep


@dataclass(frozen=True)
class Case:
    """One source, some branches. Records may be late if the source has one split."""

    input: Input
    branches: tuple[Branch, ...]
    running: Running

    def check(self) -> None:
        """Raise ``AssertionError`` if a job emits anything else than the oracles."""
        source = self.input.source(crashing=self.running.checkpoints.value != "none")

        def build(flow: af.Flow) -> Mapping[str, Rows]:
            stream = flow.source(source, name="records").event_time(
                max_delay=millis(self.input.delay)
            )
            streams: dict[str, Rows] = {}
            for number, branch in enumerate(self.branches):
                streams.update(_branch(stream, branch, number))
            return streams

        found = self.running.results(build)

        for number, branch in enumerate(self.branches):
            self._check_branch(branch, number, found)

    def _check_branch(
        self, branch: Branch, number: int, found: Mapping[str, Sequence[Stamp]]
    ) -> None:
        elements, failed = _after(self._elements(), branch.steps)
        expected = branch.keyed.expected(elements)
        rows = [(oracles.row(one), _instant(one)) for one in expected.results]
        late = [(row_of(oracles.rec(one)), _instant(one)) for one in expected.late]
        compare(found[f"rows {number}"], rows, what=f"{branch}", ordered=branch.keyed.keeps_order)
        compare(found.get(f"late {number}", ()), late, what=f"late of {branch}")
        compare(found.get(f"failed {number}", ()), failed, what=f"failed of {branch}")

    def _elements(self) -> Elements:
        if len(self.input.splits) == 1:
            return oracles.timed(self.input.splits[0], self.input.delay)
        return oracles.all_in_time(in_time_order(self.input))


@dataclass(frozen=True)
class PairCase:
    """Two sources and a join. No record is late."""

    left: Input
    right: Input
    left_steps: tuple[Stateless, ...]
    right_steps: tuple[Stateless, ...]
    join: Join
    running: Running

    def check(self) -> None:
        """Raise ``AssertionError`` if a job emits anything else than the oracle."""
        crashing = self.running.checkpoints.value != "none"
        sources = [one.source(crashing=crashing) for one in (self.left, self.right)]
        inputs = (self.left, self.right)

        def build(flow: af.Flow) -> Mapping[str, Rows]:
            streams = [
                flow.source(source, name=f"records {n}").event_time(
                    max_delay=millis(one.delay), name=f"time {n}"
                )
                for n, (source, one) in enumerate(zip(sources, inputs, strict=True))
            ]
            unread: list[Rows] = []
            for n, steps in enumerate((self.left_steps, self.right_steps)):
                streams[n], failed = _stepped(streams[n], steps, f"side {n}")
                unread += failed
            rows = {"rows": self.join.on(streams[0], streams[1], "joined")}
            if unread:
                rows["failed"] = unread[0].union(*unread[1:]) if unread[1:] else unread[0]
            return rows

        found = self.running.results(build)

        left, left_failed = _after(oracles.all_in_time(in_time_order(self.left)), self.left_steps)
        right, failed = _after(oracles.all_in_time(in_time_order(self.right)), self.right_steps)
        results = self.join.expected(_records(left), _records(right))
        compare(
            found["rows"],
            [(oracles.row(one), _instant(one)) for one in results],
            what=f"{self.join}",
        )
        compare(found.get("failed", ()), [*left_failed, *failed], what="failed")


def _branch(stream: Records, branch: Branch, number: int) -> Mapping[str, Rows]:
    stepped, failed = _stepped(stream, branch.steps, f"branch {number}")
    outputs = branch.keyed.on(stepped, f"keyed {number}")
    streams = {f"rows {number}": outputs.rows}
    if outputs.late is not None:
        streams[f"late {number}"] = outputs.late.map(row_of)
    if failed:
        streams[f"failed {number}"] = failed[0].union(*failed[1:]) if failed[1:] else failed[0]
    return streams


def _stepped(stream: Records, steps: Sequence[Stateless], name: str) -> tuple[Records, list[Rows]]:
    """Add steps; return the stream, and their dead letters."""
    failed: list[Rows] = []
    for number, step in enumerate(steps):
        stream = step.on(stream, f"{name} step {number}")
        if step.has_dead_letters:
            letters = stream.side(functions.FAILED)
            failed.append(letters.map(lambda letter: row_of(letter.value)))
    return stream, failed


def _after(
    elements: Elements, steps: Sequence[Stateless]
) -> tuple[Elements, list[tuple[Row, float | None]]]:
    """Return what stateless steps emit, and their dead letters."""
    failed: list[tuple[Row, float | None]] = []
    for step in steps:
        if step.has_dead_letters:
            lost = [one for one in _records(elements) if step.fails(oracles.rec(one))]
            failed += [(row_of(oracles.rec(one)), _instant(one)) for one in lost]
        elements = oracles.replaced(elements, step.results)
    return elements, failed


def _records(elements: Elements) -> list[Timed]:
    return [one for one in elements if isinstance(one, Timed)]


def in_time_order(some: Input) -> list[tuple[Rec, int]]:
    """Return the records of all splits by time; those of one split and time stay in their order."""
    return sorted((each for split in some.splits for each in split), key=lambda each: each[1])


def row_of(value: Rec) -> Row:
    return value.key, value.n


#: The timestamp of results of windows without end.
_LARGEST = 2**63 - 1


def _instant(one: Timed) -> int:
    return _LARGEST if one.at == oracles.END else int(one.at)


def compare(
    found: Iterable[tuple[Row, float | None]],
    expected: Iterable[tuple[Row, float | None]],
    *,
    what: str,
    ordered: bool = False,
) -> None:
    """Compare results: those of a key in their order if ``ordered``, else without any order."""
    some, others = list(found), list(expected)
    missing, surplus = Counter(others) - Counter(some), Counter(some) - Counter(others)
    assert (missing, surplus) == (Counter(), Counter()), f"{what}: {missing=}, {surplus=}"
    if ordered:
        assert _by_key(some) == _by_key(others), what


def _by_key(rows: Iterable[tuple[Row, float | None]]) -> dict[object, list[object]]:
    by_key: dict[object, list[object]] = defaultdict(list)
    for each in rows:
        by_key[each[0][0]].append(each)
    return dict(by_key)
