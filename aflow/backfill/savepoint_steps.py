"""The steps of a savepoint, read and checked one part at a time, without their keyed state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aflow.connect import Committable
from aflow.runtime.checkpoints.directory.files import DISK
from aflow.runtime.checkpoints.directory.reader import ReadSource, read_chain
from aflow.runtime.checkpoints.sections import read_committables
from aflow.state.change_plan import StepContents, StoredStep
from aflow.state.manifest import Manifest, StepState
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot, merge


@dataclass(frozen=True, slots=True)
class ReadStep:
    """A step of a savepoint that was read and checked, without its keyed state."""

    step: StepState
    contents: StoredStep
    of_operator: OperatorSnapshot

    @property
    def has_keys(self) -> bool:
        """True if it has keyed state."""
        return bool(self.contents.states) or any(
            name not in self.of_operator.operator for name in self.contents.others
        )

    def prepared(self) -> list[tuple[int, Committable]]:
        """Return the prepared output of a sink. Raises ``RestoreError``."""
        return read_committables(self.step.name, self.of_operator)


def read_steps(manifest: Manifest, folder: Path) -> Iterator[ReadStep]:
    """Yield the steps, with one part in memory at a time; blocks.

    Raises ``RestoreError`` for files that are missing or damaged.
    """
    source = ReadSource(DISK, folder)
    for step in manifest.steps:
        contents = StepContents(step)
        operator: list[OperatorSnapshot] = []
        with wrap_read_errors(f"the state of step {step.name!r} in {folder}"):
            for one in step.subtasks:
                state = read_chain(step.name, one.chain, source)
                contents.add(state)
                operator.append(state.restricted_to(()))
        yield ReadStep(step, contents.stored(), merge(operator))


def prepared_output(
    sinks: Mapping[str, object], steps: Mapping[str, ReadStep]
) -> dict[str, list[tuple[int, Committable]]]:
    """Return the prepared output of ``sinks``, by name; that of a removed sink is dropped like its state."""
    found = {name: steps[name].prepared() for name in steps if name in sinks}
    return {name: some for name, some in found.items() if some}
