"""A round: start and kill the program until it ends by itself, and compare its output with the expected one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench.crash.attempt import Attempt, Kill, ProgramFailed, attempt
from bench.crash.outputs import Output, differences, leftovers, prepare, written
from bench.crash.settings import Settings


@dataclass(frozen=True, slots=True)
class Round:
    """Result of a round."""

    attempts: Sequence[Attempt]
    wrong: Sequence[str]
    """Differences of the output, or the failure of the program; empty if there is none."""

    @property
    def kills(self) -> int:
        """Number of kills."""
        return sum(one.killed for one in self.attempts)

    @property
    def kills_of_jobs(self) -> int:
        """Number of kills while the job ran, not while the program started."""
        return sum(one.killed and one.ran for one in self.attempts)

    @property
    def restored(self) -> list[int]:
        """Restored checkpoints; one may occur twice."""
        return [one.restored for one in self.attempts if one.restored is not None]

    @property
    def completed(self) -> dict[int, int]:
        """Completed checkpoints, and the number of records in flight in each."""
        found: dict[int, int] = {}
        for one in self.attempts:
            found.update(one.in_flight)
        return found

    @property
    def restored_in_flight(self) -> int:
        """Number of restored records in flight."""
        completed = self.completed
        return sum(completed.get(one, 0) for one in self.restored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a round."""

    parallelisms: Sequence[int]
    """Choices of the parallelism, drawn for each start."""
    residents: Sequence[int | None] = (None,)
    """Choices of the keys in memory, drawn for each start; None: all state is in memory."""
    kills: Sequence[Kill]
    """Kill of each start; later starts are not killed."""


def run_round(
    settings: Settings, folder: Path, plan: Plan, expected: Output, random: Random
) -> Round:
    """Run a round in ``folder``, which must not exist: it receives outputs, checkpoints and logs.

    ``settings.endless`` applies to the starts that are killed; the last one can always end.
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
                resident=random.choice(plan.residents),
                endless=settings.endless and kill is not None,
            )
            attempts.append(attempt(one, folder / f"attempt-{len(attempts):03}.log", kill))
            if not attempts[-1].killed:
                break
    except ProgramFailed as exc:
        return Round(attempts, [f"attempt {len(attempts)}: {exc}"])
    return Round(attempts, [*differences(expected, written(outputs)), *leftovers(outputs)])


def undisturbed(settings: Settings, folder: Path) -> Output:
    """Return the output of a run without checkpoints and kills. Raises ``ProgramFailed``."""
    here = settings.into(folder, checkpoints=False)
    prepare(Path(here.outputs))
    attempt(here, folder / "attempt.log", None)
    return written(Path(here.outputs))
