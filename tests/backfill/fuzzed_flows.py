"""Random flows: chains of steps, branches that meet again, and records for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.backfill.comparison import Case
from tests.backfill.items import Item, Items, drawn
from tests.backfill.keyed_steps import KEYED
from tests.backfill.pair_steps import PAIRS, PairStep
from tests.backfill.steps import STATELESS, Step

#: Limits the keyed steps in a chain, and the steps that pair each record with each.
DEPTH = 4
JOINS = 2


@dataclass(frozen=True, slots=True)
class Line:
    """One step, by the numbers of the lines that it reads; or a source, by its name."""

    step: Step | PairStep | str
    reads: tuple[int, ...] = ()
    in_order: bool = False
    timeless: bool = False
    depth: int = 0
    joins: int = 0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A flow, as lines."""

    lines: Sequence[Line]

    @staticmethod
    def at_random(random: Random, sources: Mapping[str, bool]) -> Drawn:
        """Over ``sources``, of which some are in order."""
        lines = [Line(name, in_order=in_order) for name, in_order in sources.items()]
        for _ in range(random.randint(2, 7)):
            lines.append(_paired(random, lines) if random.random() < 0.35 else _line(random, lines))
        return Drawn(lines)

    def build(self, sources: Mapping[str, Items]) -> Mapping[str, Items]:
        """Return the streams without readers, by name."""
        made: list[Items] = []
        for number, line in enumerate(self.lines):
            inputs = [made[one] for one in line.reads]
            match line.step:
                case str(name):
                    made.append(sources[name])
                case PairStep() as pair:
                    joined = pair.make(inputs[0], inputs[1], f"{pair.name} {number}")
                    made.append(joined.filter(_one_of_some) if pair.multiplies else joined)
                case Step() as step:
                    made.append(step.make(inputs[0], f"{step.name} {number}"))
        read = {one for line in self.lines for one in line.reads}
        return {f"out {n}": stream for n, stream in enumerate(made) if n not in read}

    @property
    def merges_results(self) -> bool:
        """True if it has sessions of what other steps give at the very moment to which time has come: what touches the
        end of a session is chance in a live job then, however long it waits for what is late."""
        return any(
            "sessions" in line.step.name and any(self.lines[one].depth for one in line.reads)
            for line in self.lines
            if not isinstance(line.step, str)
        )

    def __str__(self) -> str:
        return "\n".join(f"{n}: {_text(line)}" for n, line in enumerate(self.lines))


def _text(line: Line) -> str:
    name = line.step if isinstance(line.step, str) else line.step.name
    return f"{name} {'in order ' if line.in_order else ''}of {line.reads}"


def _line(random: Random, lines: Sequence[Line]) -> Line:
    read = random.choice([n for n, line in enumerate(lines) if not line.timeless])
    before = lines[read]
    steps = KEYED if before.depth < DEPTH and random.random() < 0.6 else STATELESS
    step = random.choice([one for one in steps if before.in_order or not one.needs_order])
    return Line(
        step,
        (read,),
        in_order=before.in_order and step.keeps_order,
        timeless=step.timeless,
        depth=before.depth + (steps is KEYED),
        joins=before.joins,
    )


def _paired(random: Random, lines: Sequence[Line]) -> Line:
    able = [n for n, line in enumerate(lines) if not line.timeless and line.depth < DEPTH]
    left, right = random.choice(able), random.choice(able)
    in_order = lines[right].in_order
    joins = lines[left].joins + lines[right].joins
    pair = random.choice(
        [
            one
            for one in PAIRS
            if (in_order or not one.right_needs_order) and (joins < JOINS or not one.multiplies)
        ]
    )
    depth = 1 + max(lines[left].depth, lines[right].depth)
    return Line(pair, (left, right), depth=depth, joins=joins + pair.multiplies)


def _one_of_some(item: Item) -> bool:
    return item.n % 8 < 2


@dataclass(frozen=True, slots=True)
class RandomCase:
    """A flow and records for it."""

    flow: Drawn
    case: Case

    @staticmethod
    def of(random: Random) -> RandomCase:
        in_order = random.random() < 0.5
        names = ["items", "others"][: random.randint(1, 2)]
        flow = Drawn.at_random(random, dict.fromkeys(names, in_order))
        keys, lasts = random.choice([1, 3, 5, 9]), random.choice([100, 300, 600])
        counts = [random.choice([0, 1, 40, 60, 60]) for _ in names]
        sources = {
            name: drawn(random, count, keys=keys, lasts=lasts, together=not in_order)
            for name, count in zip(names, counts, strict=True)
        }
        case = Case(
            flow.build,
            sources,
            max_delay=2000 if flow.merges_results else random.choice([2, 10, 100, 2000]),
            seen_before_time=random.random() < 0.2,
        )
        return RandomCase(flow, case)

    def history(self, random: Random) -> Mapping[str, Sequence[Item]]:
        """The records in random order, as storage may have them."""
        if random.random() < 0.5:
            return self.case.sources
        return {
            name: random.sample(items, k=len(items)) for name, items in self.case.sources.items()
        }


def moment(random: Random, sources: Mapping[str, Sequence[Item]]) -> int:
    """Before the first record, at one, anywhere, or after the last."""
    taken = [item.at for items in sources.values() for item in items] or [0]
    return random.choice(
        [
            random.choice(taken),
            random.choice(taken) + 1,
            random.choice(taken) // 10 * 10,
            random.randrange(600),
            min(taken) - 1,
            max(taken) + random.choice([1, 100, 10_000]),
        ]
    )
