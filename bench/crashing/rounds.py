"""A round: the program is started and killed until it ends by itself, and its output compared with what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench.crashing.attempts import Attempt, Kill, ProgramFailed, attempt
from bench.crashing.outputs import Output, differences, leftovers, prepare, written
from bench.crashing.settings import Settings


@dataclass(frozen=True, slots=True)
class Round:
    """What became of a round."""

    attempts: Sequence[Attempt]
    wrong: Sequence[str]
    """What differs, or why the program failed; nothing if all is well."""

    @property
    def kills(self) -> int:
        """How often the program was killed."""
        return sum(one.killed for one in self.attempts)

    @property
    def kills_of_jobs(self) -> int:
        """How often when the job was running, and not while the program started or read a checkpoint."""
        return sum(one.killed and one.ran for one in self.attempts)

    @property
    def restored(self) -> list[int]:
        """The checkpoints that attempts went on from; the same one twice if it was still the latest."""
        return [one.restored for one in self.attempts if one.restored is not None]

    @property
    def completed(self) -> dict[int, int]:
        """All checkpoints that have completed, and the records in flight that each of them holds."""
        found: dict[int, int] = {}
        for one in self.attempts:
            found.update(one.in_flight)
        return found

    @property
    def restored_in_flight(self) -> int:
        """Records in flight that attempts have gone on with."""
        completed = self.completed
        return sum(completed.get(one, 0) for one in self.restored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a round is to go."""

    parallelisms: Sequence[int]
    """One of them is drawn for each start."""
    kills: Sequence[Kill]
    """When the program is killed, start by start; behind that it is left in peace."""


def play(settings: Settings, folder: Path, plan: Plan, expected: Output, random: Random) -> Round:
    """Play a round in ``folder``, which must not be there yet: outputs, checkpoints and what programs have said.

    ``settings.endless`` holds for the starts that are to be killed; the last one can always come to an end.
    """
    here = settings.into(folder, checkpoints=True)
    outputs = Path(here.outputs)
    prepare(outputs)
    attempts: list[Attempt] = []
    try:
        for kill in [*plan.kills, None]:
            one = replace(
                here,
                parallelism=random.choice(plan.parallelisms),
                endless=settings.endless and kill is not None,
            )
            attempts.append(attempt(one, folder / f"attempt-{len(attempts):03}.log", kill))
            if not attempts[-1].killed:
                break
    except ProgramFailed as exc:
        return Round(attempts, [f"attempt {len(attempts)}: {exc}"])
    return Round(attempts, [*differences(expected, written(outputs)), *leftovers(outputs)])


def undisturbed(settings: Settings, folder: Path) -> Output:
    """What a run without checkpoints gives that nobody kills. Raises ``ProgramFailed``."""
    here = settings.into(folder, checkpoints=False)
    prepare(Path(here.outputs))
    attempt(here, folder / "attempt.log", None)
    return written(Path(here.outputs))
